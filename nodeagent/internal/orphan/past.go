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
	// GivenUp reports whether what began under a past was given up with the node, which an
	// operator deleted.
	GivenUp(name string) bool
}

// rewinds notices that etcd was restored from a backup, or may have been. It follows the
// node's own record for as long as the agent lives. A restored etcd goes back in time, or,
// when it was restored with a higher revision, has no history that the watch could resume
// from. The second also happens after an absence that outlasts the history, and then costs
// no more than some reads, and that what runs is not stopped for want of a record.
type rewinds struct {
	lost func()
	// listed is true when a list continues from what was seen before.
	listed bool
}

var _ store.Rewinder = (*rewinds)(nil)

// Reset takes a list: every one but the first may be of a past that has lost something.
func (r *rewinds) Reset([]store.KeyValue, int64) {
	if r.listed {
		r.lost()
	}
	r.listed = true
}

// Apply takes changes, which say nothing about the past.
func (*rewinds) Apply([]store.Change, int64) {}

// Rewound takes that etcd went back in time.
func (r *rewinds) Rewound() {
	r.lost()
	r.listed = false
}

func (k *Keeper) followRewinds(ctx context.Context) {
	_ = k.cfg.Store.Follow(ctx, store.NodeKey(k.cfg.Node().ID).String(), &rewinds{lost: func() {
		k.cfg.Past.Rewound()
		k.cfg.Instances.ReportAgain()
	}})
}

// remembered reports whether the store, if it lost nothing, must have known of a run:
// the run began under the present past, or was given up.
func (k *Keeper) remembered(id fleet.InstanceID) bool {
	name := k.began(id)
	return name != "" && (name == k.cfg.Past.Name() || k.cfg.Past.GivenUp(name))
}

// givenUp reports whether a run was given up with the node.
func (k *Keeper) givenUp(id fleet.InstanceID) bool {
	name := k.began(id)
	return name != "" && k.cfg.Past.GivenUp(name)
}

// began is the past that a run began under, empty when that is not known.
func (k *Keeper) began(id fleet.InstanceID) string {
	b, err := os.ReadFile(filepath.Join(k.cfg.RunDir(id), journal.PastFile))
	if err != nil {
		return ""
	}
	return string(b)
}
