package txn

import (
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// DropApplied adds the removal of the document that was applied for an object to the object's deletion.
func (c *Change) DropApplied(s *view.Snapshot, kind applied.Kind, name string) {
	if m, ok := s.Applied.Get(string(kind) + "/" + name); ok {
		c.Writes = append(c.Writes, store.Remove(keys.Applied(kind, name), m.ModRev))
		return
	}
	c.Guards = append(c.Guards, store.Missing(keys.Applied(kind, name)))
}
