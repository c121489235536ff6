// Package spawn computes the writes that create an instance or its next generation. Gateway and
// enforcer share it, so both do this in the same way.
//
// It computes writes from a snapshot and commits nothing. Every intent it writes depends on three
// comparisons: the instance key is new (or unchanged); the name's key is free (or unchanged, and
// its holder is terminal or the instance itself) and is written; and the plan exists, or is
// created or touched in the same transaction.
package spawn

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/naming"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// touchAfter is the age at which a reference renews a plan's time. Unreferenced plans are
// collected after an hour.
const touchAfter = 20 * time.Minute

// Cause says who requests an instance, and why.
type Cause struct {
	Origin  fleet.Origin
	Reason  fleet.Reason
	Message string
	// By is the user who requested it. It is empty for the enforcer.
	By string
	// Standby makes a new instance that takes no players yet.
	Standby bool
	// Warm prepares the instance for later; see fleet.Intent.
	Warm bool
}

// Birth is the new or renewed intent of one instance, with the writes that create it.
type Birth struct {
	Intent fleet.Intent
	writes []store.Write
	guards []store.Guard
	plan   fleet.Plan
	digest string
}

// Plan returns the plan of the instance. Callers must not change it.
func (b *Birth) Plan() *fleet.Plan { return &b.plan }

// Spawner creates births from one snapshot. It assigns each name and each ID only once.
type Spawner struct {
	snap      *view.Snapshot
	materials compose.Materials
	now       time.Time
	rand      *rand.Rand
	taken     map[string]bool // by keys.NameOf
	ids       map[fleet.InstanceID]bool
	// next is the smallest ordinal that may be free; smaller ones are taken.
	next map[fleet.GroupName]int
}

// New returns a spawner over a snapshot.
func New(s *view.Snapshot, now time.Time, r *rand.Rand) *Spawner {
	return &Spawner{snap: s, materials: s.Materials(), now: now.UTC(), rand: r, taken: map[string]bool{}, ids: map[fleet.InstanceID]bool{}, next: map[fleet.GroupName]int{}}
}

// Fresh returns a new instance of a group with a new ID and the first free name. Ask Named before. replaces is
// the crashed or lost instance it replaces, or empty. That instance's intent records the
// replacement, so that it is not replaced twice. If it is lost, the write succeeds only while it
// is still lost.
func (s *Spawner) Fresh(g *fleet.Group, c Cause, replaces fleet.InstanceID, values map[string]string) Birth {
	plan := compose.Compose(*s.snap.Whole(g), s.materials, s.rand.Uint64())
	ordinal, name := s.freeName(g)
	intent := fleet.Intent{
		ID: s.freshID(), Group: g.Name, Ordinal: ordinal, Name: name,
		GroupRevision: g.Revision, Deployment: s.deployment(g.Name), Plan: plan.Digest(), Desired: fleet.DesiredRunning,
		Generation: 1, GenerationAt: s.now, CreatedAt: s.now,
		Origin: c.Origin, Replaces: replaces, Reason: c.Reason, Message: c.Message, By: c.By,
		Values: maps.Clone(values), Standby: c.Standby, Warm: c.Warm,
	}
	var (
		writes []store.Write
		guards []store.Guard
	)
	if old, ok := s.snap.Instances.Get(replaces); ok {
		intent.Lineage = old.Intent.Place()
		marked := old.Intent
		marked.ReplacedBy, marked.Displaced = intent.ID, old.Lost()
		writes = append(writes, store.Replace(keys.Intent(replaces), marked, old.Intent.ModRev))
		if old.Lost() {
			guards = append(guards, store.Unchanged(keys.Status(replaces), old.Status.ModRev))
		}
	}
	writes = append(writes, store.Create(keys.Intent(intent.ID), intent), s.claim(name, intent.ID))
	return Birth{Intent: intent, plan: plan, digest: intent.Plan, writes: writes, guards: guards}
}

// Again returns the next generation of a terminal instance with the same ID and, if it is still
// free, the same name. The error is Conflict if the instance is not terminal.
func (s *Spawner) Again(g *fleet.Group, i *fleet.Instance, c Cause) (Birth, error) {
	if !i.Terminal() {
		return Birth{}, errs.New(errs.Conflict, "instance %s %s: stop it first", i.Intent.Name, i.State().Text())
	}
	return s.again(g, i, c, left{}), nil
}

// Woken returns the next generation of a sleeping instance. It has the same plan, so that its
// directory fits. The error is Conflict if the instance does not sleep, or already wakes.
func (s *Spawner) Woken(g *fleet.Group, i *fleet.Instance, c Cause) (Birth, error) {
	stored, ok := s.snap.Plans.Get(i.Intent.Plan)
	if i.State() != fleet.Sleeping || !ok {
		return Birth{}, errs.New(errs.Conflict, "instance %s %s: it cannot be woken", i.Intent.Name, i.State().Text())
	}
	b := s.again(g, i, c, left{})
	b.plan, b.digest = stored.Plan, i.Intent.Plan
	b.Intent.GroupRevision, b.Intent.Deployment, b.Intent.Plan = i.Intent.GroupRevision, i.Intent.Deployment, b.digest
	b.Intent.Crashes = i.Intent.Crashes
	b.writes[len(b.writes)-1] = store.Replace(keys.Intent(b.Intent.ID), b.Intent, i.Intent.ModRev)
	b.guards = append(b.guards, store.Unchanged(keys.Status(i.Intent.ID), i.Status.ModRev))
	return b, nil
}

// Renewed returns the next generation of an instance that waits for a node, made from the current
// group. The error is Conflict if it holds a node or has ended.
func (s *Spawner) Renewed(g *fleet.Group, i *fleet.Instance, c Cause) (Birth, error) {
	if !i.NeedsPlacement() || i.HoldsNode() {
		return Birth{}, errs.New(errs.Conflict, "instance %s %s: it does not wait for a node", i.Intent.Name, i.State().Text())
	}
	return s.again(g, i, c, left{}), nil
}

// Elsewhere returns the next generation of an instance on a lost node, for another node. The
// caller owns the group and knows that the old copy can no longer run. The write succeeds only if
// the node has no session and has not joined since, and the instance's status is unchanged.
func (s *Spawner) Elsewhere(g *fleet.Group, i *fleet.Instance, c Cause) Birth {
	node := i.Placement.Node
	var joined int64
	if record, ok := s.snap.Nodes.Get(node); ok {
		joined = record.ModRev
	}
	b := s.again(g, i, c, left{status: i.Status.ModRev, node: joined})
	b.guards = append(b.guards, store.Missing(keys.NodeSession(node)), store.Unchanged(keys.Node(node), joined),
		store.Unchanged(keys.Status(i.Intent.ID), i.Status.ModRev))
	return b
}

// deployment returns the number of the group's latest deployment, 0 for none.
func (s *Spawner) deployment(g fleet.GroupName) int64 {
	if latest, ok := s.snap.LatestDeployment(g); ok {
		return latest.Number
	}
	return 0
}

// left holds the revisions that identify a node loss, for an intent that moves because of it.
type left struct{ status, node int64 }

func (s *Spawner) again(g *fleet.Group, i *fleet.Instance, c Cause, from left) Birth {
	plan := compose.Compose(*s.snap.Whole(g), s.materials, s.rand.Uint64())
	next := i.Intent
	next.GroupRevision, next.Deployment, next.Plan = g.Revision, s.deployment(g.Name), plan.Digest()
	next.Lineage = i.Intent.NextLineage()
	next.Desired, next.Stop, next.RestartPending, next.Retire, next.Sleep = fleet.DesiredRunning, nil, false, nil, nil
	next.MovesTo = i.Moved() // nil once it was placed there
	next.Generation = i.LastGeneration() + 1
	next.GenerationAt, next.Leaves, next.LeavesNode = s.now, from.status, from.node
	next.Reason, next.Message, next.By, next.Warm = c.Reason, c.Message, c.By, c.Warm
	next.Crashes, next.ReplacedBy, next.Displaced = i.CrashesOf(g.Revision), "", false

	holder, claimed := s.snap.Name(next.Name)
	ours := claimed && holder.ID == next.ID
	if s.isTaken(next.Name) || !ours && !s.free(next.Name) {
		next.Ordinal, next.Name = s.freeName(g)
	} else if n := naming.Place(g, next.Name); n > 0 {
		next.Ordinal = n
	}
	writes := []store.Write{
		s.claim(next.Name, next.ID), // written even if it is ours: another instance may be about to take it
		store.Replace(keys.Intent(next.ID), next, i.Intent.ModRev),
	}
	return Birth{Intent: next, plan: plan, digest: next.Plan, writes: writes}
}

// Txns packs births into transactions of at most maxOps comparisons and within etcd's size limit,
// each with the given fences and guards. Plans are created or renewed with their first reference.
func (s *Spawner) Txns(births []Birth, fences []store.Fence, guards []store.Guard, maxOps int) []store.Txn {
	var out []store.Txn
	made := map[string]bool{} // plans created in an earlier transaction
	for len(births) > 0 {
		t, n := s.fill(births, store.Txn{Fences: slices.Clone(fences), Guards: slices.Clone(guards)}, maxOps, made)
		for _, b := range births[:n] {
			made[b.digest] = true
		}
		out, births = append(out, t), births[n:]
	}
	return out
}

// First returns the first transaction of Txns and the number of births in it, at least one if
// there is any.
func (s *Spawner) First(births []Birth, guards []store.Guard, maxOps int) (t store.Txn, n int) {
	return s.fill(births, store.Txn{Guards: slices.Clone(guards)}, maxOps, nil)
}

// fill adds births to a transaction until it is full, and counts them. made are the plans that an
// earlier transaction creates.
func (s *Spawner) fill(births []Birth, t store.Txn, maxOps int, made map[string]bool) (store.Txn, int) {
	settled := map[string]bool{}
	for n, b := range births {
		if n > 0 && t.Size()+6+len(s.versions(b)) > maxOps {
			return t, n
		}
		next := t
		if !settled[b.digest] {
			s.settlePlan(&next, b, made[b.digest])
			settled[b.digest] = true
		}
		next.Guards = append(next.Guards, b.guards...)
		next.Writes = append(next.Writes, b.writes...)
		if n > 0 && next.Bytes() > store.FullBytes {
			return t, n
		}
		t = next
	}
	return t, len(births)
}

// settlePlan ensures that the plan exists after the transaction.
func (s *Spawner) settlePlan(t *store.Txn, b Birth, made bool) {
	key := keys.Plan(b.digest)
	stored := fleet.StoredPlan{Plan: b.plan, TouchedAt: s.now}
	have, ok := s.snap.Plans.Get(b.digest)
	switch {
	case made:
		t.Guards = append(t.Guards, store.Exists(key))
	case !ok:
		t.Guards = append(t.Guards, s.versions(b)...)
		t.Writes = append(t.Writes, store.Create(key, stored))
	case s.now.Sub(have.TouchedAt) > touchAfter:
		t.Writes = append(t.Writes, store.Replace(key, stored, have.ModRev))
	default:
		t.Guards = append(t.Guards, store.Exists(key))
	}
}

// maxGuarded bounds the template versions that one new plan guards, so that they fit into a
// transaction. If a version beyond that is deleted at the same time, the instances of the plan
// fail and the next ones get a new plan.
const maxGuarded = 64

// versions returns guards that the template versions of a new plan still exist. A version is
// deleted only after a check of all plans, and a plan is created only while its versions exist. It
// returns none for an existing plan.
func (s *Spawner) versions(b Birth) []store.Guard {
	if _, ok := s.snap.Plans.Get(b.digest); ok {
		return nil
	}
	var guards []store.Guard
	for _, l := range b.plan.Layers {
		if l.Digest != "" && len(guards) < maxGuarded {
			guards = append(guards, store.Exists(keys.TemplateVersion(l.TemplateRef, l.Digest)))
		}
	}
	return guards
}

func (s *Spawner) freshID() fleet.InstanceID {
	for {
		id := fleet.NewInstanceID(s.rand.Uint64())
		if _, used := s.snap.Instances.Get(id); !used && !s.ids[id] {
			s.ids[id] = true
			return id
		}
	}
}

// Named returns a Conflict error if the group names its instances and no name is free for a new one.
func (s *Spawner) Named(g *fleet.Group) error {
	if len(naming.Fixed(&g.Spec)) == 0 || s.freePlace(g) > 0 {
		return nil
	}
	return errs.New(errs.Conflict, "group %s has an instance for each of its staticInstanceNames: add a name to them, or start one of these instances", g.Name)
}

// freeName takes the first free name of a group: of its fixed names, or else GROUP-N with the smallest
// ordinal.
func (s *Spawner) freeName(g *fleet.Group) (ordinal int, name string) {
	if n := s.freePlace(g); n > 0 {
		name = naming.Fixed(&g.Spec)[n-1]
		s.take(name)
		return n, name
	}
	for n := max(1, s.next[g.Name]); ; n++ {
		if name := fleet.InstanceName(g.Name, n); !s.isTaken(name) && s.free(name) {
			s.take(name)
			s.next[g.Name] = n + 1
			return n, name
		}
	}
}

// freePlace returns the place of the first fixed name that no instance has, 0 for none.
func (s *Spawner) freePlace(g *fleet.Group) int {
	names := naming.Fixed(&g.Spec)
	if len(names) == 0 {
		return 0
	}
	held := naming.HeldPlaces(g, s.snap.GroupInstances(g.Name))
	for i, name := range names {
		if !held[i+1] && !s.isTaken(name) && s.free(name) {
			return i + 1
		}
	}
	return 0
}

func (s *Spawner) take(name string) { s.taken[keys.NameOf(name).String()] = true }

func (s *Spawner) isTaken(name string) bool { return s.taken[keys.NameOf(name).String()] }

// free reports whether a name has no holder or a terminal one. A static instance keeps its
// name as long as its record exists, because its data is stored under the name.
func (s *Spawner) free(name string) bool {
	claim, ok := s.snap.Name(name)
	if !ok {
		return true
	}
	i, ok := s.snap.Instances.Get(claim.ID)
	if !ok {
		return true
	}
	if group, ok := s.snap.Groups.Get(i.Intent.Group); ok && group.Spec.Static.Enabled {
		return false
	}
	return i.Terminal() && !i.Intent.RestartPending
}

func (s *Spawner) claim(name string, id fleet.InstanceID) store.Write {
	s.take(name)
	var rev int64
	if have, ok := s.snap.Name(name); ok {
		rev = have.ModRev
	}
	return store.Replace(keys.NameOf(name), keys.NameClaim{ID: id}, rev)
}
