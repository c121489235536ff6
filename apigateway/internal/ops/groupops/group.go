// Package groupops writes, scales and deletes groups, and checks what their specs refer to.
package groupops

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Groups changes groups. It is safe for concurrent use.
type Groups struct {
	*txn.Committer
	seal seal.Box
}

// New returns the operations on groups.
func New(c *txn.Committer, box seal.Box) *Groups {
	return &Groups{Committer: c, seal: box}
}

// Mode is what a write of a group may do.
type Mode uint8

// The modes.
const (
	// Create fails if the group exists.
	Create Mode = iota
	// Update fails if the group does not exist.
	Update
	// Put creates or replaces the group.
	Put
)

// GroupWrite creates or changes a group with the spec that Make returns.
type GroupWrite struct {
	Name fleet.GroupName
	Mode Mode
	// IfMatch is the required revision, Present or Absent; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
	// ManagedBy is the source that declares the group; "" keeps the present one. Guards are additional
	// conditions of the transaction.
	ManagedBy string
	Guards    []store.Guard
	// Written maps the path of a field to its path in the caller's request; nil means they are equal.
	Written func(field string) string
	// FreeValues allows values for variables that no template defines.
	FreeValues bool
	// CommandOptional allows a spec with neither a command nor a jarFile. Its instances fail to
	// start.
	CommandOptional bool
	// Shown is the visibility of the caller. Values hidden from the caller keep their stored value.
	Shown content.Visibility
	// Make returns the desired spec for the present one, which has the values that the caller may see
	// and is nil for a new group. It may be called more than once and must not modify its argument.
	// Hidden passwords and values that it leaves in place keep their stored value.
	Make func(old *fleet.GroupSpec) (fleet.GroupSpec, error)
}

// GroupWritten is the result of a GroupWrite.
type GroupWritten struct {
	// Before is nil when the group was created.
	Before *fleet.Group
	// After is the group as written, or as a dry run would write it.
	After fleet.Group
	// Rev is the revision of the commit, or of the snapshot if the group did not change.
	Rev int64
}

// WriteGroup creates or changes a group. AlreadyExists and NotFound according to the mode, Conflict
// while the group is being deleted, MovedError when IfMatch does not match; Invalid names every
// wrong field. It writes nothing when nothing changes.
func (o *Groups) WriteGroup(ctx context.Context, by txn.Actor, w GroupWrite) (GroupWritten, error) {
	if err := w.Name.Validate(); err != nil {
		return GroupWritten{}, err
	}
	var out GroupWritten
	rev, err := o.MutateGroup(ctx, by, w.Name, func(s *view.Snapshot) (txn.Change, error) {
		old, err := w.target(s)
		if err != nil {
			return txn.Change{}, err
		}
		out.Before = old
		var demands []store.Guard
		if out.After, demands, err = o.wanted(ctx, s, w, old); err != nil {
			return txn.Change{}, err
		}
		if w.DryRun || old != nil && out.After.Revision == old.Revision && out.After.ManagedBy == old.ManagedBy && maps.Equal(out.After.Hidden, old.Hidden) {
			return txn.Change{}, nil
		}
		c := groupChange(s, w.Name, old, out.After)
		c.Guards = slices.Concat(c.Guards, w.Guards, demands)
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

// target returns the group to change, or nil when it is new.
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
		return nil, txn.CheckRevision("group "+string(w.Name), w.IfMatch, 0)
	}
	return old, txn.CheckRevision("group "+string(w.Name), w.IfMatch, old.ModRev)
}

// shownSpec returns a group's spec with Hidden in place of values that a caller with visibility
// most may not see. It returns nil for no group.
func shownSpec(s *view.Snapshot, g *fleet.Group, most content.Visibility) *fleet.GroupSpec {
	if g == nil {
		return nil
	}
	spec := g.Spec
	spec.Variables = compose.MaskValues(spec.Variables, compose.Conceal(g, s.Definers().Of(g.Name, s.Whole(g).Spec)), most)
	return &spec
}

// wanted returns the valid group that a write asks for, and the guards on the secrets and sources
// it refers to. The group has the revision of old when nothing changes.
func (o *Groups) wanted(ctx context.Context, s *view.Snapshot, w GroupWrite, old *fleet.Group) (fleet.Group, []store.Guard, error) {
	var present *fleet.GroupSpec
	if old != nil {
		present = &old.Spec
	}
	spec, err := w.Make(shownSpec(s, old, w.Shown))
	if err != nil {
		return fleet.Group{}, nil, err
	}
	if present != nil && spec.RCON.Password == content.Hidden {
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
	if err := txn.JoinProblems(asWritten(w.Written, slices.Concat(wrong(present, spec), PolicyProblems(s, present, spec), references(s, w.Name, present, spec), storages, w.startable(present, spec), problems))); err != nil {
		return fleet.Group{}, nil, err
	}
	now := o.Now()
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

// startable returns a problem when a spec has nothing to run and the present one had something.
func (w GroupWrite) startable(present *fleet.GroupSpec, spec fleet.GroupSpec) []error {
	idle := func(s fleet.GroupSpec) bool { return s.Command == "" && s.Software.JarFile == "" }
	if w.CommandOptional || !idle(spec) || present != nil && idle(*present) {
		return nil
	}
	return []error{errs.Field("command", "must be given when there is no jarFile: it is the line that starts the server")}
}

// wrong returns the problems of a spec. It ignores those in fields that the present spec has too:
// values that an older version accepted must not block other changes.
func wrong(present *fleet.GroupSpec, spec fleet.GroupSpec) []error {
	if present == nil {
		return spec.Validate()
	}
	return spec.ValidateChange(*present)
}

// same compares specs as they are stored: nil and empty lists are equal.
func same(a, b fleet.GroupSpec) bool {
	return reflect.DeepEqual(normal(a), normal(b))
}

// ReachesInstances reports whether two specs differ in what instances are made from. The rest is
// about the group, and is in force at once.
func ReachesInstances(a, b fleet.GroupSpec) bool {
	for _, s := range []*fleet.GroupSpec{&a, &b} {
		s.Scaling, s.Maintenance, s.Quota, s.Reserved = fleet.Scaling{}, fleet.Maintenance{}, fleet.Budget{}, fleet.Budget{}
		s.Labels, s.DependsOn, s.StartupWeight, s.UpdateStrategy, s.Explicit = nil, nil, 0, "", nil
	}
	return !same(a, b)
}

// groupChange returns the change that writes a group, if the groups it refers to did not change.
func groupChange(s *view.Snapshot, name fleet.GroupName, old *fleet.Group, g fleet.Group) txn.Change {
	c := txn.Change{Audit: txn.Entry{Action: "group.update", Resource: "group", ID: string(name), Details: fmt.Sprintf("revision %d", g.Revision)}}
	c.Audit.Before, c.Audit.After = GroupRecords(s, old, &g)
	var rev int64
	if old == nil {
		c.Audit.Action = "group.create"
	} else {
		rev = old.ModRev
	}
	c.Writes = []store.Write{store.Replace(keys.Group(name), g, rev)}
	var before []fleet.GroupName
	var present *fleet.GroupSpec
	if old != nil {
		before, present = referred(old.Spec), &old.Spec
	}
	addNameGuards(&c, s, name, present, g.Spec)
	refs := referred(g.Spec)
	if namesStorage(present, g.Spec) || slices.ContainsFunc(refs, func(ref fleet.GroupName) bool { return !slices.Contains(before, ref) }) {
		c.Writes = append(c.Writes, store.Touch(keys.MentionMark(), players.MentionMark{}))
	}
	for _, ref := range refs {
		if other, ok := s.Groups.Get(ref); ok && len(c.Guards) < maxGuards {
			c.Guards = append(c.Guards, store.Unchanged(keys.Group(ref), other.ModRev))
		}
	}
	return c
}

// maxGuards bounds the comparisons on groups referred to; etcd takes 128 in all.
const maxGuards = 64

// DeleteGroup marks a group for removal: the enforcer stops its instances and then removes it.
// NotFound when it does not exist, Invalid when other objects refer to it, Conflict when one of
// guards does not hold. With dryRun it only checks.
func (o *Groups) DeleteGroup(ctx context.Context, by txn.Actor, name fleet.GroupName, ifMatch int64, dryRun bool, guards ...store.Guard) (int64, error) {
	return o.MutateGroup(ctx, by, name, func(s *view.Snapshot) (txn.Change, error) {
		g, err := Find(s, name)
		if err != nil {
			return txn.Change{}, err
		}
		if err := txn.CheckRevision("group "+string(name), ifMatch, g.ModRev); err != nil {
			return txn.Change{}, err
		}
		if err := unreferenced(s, name); err != nil || dryRun {
			return txn.Change{}, err
		}
		marked := *g
		marked.Deleting, marked.UpdatedAt = true, o.Now()
		before, _ := GroupRecords(s, g, nil)
		c := txn.Change{
			Guards: append(slices.Clone(guards), StillUnreferenced(s)),
			Writes: []store.Write{store.Replace(keys.Group(name), marked, g.ModRev)},
			Audit:  txn.Entry{Action: "group.delete", Resource: "group", ID: string(name), Before: before},
		}
		c.DropApplied(s, applied.Group, string(name))
		return c, nil
	})
}

// Scale sets a group's minimum so that n instances run, and its maximum when n is above it.
// Instances started by hand count, and are stopped too. Conflict for a MANUAL group; Invalid names
// targetInstances.
func (o *Groups) Scale(ctx context.Context, by txn.Actor, name fleet.GroupName, n int, dryRun bool) (GroupWritten, error) {
	var out GroupWritten
	rev, err := o.MutateGroup(ctx, by, name, func(s *view.Snapshot) (txn.Change, error) {
		g, err := Find(s, name)
		if err != nil {
			return txn.Change{}, err
		}
		if g.Spec.Scaling.Mode == fleet.ScalingManual {
			return txn.Change{}, errs.New(errs.Conflict, "group %s is MANUAL: start and stop its instances one by one, or set scalingMode", name)
		}
		next := *g
		next.Spec.Scaling.Min = n
		if limit := next.Spec.Scaling.Max; limit != 0 && n > limit {
			next.Spec.Scaling.Max = n
		}
		if len(next.Spec.ValidateChange(g.Spec)) > 0 {
			return txn.Change{}, errs.Field("targetInstances", "must be between 0 and 100000, is %d", n)
		}
		now := o.Now()
		if !same(g.Spec, next.Spec) {
			next.Revision, next.UpdatedAt = g.Revision+1, now
		}
		next.ScaledAt = now
		out.Before, out.After = g, next
		if dryRun {
			return txn.Change{}, nil
		}
		c := txn.Change{
			Writes: []store.Write{store.Replace(keys.Group(name), next, g.ModRev)},
			Audit:  txn.Entry{Action: "group.scale", Resource: "group", ID: string(name), Details: fmt.Sprintf("to %d", n)},
		}
		c.Audit.Before, c.Audit.After = GroupRecords(s, g, &next)
		return c, nil
	})
	out.Rev = rev
	if g, ok := o.Snapshot().Groups.Get(name); ok && err == nil && !dryRun {
		out.After = *g
	}
	return out, err
}

// Find returns a group that exists and is not being deleted.
func Find(s *view.Snapshot, name fleet.GroupName) (*fleet.Group, error) {
	g, ok := s.Groups.Get(name)
	if !ok || g.Deleting {
		return nil, noGroup(name)
	}
	return g, nil
}

func noGroup(name fleet.GroupName) error {
	return errs.New(errs.NotFound, "there is no group %s", txn.Clip(string(name)))
}

// GroupRecord is what the audit keeps of a group; of a change only the fields that differ. Values
// and passwords that some users may not see are Hidden.
type GroupRecord struct {
	fleet.GroupSpec
	ManagedBy      string    `json:"managedBy,omitempty"`
	CrashesResetAt time.Time `json:"crashesResetAt,omitzero"`
}

// GroupRecords returns the audit records of a group before and after a change, nil for a missing
// group. Of hidden values they show only that they changed.
func GroupRecords(s *view.Snapshot, from, to *fleet.Group) (before, after any) {
	definers := s.Definers()
	concealed := map[string]content.Visibility{}
	record := func(g *fleet.Group) map[string]any {
		if g == nil {
			return nil
		}
		maps.Copy(concealed, compose.Conceal(g, definers.Of(g.Name, s.Whole(g).Spec)))
		return txn.ToMap(GroupRecord{g.Spec, g.ManagedBy, g.CrashesResetAt})
	}
	a, b := record(from), record(to)
	if a != nil && b != nil {
		a, b = txn.Diff(a, b)
	}
	for _, shown := range []map[string]any{a, b} {
		hideValues(shown, concealed)
	}
	return txn.OrNil(a), txn.OrNil(b)
}

// hideValues hides the concealed values and the RCON password in the record of a group.
func hideValues(record map[string]any, concealed map[string]content.Visibility) {
	values, _ := record["variables"].(map[string]any)
	for key, value := range values {
		text, _ := value.(string)
		if concealed[key].HiddenFrom(content.VisibleToAll) || content.IsSealed(text) {
			values[key] = content.Hidden
		}
	}
	if channel, ok := record["rcon"].(map[string]any); ok && channel["password"] != nil {
		channel["password"] = content.Hidden
	}
}

// asWritten replaces the fields of problems by the paths in the caller's request, and removes
// duplicates, such as those of each port of a range.
func asWritten(written func(string) string, problems []error) []error {
	if written == nil {
		return problems
	}
	var out []error
	said := map[string]bool{}
	for _, p := range problems {
		field := written(errs.FieldOf(p))
		if text := field + errs.MessageOf(p); !said[text] {
			said[text] = true
			out = append(out, &errs.Error{Kind: errs.KindOf(p), Field: field, Message: errs.MessageOf(p), Err: p})
		}
	}
	return out
}
