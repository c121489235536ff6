package orphan

import (
	"context"
	"os"
	"path/filepath"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
)

// rewinds detects that etcd was restored from a backup, or may have been. It watches the node's
// own record as long as the agent runs. A restored etcd goes back in time or, if it was restored
// with a higher revision, lacks the history from which the watch could resume. The latter also
// happens after a long disconnection. Then it costs some reads, and orphans are not stopped.
type rewinds struct {
	lost func()
	// listed is true if a list follows an earlier one.
	listed bool
}

var _ store.Rewinder = (*rewinds)(nil)

// Reset handles a list. Every list but the first may be of a store that has lost data.
func (r *rewinds) Reset([]store.KeyValue, int64) {
	if r.listed {
		r.lost()
	}
	r.listed = true
}

// Apply ignores changes.
func (*rewinds) Apply([]store.Change, int64) {}

// Rewound handles that etcd went back in time.
func (r *rewinds) Rewound() {
	r.lost()
	r.listed = false
}

func (k *Keeper) followRewinds(ctx context.Context) {
	_ = k.cfg.Store.Follow(ctx, keys.Node(k.cfg.Node().ID).String(), &rewinds{lost: func() {
		k.cfg.History.Rewound()
		k.cfg.Instances.ReportAgain()
	}})
}

// inHistory reports whether the store, if it has lost nothing, must know the run: it began
// under the current history, or was abandoned.
func (k *Keeper) inHistory(id fleet.InstanceID) bool {
	name := k.historyOf(id)
	return name != "" && (name == k.cfg.History.Name() || k.cfg.History.Abandoned(name))
}

// abandoned reports whether a run was abandoned with the node.
func (k *Keeper) abandoned(id fleet.InstanceID) bool {
	name := k.historyOf(id)
	return name != "" && k.cfg.History.Abandoned(name)
}

// historyOf is the name of the history that a run began under; empty if unknown.
func (k *Keeper) historyOf(id fleet.InstanceID) string {
	b, err := os.ReadFile(filepath.Join(k.cfg.RunDir(id), journal.HistoryFile))
	if err != nil {
		return ""
	}
	return string(b)
}
