package universe

import (
	"encoding/json"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/encoded"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// keptLists is how much lists of instances are kept of one edition, in bytes.
const keptLists = 64 << 20

// shownInstances are instances as they are sent. Whoever may see instances is shown the same.
type shownInstances struct {
	one *encoded.Objects[fleet.InstanceID, encoded.Instance, []byte]
	// lists are by whether they have all instances.
	lists *encoded.Memo[listedFrom, bool, *encoded.Body]
}

// listedFrom is what a list is made of: the instances, and the second it is, by which some
// are left out.
type listedFrom struct {
	version, second int64
}

func newShownInstances() *shownInstances {
	return &shownInstances{
		one:   encoded.NewObjects[fleet.InstanceID, encoded.Instance, []byte](),
		lists: encoded.NewMemo[listedFrom, bool](keptLists, (*encoded.Body).Size),
	}
}

// list is the body of the list of instances, of all or without those that ended a while ago.
func (h *shownInstances) list(s *view.Snapshot, all bool, now time.Time) *encoded.Body {
	return h.lists.Get(listedFrom{encoded.InstancesOf(s), now.Unix()}, all, func() *encoded.Body {
		out := []byte("[")
		for _, i := range s.Instances.All() {
			if !all && Hidden(i, now) {
				continue
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, h.of(s, i)...)
		}
		return encoded.NewBody(append(out, ']'))
	})
}

// of is an instance as a snapshot has it, encoded.
func (h *shownInstances) of(s *view.Snapshot, i *fleet.Instance) []byte {
	return h.one.Get(i.Intent.ID, encoded.InstanceOf(s, i), func() []byte {
		body, err := json.Marshal(InstanceOf(s, i))
		if err != nil { // strings and numbers only
			return []byte("null")
		}
		return body
	})
}
