package auth

import (
	"sync"

	"github.com/orreryhq/orrery/libs/fleet"
)

// maxOwners bounds the tokens whose instances are remembered; past it they are learnt anew.
const maxOwners = 50_000

// owners remembers whose own token is whose, by hash, so that not every call has to
// look through all instances. What it says is a hint and proven at each use.
type owners struct {
	mu sync.Mutex
	by map[string]fleet.InstanceID
}

func (o *owners) get(hash string) (fleet.InstanceID, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id, ok := o.by[hash]
	return id, ok
}

func (o *owners) put(hash string, id fleet.InstanceID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil || len(o.by) >= maxOwners {
		o.by = map[string]fleet.InstanceID{}
	}
	o.by[hash] = id
}

// InstanceOf is the instance whose own token an Authorization header carries; nil when
// it carries none that is good now.
func (s *Service) InstanceOf(header string) *fleet.Instance {
	token, ok := bearer(header)
	if !ok {
		return nil
	}
	hash, all := hashToken(token), s.cfg.View.Snapshot().Instances
	if id, ok := s.owners.get(hash); ok {
		if i, ok := all.Get(id); ok && owns(hash, i) {
			return i
		}
		return nil // a token never becomes another's
	}
	for _, i := range all.All() {
		if owns(hash, i) {
			s.owners.put(hash, i.Intent.ID)
			return i
		}
	}
	return nil
}
