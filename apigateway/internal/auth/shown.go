package auth

import "github.com/orreryhq/orrery/libs/fleet"

// Shown is what of values that not everybody is shown the identity is: those for
// administrators to who may change settings, those for operators to who may change groups.
func (i Identity) Shown() fleet.Visibility {
	switch {
	case i.Can(SystemSettings):
		return fleet.VisibleToAdmins
	case i.Can(GroupsUpdate):
		return fleet.VisibleToOperators
	}
	return fleet.VisibleToAll
}
