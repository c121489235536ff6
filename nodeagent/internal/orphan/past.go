package orphan

import (
	"context"
	"os"
	"path/filepath"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/internal/journal"
)

// Past is which history of the store the node has been part of; see journal.Past.
type Past interface {
	Name() string
	Rewound()
}

// rewinds tells the past of an etcd that went back in time. It follows the node's own
// record, for as long as the agent lives: those who follow placements begin anew with
// each session, and an etcd that goes back in time ends the session.
type rewinds struct{ past Past }

var _ store.Rewinder = rewinds{}

func (rewinds) Reset([]store.KeyValue, int64) {}
func (rewinds) Apply([]store.Change, int64)   {}
func (r rewinds) Rewound()                    { r.past.Rewound() }

func (k *Keeper) followRewinds(ctx context.Context) {
	_ = k.cfg.Store.Follow(ctx, store.NodeKey(k.cfg.Node().ID).String(), rewinds{k.cfg.Past})
}

// remembered reports whether the store, if it lost nothing, must have known of a run:
// the run began under the present past.
func (k *Keeper) remembered(id fleet.InstanceID) bool {
	b, err := os.ReadFile(filepath.Join(k.cfg.RunDir(id), journal.PastFile))
	return err == nil && string(b) == k.cfg.Past.Name()
}
