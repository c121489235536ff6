package account

import (
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Binding gives the permissions of a role to users, in the groups that a selector matches. The
// gateway writes it.
type Binding struct {
	record.Rev
	Name string `json:"name"`
	Role string `json:"role"`
	// Selector matches the labels of groups. Empty means the whole fleet, including what belongs to no
	// group.
	Selector label.Selector `json:"selector"`
	// Subjects are the User.IDs, sorted. They stay when a user is renamed, and an ID without a user
	// grants nothing.
	Subjects []string  `json:"subjects"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
}

// Equal reports whether two bindings grant the same to the same users.
func (b *Binding) Equal(o *Binding) bool {
	return b.Name == o.Name && b.Role == o.Role && b.Selector.String() == o.Selector.String() && slices.Equal(b.Subjects, o.Subjects)
}
