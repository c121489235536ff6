package content

import (
	"slices"
)

// Visibility says who may see the value of a variable.
type Visibility string

// The visibilities, from most to least visible.
const (
	VisibleToAll       Visibility = ""
	VisibleToOperators Visibility = "OPERATOR"
	VisibleToAdmins    Visibility = "ADMIN"
	VisibleToNobody    Visibility = "SECRET"
)

var visibilities = []Visibility{VisibleToAll, VisibleToOperators, VisibleToAdmins, VisibleToNobody}

// HiddenFrom reports whether a value of visibility v is hidden from a viewer who may see values up
// to most.
func (v Visibility) HiddenFrom(most Visibility) bool {
	return slices.Index(visibilities, v) > slices.Index(visibilities, most)
}

// Shown returns who may see the variable's value. No user may see secrets.
func (v Variable) Shown() Visibility {
	if v.Type == VariableSecret {
		return VisibleToNobody
	}
	return Visibility(v.Visibility)
}
