package operate

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Mode is what a write of a group may do.
type Mode uint8

// The modes.
const (
	// Create refuses a name that is taken.
	Create Mode = iota
	// Update refuses a name that is not there.
	Update
	// Put creates or replaces.
	Put
)

// GroupWrite asks for a group to be as Make says.
type GroupWrite struct {
	Name fleet.GroupName
	Mode Mode
	// IfMatch is the revision the group must be at; 0 accepts any. Present and
	// Absent are revisions too.
	IfMatch int64
	// DryRun decides everything and writes nothing.
	DryRun bool
	// ManagedBy is the source that declares the group; "" leaves it as it is. Guards are
	// what has to hold beside the group.
	ManagedBy string
	Guards    []store.Guard
	// Written is the path under which whoever asks wrote a field; nil: under its own.
	Written func(field string) string
	// FreeValues lets values be given that no template defines also where they define others.
	FreeValues bool
	// CommandOptional lets a spec have neither a command nor a jarFile: starts of its
	// instances fail then.
	CommandOptional bool
	// Shown is what who asks is shown of values that not everybody is; others stay what they are.
	Shown fleet.Visibility
	// Make computes the wanted spec from the present one, as it is shown to who asks; nil
	// when there is none. It may be called more than once and must not change what it is given. A password
	// or value that is hidden in it stays what it is.
	Make func(old *fleet.GroupSpec) (fleet.GroupSpec, error)
}

// GroupWritten is what came of a GroupWrite.
type GroupWritten struct {
	// Before is nil when the group was created.
	Before *fleet.Group
	// After is the group as written, of a dry run as it would be.
	After fleet.Group
	// Rev is the commit's revision, of an unchanged group the snapshot's.
	Rev int64
}

// WriteGroup creates or changes a group. AlreadyExists and NotFound as the mode
// says; Conflict while the group is being deleted; Invalid names every field at
// fault. A spec that changes nothing writes nothing. MovedError when IfMatch does not hold.
func (o *Operations) WriteGroup(ctx context.Context, by Actor, w GroupWrite) (GroupWritten, error) {
	if err := w.Name.Validate(); err != nil {
		return GroupWritten{}, err
	}
	var out GroupWritten
	rev, err := o.mutateGroup(ctx, by, w.Name, func(s *view.Snapshot) (change, error) {
		old, err := w.target(s)
		if err != nil {
			return change{}, err
		}
		out.Before = old
		var demands []store.Guard
		if out.After, demands, err = o.wanted(ctx, s, w, old); err != nil {
			return change{}, err
		}
		if w.DryRun || old != nil && out.After.Revision == old.Revision && out.After.ManagedBy == old.ManagedBy && maps.Equal(out.After.Hidden, old.Hidden) {
			return change{}, nil
		}
		c := groupChange(s, w.Name, old, out.After)
		c.guards = slices.Concat(c.guards, w.Guards, demands)
		return c, nil
	})
	if err != nil {
		return GroupWritten{}, err
	}
	out.Rev = rev
	if !w.DryRun {
		if g, ok := o.Snapshot().Groups.Get(w.Name); ok {
			out.After = *g
		}
	}
	return out, nil
}

// target is the group a write is about, nil when it is to be created.
func (w GroupWrite) target(s *view.Snapshot) (*fleet.Group, error) {
	old, ok := s.Groups.Get(w.Name)
	switch {
	case ok && old.Deleting && w.Mode == Update:
		return nil, noGroup(w.Name)
	case ok && old.Deleting:
		return nil, errs.New(errs.Conflict, "group %s is being deleted: wait until its instances have stopped", w.Name)
	case ok && w.Mode == Create:
		return nil, errs.New(errs.AlreadyExists, "a group named %s exists", w.Name)
	case !ok && w.Mode == Update:
		return nil, noGroup(w.Name)
	case !ok:
		return nil, unmoved("group "+string(w.Name), w.IfMatch, 0)
	}
	return old, unmoved("group "+string(w.Name), w.IfMatch, old.ModRev)
}

// shownSpec is a group's spec with Hidden for the values that who is shown most is not
// shown; nil where there is no group.
func shownSpec(s *view.Snapshot, g *fleet.Group, most fleet.Visibility) *fleet.GroupSpec {
	if g == nil {
		return nil
	}
	spec := g.Spec
	spec.Variables = fleet.MaskValues(spec.Variables, g.Conceal(s.Definers().Of(g.Name, s.Whole(g).Spec)), most)
	return &spec
}

// wanted is the valid group a write asks for, with the old revision when nothing changes,
// and what has to hold of the secrets and sources it refers to.
func (o *Operations) wanted(ctx context.Context, s *view.Snapshot, w GroupWrite, old *fleet.Group) (fleet.Group, []store.Guard, error) {
	var present *fleet.GroupSpec
	if old != nil {
		present = &old.Spec
	}
	spec, err := w.Make(shownSpec(s, old, w.Shown))
	if err != nil {
		return fleet.Group{}, nil, err
	}
	if present != nil && spec.RCON.Password == fleet.Hidden {
		spec.RCON.Password = present.RCON.Password
	}
	values, problems, err := o.settle(ctx, s, w, old, spec)
	if err != nil {
		return fleet.Group{}, nil, err
	}
	spec.Variables = values.values
	storages, sources, err := o.storages(ctx, s, present, spec)
	if err != nil {
		return fleet.Group{}, nil, err
	}
	if err := joined(asWritten(w.Written, slices.Concat(wrong(present, spec), references(s, w.Name, present, spec), storages, w.startable(present, spec), problems))); err != nil {
		return fleet.Group{}, nil, err
	}
	now := o.now()
	g := fleet.Group{Name: w.Name, Revision: 1, CreatedAt: now, UpdatedAt: now, Spec: spec}
	if old != nil {
		g = *old
		if !same(old.Spec, spec) {
			g.Revision, g.UpdatedAt, g.Spec = old.Revision+1, now, spec
		}
	}
	if w.ManagedBy != "" {
		g.ManagedBy = w.ManagedBy
	}
	g.Hidden = values.hidden
	return g, slices.Concat(values.guards, sources), nil
}

// startable refuses a spec that has nothing to run, unless there was nothing before.
func (w GroupWrite) startable(present *fleet.GroupSpec, spec fleet.GroupSpec) []error {
	idle := func(s fleet.GroupSpec) bool { return s.Command == "" && s.Software.JarFile == "" }
	if w.CommandOptional || !idle(spec) || present != nil && idle(*present) {
		return nil
	}
	return []error{errs.Field("command", "must be given when there is no jarFile: it is the line that starts the server")}
}

// wrong is what is wrong with a spec; of what it leaves as it is nothing is, since what an
// older version took must not block changes of other things.
func wrong(present *fleet.GroupSpec, spec fleet.GroupSpec) []error {
	if present == nil {
		return spec.Validate()
	}
	return spec.ValidateChange(*present)
}

// same compares specs as they are stored: nil and empty lists are one.
func same(a, b fleet.GroupSpec) bool {
	return reflect.DeepEqual(normal(a), normal(b))
}

// groupChange writes a group, demanding that those it refers to stay as they are.
func groupChange(s *view.Snapshot, name fleet.GroupName, old *fleet.Group, g fleet.Group) change {
	c := change{audit: entry{action: "group.update", resource: "group", id: string(name), details: fmt.Sprintf("revision %d", g.Revision)}}
	c.audit.before, c.audit.after = groupRecords(s, old, &g)
	var rev int64
	if old == nil {
		c.audit.action = "group.create"
	} else {
		rev = old.ModRev
	}
	c.writes = []store.Write{store.Replace(store.GroupKey(name), g, rev)}
	var before []fleet.GroupName
	var present *fleet.GroupSpec
	if old != nil {
		before, present = referred(old.Spec), &old.Spec
	}
	refs := referred(g.Spec)
	if namesStorage(present, g.Spec) || slices.ContainsFunc(refs, func(ref fleet.GroupName) bool { return !slices.Contains(before, ref) }) {
		c.writes = append(c.writes, store.Touch(store.MentionMarkKey(), fleet.MentionMark{}))
	}
	for _, ref := range refs {
		if other, ok := s.Groups.Get(ref); ok && len(c.guards) < maxGuards {
			c.guards = append(c.guards, store.Unchanged(store.GroupKey(ref), other.ModRev))
		}
	}
	return c
}

// maxGuards bounds the comparisons on groups referred to; etcd takes 128 in all.
const maxGuards = 64

// DeleteGroup marks a group for removal: the enforcer stops its instances and then
// removes it. NotFound when there is none, Invalid when others refer to it, with
// nothing stopped; Conflict when one of guards does not hold. With dryRun only the
// checks are made.
func (o *Operations) DeleteGroup(ctx context.Context, by Actor, name fleet.GroupName, ifMatch int64, dryRun bool, guards ...store.Guard) (int64, error) {
	return o.mutateGroup(ctx, by, name, func(s *view.Snapshot) (change, error) {
		g, err := o.group(s, name)
		if err != nil {
			return change{}, err
		}
		if err := unmoved("group "+string(name), ifMatch, g.ModRev); err != nil {
			return change{}, err
		}
		if err := unreferenced(s, name); err != nil || dryRun {
			return change{}, err
		}
		marked := *g
		marked.Deleting, marked.UpdatedAt = true, o.now()
		before, _ := groupRecords(s, g, nil)
		return change{
			guards: append(slices.Clone(guards), stillUnreferenced(s)),
			writes: []store.Write{store.Replace(store.GroupKey(name), marked, g.ModRev)},
			audit:  entry{action: "group.delete", resource: "group", id: string(name), before: before},
		}, nil
	})
}

// Scale sets a group's minimum, and its maximum when n is above it, so that n
// instances run; also those started by hand are trimmed. Conflict for a MANUAL
// group, which nobody scales; Invalid names targetInstances.
func (o *Operations) Scale(ctx context.Context, by Actor, name fleet.GroupName, n int, dryRun bool) (GroupWritten, error) {
	var out GroupWritten
	rev, err := o.mutateGroup(ctx, by, name, func(s *view.Snapshot) (change, error) {
		g, err := o.group(s, name)
		if err != nil {
			return change{}, err
		}
		if g.Spec.Scaling.Mode == fleet.ScalingManual {
			return change{}, errs.New(errs.Conflict, "group %s is MANUAL: start and stop its instances one by one, or set scalingMode", name)
		}
		next := *g
		next.Spec.Scaling.Min = n
		if limit := next.Spec.Scaling.Max; limit != 0 && n > limit {
			next.Spec.Scaling.Max = n
		}
		if len(next.Spec.ValidateChange(g.Spec)) > 0 {
			return change{}, errs.Field("targetInstances", "must be between 0 and 100000, is %d", n)
		}
		now := o.now()
		if !same(g.Spec, next.Spec) {
			next.Revision, next.UpdatedAt = g.Revision+1, now
		}
		next.ScaledAt = now
		out.Before, out.After = g, next
		if dryRun {
			return change{}, nil
		}
		c := change{
			writes: []store.Write{store.Replace(store.GroupKey(name), next, g.ModRev)},
			audit:  entry{action: "group.scale", resource: "group", id: string(name), details: fmt.Sprintf("to %d", n)},
		}
		c.audit.before, c.audit.after = groupRecords(s, g, &next)
		return c, nil
	})
	out.Rev = rev
	if g, ok := o.Snapshot().Groups.Get(name); ok && err == nil && !dryRun {
		out.After = *g
	}
	return out, err
}

// group is a group that exists and is not being deleted.
func (o *Operations) group(s *view.Snapshot, name fleet.GroupName) (*fleet.Group, error) {
	g, ok := s.Groups.Get(name)
	if !ok || g.Deleting {
		return nil, noGroup(name)
	}
	return g, nil
}

func noGroup(name fleet.GroupName) error {
	return errs.New(errs.NotFound, "there is no group %s", clip(string(name)))
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
