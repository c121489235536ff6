package scheduleops

import (
	"context"
	"fmt"
	"slices"

	"github.com/orreryhq/orrery/apigateway/internal/ops/scheduleops/timetable"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/cron"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// OverlayWrite creates, replaces or changes an overlay.
type OverlayWrite struct {
	Name string
	// Update refuses to create an overlay.
	Update bool
	// Make returns the desired overlay. old is the present one, nil when the write creates it. The write
	// sets Name, By and At.
	Make func(old *schedule.Overlay) (schedule.Overlay, error)
	// IfMatch is the required revision, Present or Absent; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
}

// OverlayWritten is the result of an OverlayWrite.
type OverlayWritten struct {
	// Before is nil when the overlay was created.
	Before *schedule.Overlay
	// After is the overlay as written, or as a dry run would write it.
	After schedule.Overlay
}

// WriteOverlay creates, replaces or changes an overlay. If its window is open, it is active soon after.
// Invalid names every wrong field, MovedError when IfMatch does not match, NotFound when Update does not
// hold, Exhausted when there are too many. It writes nothing when nothing changes.
func (o *Schedules) WriteOverlay(ctx context.Context, by txn.Actor, w OverlayWrite) (out OverlayWritten, err error) {
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		old, err := w.replaced(s)
		if err != nil {
			return txn.Change{}, err
		}
		next, err := w.Make(old)
		if err != nil {
			return txn.Change{}, err
		}
		next.Name, next.Rev = w.Name, record.Rev{}
		next.By, next.At = by.User, o.Now()
		if err := txn.JoinProblems(overlayProblems(next)); err != nil {
			return txn.Change{}, err
		}
		out = OverlayWritten{Before: old, After: next}
		var present schedule.Overlay
		if old != nil {
			present = *old
			if present.Same(next) {
				out.After = present
				return txn.Change{}, nil
			}
		}
		if err := txn.JoinProblems(overlayGroups(s, present, next)); err != nil || w.DryRun {
			return txn.Change{}, err
		}
		c := txn.Change{
			Writes: []store.Write{store.Replace(keys.Overlay(w.Name), next, present.ModRev)},
			Audit:  txn.Entry{Action: "overlay.create", Resource: "overlay", ID: w.Name, Before: OverlayRecord(old), After: OverlayRecord(&next)},
		}
		if old != nil {
			c.Audit.Action = "overlay.update"
		}
		return c, nil
	})
	if err != nil || w.DryRun {
		return out, err
	}
	if s, ok := o.Snapshot().Overlays.Get(w.Name); ok {
		out.After = *s
	}
	return out, nil
}

// replaced returns the overlay that a write replaces, nil if it creates one.
func (w OverlayWrite) replaced(s *view.Snapshot) (*schedule.Overlay, error) {
	old, present := s.Overlays.Get(w.Name)
	if !present && w.Update {
		return nil, noOverlay(w.Name)
	}
	var rev int64
	if present {
		rev = old.ModRev
	}
	if err := txn.CheckRevision("overlay "+txn.Clip(w.Name), w.IfMatch, rev); err != nil {
		return nil, err
	}
	if !present && s.Overlays.Len() >= schedule.MaxOverlays {
		return nil, errs.New(errs.Exhausted, "there are %d overlays, the most there may be: delete one", schedule.MaxOverlays)
	}
	return old, nil
}

func noOverlay(name string) error {
	return errs.New(errs.NotFound, "there is no overlay %s", txn.Clip(name))
}

// overlayProblems returns everything that is wrong with an overlay in itself.
func overlayProblems(o schedule.Overlay) []error {
	problems := o.Validate()
	var err error
	if o.Cron != "" {
		_, err = cron.Parse(o.Cron, o.Timezone)
	} else {
		_, err = cron.Zone(o.Timezone)
	}
	if err != nil {
		problems = append(problems, err)
	}
	return problems
}

// overlayGroups returns the problems of the groups that an overlay names: unknown ones that it did not
// name before, and a minimum above the group's maximum.
func overlayGroups(s *view.Snapshot, old, next schedule.Overlay) (problems []error) {
	for n, name := range next.Groups {
		if slices.Contains(old.Groups, name) {
			continue
		}
		if err := txn.GroupExists(s, fmt.Sprintf("groups[%d]", n), name); err != nil {
			problems = append(problems, err)
		}
	}
	for name, g := range s.Groups.All() {
		c, limit := next.Changes, g.Spec.Scaling.Max
		if c.Min != nil && c.Max == nil && limit > 0 && *c.Min > limit && !g.Deleting && schedule.Chooses(next.Groups, next.Selector, g) {
			problems = append(problems, errs.Field("overlay.minInstances", "is %d, above maxInstances of group %s, which is %d: set overlay.maxInstances too", *c.Min, name, limit))
			break
		}
	}
	return problems
}

// OverlayRecord is what the audit keeps of an overlay.
func OverlayRecord(o *schedule.Overlay) any {
	if o == nil {
		return nil
	}
	out := txn.ToMap(o)
	for _, field := range []string{"name", "by", "at"} {
		delete(out, field)
	}
	return out
}

// DeleteOverlay removes an overlay. Its changes end soon after. NotFound when it does not exist,
// MovedError when ifMatch is not 0 and not its revision. With dryRun it only checks.
func (o *Schedules) DeleteOverlay(ctx context.Context, by txn.Actor, name string, ifMatch int64, dryRun bool) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		old, ok := s.Overlays.Get(name)
		if !ok {
			return txn.Change{}, noOverlay(name)
		}
		if err := txn.CheckRevision("overlay "+name, ifMatch, old.ModRev); err != nil || dryRun {
			return txn.Change{}, err
		}
		c := txn.Change{
			Writes: []store.Write{store.Remove(keys.Overlay(name), old.ModRev)},
			Audit:  txn.Entry{Action: "overlay.delete", Resource: "overlay", ID: name, Before: OverlayRecord(old)},
		}
		c.DropApplied(s, applied.Overlay, name)
		return c, nil
	})
	return err
}

// GroupsOf returns the groups that an overlay chooses, in order of name.
func GroupsOf(s *view.Snapshot, o *schedule.Overlay) (out []fleet.GroupName) {
	for name, g := range s.Groups.All() {
		if !g.Deleting && schedule.Chooses(o.Groups, o.Selector, g) {
			out = append(out, name)
		}
	}
	return out
}

// TimesOf returns the due times of an overlay with a cron expression.
func TimesOf(o *schedule.Overlay) timetable.Times {
	times, _ := cron.Parse(o.Cron, o.Timezone) // on an error, which Validate excludes, it is never due
	return times
}
