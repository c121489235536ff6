package instanceops

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/naming"
	"github.com/orreryhq/orrery/libs/startvalue"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/view"
)

// MaxStart is the number of instances one request may start.
const MaxStart = 50

// StartRequest asks for instances of a group.
type StartRequest struct {
	Group fleet.GroupName
	// Count is 1 to MaxStart.
	Count int
	// Values are placeholder values for only these instances.
	Values map[string]string
	// MayRefer is true if the values may refer to secrets. Callers that may change groups have it. All
	// callers may give plain values.
	MayRefer bool
	// StaticOnce refuses to start an instance of a static group that has one running, unless the
	// group's minimum asks for more. Universe does the same.
	StaticOnce bool
	// DryRun checks everything and starts nothing.
	DryRun bool
}

// StartInstances creates the intents of new instances of a group. Of a static group, it first
// starts stopped instances with their data. NotFound for an unknown group, Invalid for a bad count
// or value, Denied for a reference that the caller may not give, Conflict when the group's maximum
// or StaticOnce forbids all of them, Exhausted when no node could ever hold one. It commits a large
// request in several transactions. When a later one fails, it returns the instances so far without
// an error, and the cause in short.
func (o *Instances) StartInstances(ctx context.Context, by txn.Actor, r StartRequest) (made []fleet.Intent, short, err error) {
	if r.Count < 1 || r.Count > MaxStart {
		return nil, nil, errs.Field("count", "must be between 1 and %d, is %d", MaxStart, r.Count)
	}
	if problems := fleet.ValidateStartValues(r.Values); len(problems) > 0 {
		return nil, nil, problems[0]
	}
	for first := true; first || len(made) < r.Count; first = false {
		part := r
		part.Count = r.Count - len(made)
		more, err := o.startPart(ctx, by, part)
		switch {
		case err != nil && len(made) > 0:
			return made, err, nil
		case err != nil || r.DryRun:
			return more, nil, err
		}
		made = append(made, more...)
	}
	return made, nil, nil
}

// startPart starts as many of the wanted instances as fit one transaction.
func (o *Instances) startPart(ctx context.Context, by txn.Actor, r StartRequest) (made []fleet.Intent, err error) {
	_, err = o.MutateGroup(ctx, by, r.Group, func(s *view.Snapshot) (txn.Change, error) {
		made = nil
		g, err := groupops.Find(s, r.Group)
		if err == nil {
			err = roomFor(s, g, r.Count)
		}
		if err == nil && r.StaticOnce {
			err = onceStatic(s, g, r.Count)
		}
		if err == nil {
			err = capacity(s, g.Name, s.Whole(g).Spec)
		}
		if err != nil {
			return txn.Change{}, err
		}
		settled := r
		if settled.Values, err = o.groups.SettleStart(ctx, s, g, r.Values, r.MayRefer); err != nil {
			return txn.Change{}, err
		}
		sp := o.spawner(s)
		births, err := o.births(s, sp, g, settled, by)
		if err == nil {
			err = insertable(births)
		}
		if err != nil {
			return txn.Change{}, err
		}
		c, n := o.birthChange(sp, g, births)
		if r.DryRun {
			c, n = txn.Change{}, len(births)
		}
		for _, b := range births[:n] {
			made = append(made, b.Intent)
		}
		if r.DryRun {
			return c, nil
		}
		c.Audit = txn.Entry{
			Action: "group.start", Resource: "group", ID: string(g.Name), Details: names(made), Objects: started(g.Name, made),
			Begun: len(made) < r.Count,
		}
		return c, nil
	})
	return made, err
}

func (o *Instances) spawner(s *view.Snapshot) *spawn.Spawner {
	return spawn.New(s, o.Now(), rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
}

// births returns the instances to start: stopped ones of a static group in order, then new ones.
func (o *Instances) births(s *view.Snapshot, sp *spawn.Spawner, g *fleet.Group, r StartRequest, by txn.Actor) ([]spawn.Birth, error) {
	cause := spawn.Cause{Origin: fleet.OriginManual, Reason: fleet.ReasonRequested, Message: "started by " + by.User, By: by.User}
	var out []spawn.Birth
	if g.Spec.Static.Enabled {
		for _, i := range ended(s, g) {
			if len(out) == r.Count {
				return out, nil
			}
			b, err := sp.Again(g, i, cause)
			if err != nil {
				return nil, err
			}
			out = append(out, b)
		}
	}
	for len(out) < r.Count {
		if err := sp.Named(g); err != nil {
			return nil, err
		}
		out = append(out, sp.Fresh(g, cause, "", r.Values))
	}
	return out, nil
}

// insertable returns an error when a plan uses a given value in a place where it could become code.
func insertable(births []spawn.Birth) error {
	checked := map[string]bool{}
	for _, b := range births {
		if checked[b.Intent.Plan] || b.Intent.Generation != 1 {
			continue
		}
		checked[b.Intent.Plan] = true
		if err := startvalue.Check(*b.Plan(), b.Intent.Values); err != nil {
			return err
		}
	}
	return nil
}

// ended returns a group's finished instances in order of rank, without frozen ones and those whose
// name the group no longer has.
func ended(s *view.Snapshot, g *fleet.Group) []*fleet.Instance {
	var out []*fleet.Instance
	for i := range s.GroupInstances(g.Name) {
		if startable(i) && moving(s, i) == nil && unlisted(g, i) == nil {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *fleet.Instance) int {
		return cmp.Compare(naming.Rank(g, &a.Intent), naming.Rank(g, &b.Intent))
	})
	return out
}

// unlisted returns Conflict for an instance whose name is no longer among the group's staticInstanceNames.
func unlisted(g *fleet.Group, i *fleet.Instance) error {
	if !naming.Unlisted(g, i.Intent.Name) {
		return nil
	}
	return errs.New(errs.Conflict, "instance %s: staticInstanceNames of group %s does not have this name; add it to start the instance with its data", i.Intent.Name, g.Name)
}

// startable reports whether an instance has ended, was not replaced and is not frozen.
func startable(i *fleet.Instance) bool {
	return i.Terminal() && !i.Intent.RestartPending && i.Intent.ReplacedBy == "" && !i.Intent.Frozen
}

// birthChange returns the change that creates the first n births: as many as fit one transaction
// beside the audit entry and the record of the request.
func (o *Instances) birthChange(sp *spawn.Spawner, g *fleet.Group, births []spawn.Birth) (c txn.Change, n int) {
	guard := store.Unchanged(keys.Group(g.Name), g.ModRev)
	t, n := sp.First(births, []store.Guard{guard}, o.Store.MaxOps()-2)
	return txn.Change{Guards: t.Guards, Writes: t.Writes}, n
}

// started returns the objects whose history begins with the start: the group and its new instances.
func started(g fleet.GroupName, made []fleet.Intent) []string {
	objects := []string{"group/" + string(g)}
	for _, i := range made {
		if i.Generation == 1 {
			objects = append(objects, "instance/"+string(i.ID))
		}
	}
	return objects
}

func names(made []fleet.Intent) string {
	if len(made) > 5 {
		return fmt.Sprintf("%d instances, %s to %s", len(made), made[0].Name, made[len(made)-1].Name)
	}
	out := ""
	for n, i := range made {
		if n > 0 {
			out += ", "
		}
		out += i.Name
	}
	return out
}

// roomFor returns an error when count more instances would exceed the group's maximum.
func roomFor(s *view.Snapshot, g *fleet.Group, count int) error {
	limit, what := s.Overlaid(g).Spec.Scaling.Max, "maxInstances"
	if limit != g.Spec.Scaling.Max {
		what = "the maxInstances of an active overlay (orrery get overlays)"
	}
	if n := len(naming.Fixed(&g.Spec)); n > 0 && (limit == 0 || n < limit) {
		limit, what = n, "the number of staticInstanceNames"
	}
	if limit == 0 {
		return nil
	}
	living := 0
	for i := range s.GroupInstances(g.Name) {
		if i.Living(g.Spec.KeepsLost()) {
			living++
		}
	}
	if living+count <= limit {
		return nil
	}
	return errs.New(errs.Conflict, "group %s has %d of at most %d instances: %d more would exceed %s", g.Name, living, limit, count, what)
}

// capacity returns an error when a group's instance fits none of the nodes that may run it, even an
// empty one. It returns none when no such node has joined yet.
func capacity(s *view.Snapshot, name fleet.GroupName, spec fleet.GroupSpec) error {
	var largest fleet.Resources
	seen := false
	for id, n := range s.Nodes.All() {
		if !spec.Where.Allows(id) {
			continue
		}
		d, _ := s.NodesDesired.Get(id)
		usable, _ := n.RoomUnder(d).Of(n.Capacity) // invalid parts of the capacity count as 0
		if spec.Resources.Fits(usable) {
			return nil
		}
		seen = true
		largest.MemoryMiB = max(largest.MemoryMiB, usable.MemoryMiB)
		largest.CPU = max(largest.CPU, usable.CPU)
		largest.DiskMiB = max(largest.DiskMiB, usable.DiskMiB)
	}
	if !seen {
		return nil
	}
	return errs.New(errs.Exhausted,
		"no node can ever hold an instance of %s, not even an empty one: it asks for %d MiB of memory, %d hundredths of a core and %d MiB of disk, and the most any node it may use has for instances is %d, %d and %d; lower what it asks for, or add a node or change one's room",
		name, spec.Resources.MemoryMiB, spec.Resources.CPU, spec.Resources.DiskMiB, largest.MemoryMiB, largest.CPU, largest.DiskMiB)
}

// onceStatic returns an error when a static group would get more instances than its minimum, or
// one, while others have not ended or are frozen.
func onceStatic(s *view.Snapshot, g *fleet.Group, count int) error {
	if !g.Spec.Static.Enabled {
		return nil
	}
	there, name := 0, ""
	for i := range s.GroupInstances(g.Name) {
		if !i.Terminal() || i.Intent.RestartPending || i.Intent.Frozen {
			there, name = there+1, i.Intent.Name
		}
	}
	if limit := max(1, s.Overlaid(g).Spec.Scaling.Min); there+count <= limit {
		return nil
	}
	if there == 0 {
		return errs.New(errs.Conflict, "configuration %s is static: start one instance, or raise minimumServiceCount", g.Name)
	}
	return errs.New(errs.Conflict, "configuration %s is static and has the instance %s: stop that first, or raise minimumServiceCount", g.Name, name)
}
