package auth

import (
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Shown returns which protected values the identity may see: those for administrators if it may change
// settings, those for operators if it may change groups.
func (i Identity) Shown() content.Visibility {
	switch {
	case i.Can(SystemSettings):
		return content.VisibleToAdmins
	case i.Can(GroupsUpdate):
		return content.VisibleToOperators
	}
	return content.VisibleToAll
}
