package operate

import (
	"context"
	"fmt"
	"reflect"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// keptConfigs is how many versions of the cluster's settings are kept.
const keptConfigs = 100

// StaleConfigError says that a version was made from another one than the active one.
type StaleConfigError struct{ Parent, Active int64 }

// Error says what to do.
func (e *StaleConfigError) Error() string {
	return fmt.Sprintf("the active version is %d, not %d: read it again, and change that", e.Active, e.Parent)
}

// ConfigWrite asks for another version of the cluster's settings.
type ConfigWrite struct {
	// Parent is the version the change was made from, which must be the active one; nil
	// changes whichever is.
	Parent *int64
	// IfMatch is the revision the active version must be at; 0 accepts any.
	IfMatch int64
	// Change gives the new version's patch of the active one's.
	Change func(active fleet.ClusterSettings) (fleet.ClusterSettings, error)
	// Bearable refuses what the caller must not bring about.
	Bearable func(fleet.ClusterSettings) error
	// Reason is why, for who reads the versions.
	Reason string
	// DryRun decides everything and writes nothing.
	DryRun bool
}

// ConfigWritten is what came of a write or a rollback.
type ConfigWritten struct {
	// Before and After are what is active; both have the revision they were written at, but for
	// an After of a dry run.
	Before, After fleet.ConfigActive
	// Changed is false when everything was so already: no version was made.
	Changed bool
}

// WriteConfig makes a version of the cluster's settings, and the active one of it: every
// gateway follows at once. StaleConfigError when the parent is not the active version,
// MovedError when IfMatch does not hold; otherwise errors of Change and Bearable.
func (o *Operations) WriteConfig(ctx context.Context, by Actor, w ConfigWrite) (out ConfigWritten, err error) {
	if err := fleet.ValidateReason(w.Reason); err != nil {
		return out, err
	}
	rev, err := o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		active := s.Config()
		out = ConfigWritten{Before: active, After: active}
		if w.Parent != nil && *w.Parent != active.Version {
			return change{}, &StaleConfigError{*w.Parent, active.Version}
		}
		if err := unmoved("the cluster's settings", w.IfMatch, active.ModRev); err != nil {
			return change{}, err
		}
		patch, err := w.Change(active.Patch)
		if err == nil {
			err = w.Bearable(patch)
		}
		if err != nil {
			return change{}, err
		}
		if reflect.DeepEqual(active.Patch, patch) {
			return change{}, nil
		}
		var c change
		out.After, c = o.newConfig(s, active, patch, by, w.Reason)
		if out.Changed = true; w.DryRun {
			return change{}, nil
		}
		return c, nil
	})
	out.writtenAt(rev, w.DryRun)
	return out, err
}

// newConfig is a version with a patch as the active one, and what is written for it.
func (o *Operations) newConfig(s *view.Snapshot, active fleet.ConfigActive, patch fleet.ClusterSettings, by Actor, reason string) (fleet.ConfigActive, change) {
	next := fleet.ConfigVersion{Version: lastConfig(s) + 1, Parent: active.Version, Patch: patch, Reason: reason, By: by.User, At: o.now()}
	after := fleet.ConfigActive{Version: next.Version, Before: active.Version, Patch: patch, Action: fleet.ConfigPatched, By: by.User, At: next.At}
	c := configChange(active, after, "config.update", reason)
	c.writes = append(c.writes, store.Create(store.ConfigVersionKey(next.Version), next))
	if old := oldestConfig(s); old != nil {
		c.writes = append(c.writes, store.Remove(store.ConfigVersionKey(old.Version), old.ModRev))
	}
	return after, c
}

// writtenAt notes the revision of the commit, if there was one.
func (w *ConfigWritten) writtenAt(rev int64, dryRun bool) {
	if w.Changed && !dryRun {
		w.After.ModRev = rev
	}
}

// RollbackConfig makes an earlier version the active one; 0 is what the gateways' own
// settings say. NotFound when there is no such version any more; otherwise errors of bearable.
func (o *Operations) RollbackConfig(ctx context.Context, by Actor, version int64, reason string, bearable func(fleet.ClusterSettings) error, dryRun bool) (out ConfigWritten, err error) {
	if err := fleet.ValidateReason(reason); err != nil {
		return out, err
	}
	rev, err := o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		active := s.Config()
		out = ConfigWritten{Before: active, After: active}
		target, ok := ConfigVersion(s, version)
		if !ok {
			return change{}, errs.New(errs.NotFound, "there is no version %d of the settings", version)
		}
		if err := bearable(target.Patch); err != nil {
			return change{}, err
		}
		if active.Version == version {
			return change{}, nil
		}
		out.Changed, out.After = true, fleet.ConfigActive{
			Version: version, Before: active.Version, Patch: target.Patch, Action: fleet.ConfigRolledBack, By: by.User, At: o.now(),
		}
		if dryRun {
			return change{}, nil
		}
		c := configChange(active, out.After, "config.rollback", reason)
		if target.ModRev != 0 { // and it is still there
			c.guards = []store.Guard{store.Unchanged(store.ConfigVersionKey(version), target.ModRev)}
		}
		return c, nil
	})
	out.writtenAt(rev, dryRun)
	return out, err
}

// configChange makes another version the active one.
func configChange(before, after fleet.ConfigActive, action, reason string) change {
	return change{
		writes: []store.Write{store.Replace(store.ConfigActiveKey(), after, before.ModRev)},
		audit:  entry{action: action, resource: "config", id: fmt.Sprint(after.Version), details: reason, before: before.Patch, after: after.Patch},
	}
}

// ConfigVersion is a version of the cluster's settings; that of 0, which sets nothing, there
// always is.
func ConfigVersion(s *view.Snapshot, version int64) (fleet.ConfigVersion, bool) {
	for _, v := range s.ConfigVersions.All() {
		if v.Version == version {
			return *v, true
		}
	}
	return fleet.ConfigVersion{}, version == 0
}

// lastConfig is the highest version there was; 0 for none.
func lastConfig(s *view.Snapshot) (last int64) {
	for _, v := range s.ConfigVersions.All() {
		last = max(last, v.Version)
	}
	return last
}

// oldestConfig is the version that gives way to another one, nil while there is room. The
// active one never does.
func oldestConfig(s *view.Snapshot) *fleet.ConfigVersion {
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
