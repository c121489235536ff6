// Package clusterops changes what belongs to the whole cluster: settings, quotas, networks and
// secrets.
package clusterops

import (
	"context"
	"fmt"
	"reflect"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Cluster changes what belongs to the whole cluster: settings, quotas, networks and secrets. It is safe for concurrent use.
type Cluster struct {
	*txn.Committer
	ring *seal.Ring
}

// New returns the operations on the whole cluster.
func New(c *txn.Committer, ring *seal.Ring) *Cluster {
	return &Cluster{Committer: c, ring: ring}
}

// keptConfigs is how many versions of the cluster's settings are kept.
const keptConfigs = 100

// StaleConfigError says that a version was made from another one than the active one.
type StaleConfigError struct{ Parent, Active int64 }

// Error says what to do.
func (e *StaleConfigError) Error() string {
	return fmt.Sprintf("the active version is %d, not %d: read it again, and change that", e.Active, e.Parent)
}

// ConfigWrite makes a new version of the cluster's settings.
type ConfigWrite struct {
	// Parent is the version that the change is based on. It must be the active one. Nil accepts any.
	Parent *int64
	// IfMatch is the revision the active version must be at; 0 accepts any.
	IfMatch int64
	// Change returns the new patch for the active one.
	Change func(active cluster.ClusterSettings) (cluster.ClusterSettings, error)
	// Bearable returns an error if the caller must not activate the settings.
	Bearable func(cluster.ClusterSettings) error
	// Reason is shown in the list of versions.
	Reason string
	// DryRun computes the result and writes nothing.
	DryRun bool
}

// ConfigWritten is the result of a write or a rollback.
type ConfigWritten struct {
	// Before and After are the active settings. They have their revision, except After of a dry run.
	Before, After cluster.ConfigActive
	// Changed is false if the settings were the same and no new version exists.
	Changed bool
}

// WriteConfig makes a version of the cluster's settings and activates it on all gateways.
// StaleConfigError when the parent is not the active version, MovedError when IfMatch does not
// match; other errors are those of Change and Bearable.
func (o *Cluster) WriteConfig(ctx context.Context, by txn.Actor, w ConfigWrite) (out ConfigWritten, err error) {
	if err := cluster.ValidateReason(w.Reason); err != nil {
		return out, err
	}
	rev, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		active := s.Config()
		out = ConfigWritten{Before: active, After: active}
		if w.Parent != nil && *w.Parent != active.Version {
			return txn.Change{}, &StaleConfigError{*w.Parent, active.Version}
		}
		if err := txn.CheckRevision("the cluster's settings", w.IfMatch, active.ModRev); err != nil {
			return txn.Change{}, err
		}
		patch, err := w.Change(active.Patch)
		if err == nil {
			err = w.Bearable(patch)
		}
		if err != nil {
			return txn.Change{}, err
		}
		if reflect.DeepEqual(active.Patch, patch) {
			return txn.Change{}, nil
		}
		var c txn.Change
		out.After, c = o.newConfig(s, active, patch, by, w.Reason)
		if out.Changed = true; w.DryRun {
			return txn.Change{}, nil
		}
		return c, nil
	})
	out.writtenAt(rev, w.DryRun)
	return out, err
}

// newConfig returns a version with the patch as the active one, and the change that writes it.
func (o *Cluster) newConfig(s *view.Snapshot, active cluster.ConfigActive, patch cluster.ClusterSettings, by txn.Actor, reason string) (cluster.ConfigActive, txn.Change) {
	next := cluster.ConfigVersion{Version: lastConfig(s) + 1, Parent: active.Version, Patch: patch, Reason: reason, By: by.User, At: o.Now()}
	after := cluster.ConfigActive{Version: next.Version, Before: active.Version, Patch: patch, Action: cluster.ConfigPatched, By: by.User, At: next.At}
	c := configChange(active, after, "config.update", reason)
	c.Writes = append(c.Writes, store.Create(keys.ConfigVersion(next.Version), next))
	if old := oldestConfig(s); old != nil {
		c.Writes = append(c.Writes, store.Remove(keys.ConfigVersion(old.Version), old.ModRev))
	}
	return after, c
}

// writtenAt sets the revision of the commit, if there was one.
func (w *ConfigWritten) writtenAt(rev int64, dryRun bool) {
	if w.Changed && !dryRun {
		w.After.ModRev = rev
	}
}

// RollbackConfig activates an earlier version. Version 0 means the gateways' own settings. NotFound
// when the version is not kept any more; other errors are those of bearable.
func (o *Cluster) RollbackConfig(ctx context.Context, by txn.Actor, version int64, reason string, bearable func(cluster.ClusterSettings) error, dryRun bool) (out ConfigWritten, err error) {
	if err := cluster.ValidateReason(reason); err != nil {
		return out, err
	}
	rev, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		active := s.Config()
		out = ConfigWritten{Before: active, After: active}
		target, ok := ConfigVersion(s, version)
		if !ok {
			return txn.Change{}, errs.New(errs.NotFound, "there is no version %d of the settings", version)
		}
		if err := bearable(target.Patch); err != nil {
			return txn.Change{}, err
		}
		if active.Version == version {
			return txn.Change{}, nil
		}
		out.Changed, out.After = true, cluster.ConfigActive{
			Version: version, Before: active.Version, Patch: target.Patch, Action: cluster.ConfigRolledBack, By: by.User, At: o.Now(),
		}
		if dryRun {
			return txn.Change{}, nil
		}
		c := configChange(active, out.After, "config.rollback", reason)
		if target.ModRev != 0 { // guard that the version still exists
			c.Guards = []store.Guard{store.Unchanged(keys.ConfigVersion(version), target.ModRev)}
		}
		return c, nil
	})
	out.writtenAt(rev, dryRun)
	return out, err
}

// configChange returns the change that activates another version.
func configChange(before, after cluster.ConfigActive, action, reason string) txn.Change {
	return txn.Change{
		Writes: []store.Write{store.Replace(keys.ConfigActive(), after, before.ModRev)},
		Audit:  txn.Entry{Action: action, Resource: "config", ID: fmt.Sprint(after.Version), Details: reason, Before: before.Patch, After: after.Patch},
	}
}

// ConfigVersion returns a version of the cluster's settings. Version 0 sets nothing and always
// exists.
func ConfigVersion(s *view.Snapshot, version int64) (cluster.ConfigVersion, bool) {
	for _, v := range s.ConfigVersions.All() {
		if v.Version == version {
			return *v, true
		}
	}
	return cluster.ConfigVersion{}, version == 0
}

// lastConfig returns the highest version so far, 0 before the first.
func lastConfig(s *view.Snapshot) (last int64) {
	for _, v := range s.ConfigVersions.All() {
		last = max(last, v.Version)
	}
	return last
}

// oldestConfig returns the version to remove for a new one, or nil while there is room. It never
// returns the active one.
func oldestConfig(s *view.Snapshot) *cluster.ConfigVersion {
	if s.ConfigVersions.Len() < keptConfigs {
		return nil
	}
	active := s.Config().Version
	for _, v := range s.ConfigVersions.All() {
		if v.Version != active {
			return v
		}
	}
	return nil
}
