package universe

import (
	"encoding/json"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/server/bodycache"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// keptLists limits the size of the cached lists of one snapshot version, in bytes.
const keptLists = 64 << 20

// shownInstances caches encoded instances and lists. All callers with access to an instance get the
// same bytes.
type shownInstances struct {
	one   *bodycache.Objects[fleet.InstanceID, bodycache.Instance, bodycache.UptimeObject]
	lists *bodycache.Memo[listedFrom, listedFor, *bodycache.Body]
}

// listedFrom is the version of a list: the revisions of the instances and networks, and the second,
// because a list omits instances that finished some seconds ago.
type listedFrom struct {
	instances, networks, second int64
}

// listedFor is the variant of a list. all includes instances that finished a while ago. A non-empty own
// limits the list to what an instance of that group may see.
type listedFor struct {
	all bool
	own fleet.GroupName
}

func newShownInstances() *shownInstances {
	return &shownInstances{
		one:   bodycache.NewObjects[fleet.InstanceID, bodycache.Instance, bodycache.UptimeObject](),
		lists: bodycache.NewMemo[listedFrom, listedFor](keptLists, (*bodycache.Body).Size),
	}
}

// list returns the encoded list of instances.
func (h *shownInstances) list(s *view.Snapshot, wanted listedFor, now time.Time) *bodycache.Body {
	from := listedFrom{instances: bodycache.InstancesOf(s), networks: s.Version(view.KindNetwork), second: now.Unix()}
	return h.lists.Get(from, wanted, func() *bodycache.Body {
		return bodycache.NewBody(h.encode(s, wanted.all, sightOf(s, wanted.own), now))
	})
}

// encode returns the list of the instances in the groups that a caller sees. It is not cached.
func (h *shownInstances) encode(s *view.Snapshot, all bool, sees func(fleet.GroupName) bool, now time.Time) []byte {
	out := []byte("[")
	for _, i := range s.Instances.All() {
		if !all && Hidden(i, now) || !sees(i.Intent.Group) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = h.of(s, i, now).Append(out, now)
	}
	return append(out, ']')
}

// of returns the encoded instance.
func (h *shownInstances) of(s *view.Snapshot, i *fleet.Instance, now time.Time) bodycache.UptimeObject {
	return h.one.Get(i.Intent.ID, bodycache.InstanceOf(s, i), func() bodycache.UptimeObject {
		out := InstanceOf(s, i, now)
		since, ended := i.Ran()
		if !ended.IsZero() || out.UptimeMs == nil {
			since = time.Time{}
		}
		if !since.IsZero() {
			out.UptimeMs = new(int64)
		}
		body, err := json.Marshal(out)
		if err != nil { // unreachable: only strings and numbers
			return bodycache.NewUptimeObject([]byte("null"), time.Time{})
		}
		return bodycache.NewUptimeObject(body, since)
	})
}
