package operate

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/startvalue"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/view"
)

// MaxStart is the number of instances one request may start.
const MaxStart = 50

// StartRequest asks for instances of a group.
type StartRequest struct {
	Group fleet.GroupName
	// Count is how many, 1 to MaxStart.
	Count int
	// Values are placeholder values for these instances alone.
	Values map[string]string
	// MayRefer is whether who asks may have the values be references to secrets, as those
	// may who change groups; in clear everybody may give them.
	MayRefer bool
	// StaticOnce refuses to start an instance of a static group beside one that has not
	// ended, as Universe does, unless the group's minimum asks for more.
	StaticOnce bool
	// DryRun checks everything and starts nothing.
	DryRun bool
}

// StartInstances asks for instances of a group and returns their intents; of a
// static group, stopped ones come first, with their data. NotFound for an unknown
// group, Invalid for a bad count or value, Denied for a reference that who asks may not
// give, Conflict when the group's maximum forbids
// all of them, or StaticOnce does, Exhausted when no node could ever hold one.
//
// A large request is committed in parts, each of which happens as a whole: a part holds as
// many instances as fit one transaction by number and by bytes. When a later part fails,
// what has been started is returned without an error, and in short why it is not all.
func (o *Operations) StartInstances(ctx context.Context, by Actor, r StartRequest) (made []fleet.Intent, short, err error) {
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

// startPart starts as many of the wanted instances as one transaction holds.
func (o *Operations) startPart(ctx context.Context, by Actor, r StartRequest) (made []fleet.Intent, err error) {
	_, err = o.mutateGroup(ctx, by, r.Group, func(s *view.Snapshot) (change, error) {
		made = nil
		g, err := o.group(s, r.Group)
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
			return change{}, err
		}
		settled := r
		if settled.Values, err = o.settleStart(ctx, s, g, r); err != nil {
			return change{}, err
		}
		sp := o.spawner(s)
		births, err := o.births(s, sp, g, settled, by)
		if err == nil {
			err = insertable(births)
		}
		if err != nil {
			return change{}, err
		}
		c, n := o.birthChange(sp, g, births)
		if r.DryRun {
			c, n = change{}, len(births)
		}
		for _, b := range births[:n] {
			made = append(made, b.Intent)
		}
		if r.DryRun {
			return c, nil
		}
		c.audit = entry{
			action: "group.start", resource: "group", id: string(g.Name), details: names(made), objects: started(g.Name, made),
			begun: len(made) < r.Count,
		}
		return c, nil
	})
	return made, err
}

func (o *Operations) spawner(s *view.Snapshot) *spawn.Spawner {
	return spawn.New(s, o.now(), rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
}

// births are the instances to start: of a static group those that have stopped, in
// order, then new ones.
func (o *Operations) births(s *view.Snapshot, sp *spawn.Spawner, g *fleet.Group, r StartRequest, by Actor) ([]spawn.Birth, error) {
	cause := spawn.Cause{Origin: fleet.OriginManual, Reason: fleet.ReasonRequested, Message: "started by " + by.User, By: by.User}
	var out []spawn.Birth
	if g.Spec.Static.Enabled {
		for _, i := range ended(s, g.Name) {
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
		out = append(out, sp.Fresh(g, cause, "", r.Values))
	}
	return out, nil
}

// insertable refuses new instances whose plan uses a value that is given now where it
// could become code.
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

// ended are a group's finished instances in order of ordinal, but for frozen ones.
func ended(s *view.Snapshot, g fleet.GroupName) []*fleet.Instance {
	var out []*fleet.Instance
	for i := range s.GroupInstances(g) {
		if i.Terminal() && !i.Intent.RestartPending && i.Intent.ReplacedBy == "" && !i.Intent.Frozen {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *fleet.Instance) int { return cmp.Compare(a.Intent.Ordinal, b.Intent.Ordinal) })
	return out
}

// birthChange commits as many births, made from a group as it is, as one transaction
// holds beside the audit entry and the record of the request, and counts them.
func (o *Operations) birthChange(sp *spawn.Spawner, g *fleet.Group, births []spawn.Birth) (c change, n int) {
	guard := store.Unchanged(store.GroupKey(g.Name), g.ModRev)
	t, n := sp.First(births, []store.Guard{guard}, o.cfg.Store.MaxOps()-2)
	return change{guards: t.Guards, writes: t.Writes}, n
}

// started are a group and the instances that were made of it: that is where their history
// begins.
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

// roomFor refuses when the group's maximum would be exceeded.
func roomFor(s *view.Snapshot, g *fleet.Group, count int) error {
	limit, what := g.Spec.Scaling.Max, "maxInstances"
	if n := len(g.Spec.Static.InstanceNames); g.Spec.Static.Enabled && n > 0 && (limit == 0 || n < limit) {
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

// capacity refuses what no node could hold even if it were empty, of what it lets
// instances reserve. Where no node that may run the group has joined yet, time will tell.
func capacity(s *view.Snapshot, name fleet.GroupName, spec fleet.GroupSpec) error {
	var largest fleet.Resources
	seen := false
	for id, n := range s.Nodes.All() {
		if !spec.Where.Allows(id) {
			continue
		}
		d, _ := s.NodesDesired.Get(id)
		usable, _ := n.RoomUnder(d).Of(n.Capacity) // what cannot be counts as nothing
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

// onceStatic refuses more instances of a static group than its minimum, or one, while others
// have not ended or are frozen.
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
	if limit := max(1, g.Spec.Scaling.Min); there+count <= limit {
		return nil
	}
	if there == 0 {
		return errs.New(errs.Conflict, "configuration %s is static: start one instance, or raise minimumServiceCount", g.Name)
	}
	return errs.New(errs.Conflict, "configuration %s is static and has the instance %s: stop that first, or raise minimumServiceCount", g.Name, name)
}
