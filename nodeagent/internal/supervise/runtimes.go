package supervise

import (
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// offered is a runtime to start something with. Unavailable, with the reason, when the
// node does not offer it.
func (k *Kit) offered(name fleet.RuntimeName) (runtime.Runtime, error) {
	if rt, ok := k.Runtimes[name]; ok {
		return rt, nil
	}
	for _, r := range k.Node().Runtimes {
		if r.Name == name && r.Why != "" {
			return nil, errs.New(errs.Unavailable, "the node does not offer the runtime %s: %s", name, r.Why)
		}
	}
	return nil, errs.New(errs.Unavailable, "the node does not offer the runtime %s", name)
}

// adopting is the runtime to adopt with what was started by one of that name. Where
// the node offers it no more it is the plain one: that can tell, signal and kill what
// it cannot type to.
func (k *Kit) adopting(name fleet.RuntimeName) runtime.Runtime {
	if rt, ok := k.Runtimes[name]; ok {
		return rt
	}
	return k.Runtimes[fleet.RuntimeProcess]
}
