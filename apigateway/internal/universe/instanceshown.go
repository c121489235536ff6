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
	one   *encoded.Objects[fleet.InstanceID, encoded.Instance, encoded.Ticking]
	lists *encoded.Memo[listedFrom, listedFor, *encoded.Body]
}

// listedFrom is what a list is made of: the instances, the networks, and the second it is,
// by which some are left out.
type listedFrom struct {
	instances, networks, second int64
}

// listedFor is whom a list is for: it has all instances or leaves out those that ended a while
// ago, and has only what an instance of the group own sees, or everything when that is "".
type listedFor struct {
	all bool
	own fleet.GroupName
}

func newShownInstances() *shownInstances {
	return &shownInstances{
		one:   encoded.NewObjects[fleet.InstanceID, encoded.Instance, encoded.Ticking](),
		lists: encoded.NewMemo[listedFrom, listedFor](keptLists, (*encoded.Body).Size),
	}
}

// list is the body of a list of instances.
func (h *shownInstances) list(s *view.Snapshot, wanted listedFor, now time.Time) *encoded.Body {
	from := listedFrom{instances: encoded.InstancesOf(s), networks: s.Version(view.KindNetwork), second: now.Unix()}
	return h.lists.Get(from, wanted, func() *encoded.Body {
		out, sees := []byte("["), sightOf(s, wanted.own)
		for _, i := range s.Instances.All() {
			if !wanted.all && Hidden(i, now) || !sees(i.Intent.Group) {
				continue
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = h.of(s, i, now).Append(out, now)
		}
		return encoded.NewBody(append(out, ']'))
	})
}

// of is an instance as a snapshot has it, encoded.
func (h *shownInstances) of(s *view.Snapshot, i *fleet.Instance, now time.Time) encoded.Ticking {
	return h.one.Get(i.Intent.ID, encoded.InstanceOf(s, i), func() encoded.Ticking {
		out := InstanceOf(s, i, now)
		since, ended := i.Ran()
		if !ended.IsZero() || out.UptimeMs == nil {
			since = time.Time{}
		}
		if !since.IsZero() {
			out.UptimeMs = new(int64)
		}
		body, err := json.Marshal(out)
		if err != nil { // strings and numbers only
			return encoded.NewTicking([]byte("null"), time.Time{})
		}
		return encoded.NewTicking(body, since)
	})
}
