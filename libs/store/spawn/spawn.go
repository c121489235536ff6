// Package spawn holds how an instance comes to be and comes to be again: the
// records and comparisons that gateway and enforcer share, so that both make
// instances in exactly one way.
//
// It computes writes from a snapshot and commits nothing. Every intent it makes
// stands on three comparisons: the instance key is new (or unchanged), the name's
// key is free (or unchanged, its holder being terminal or the instance itself) and
// is written, and the plan exists, is created, or is touched in the same transaction.
package spawn

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// touchAfter is the age at which a reference renews a plan's time, well before
// an unreferenced plan of an hour is collected.
const touchAfter = 20 * time.Minute

// Cause says who wants an instance, and why.
type Cause struct {
	Origin  fleet.Origin
	Reason  fleet.Reason
	Message string
	// By is the user who asked; empty for the enforcer.
	By string
}

// Birth is one instance's new or renewed intent with the writes that make it so.
type Birth struct {
	Intent fleet.Intent
	writes []store.Write
	guards []store.Guard
	plan   fleet.Plan
	digest string
}

// Plan is what the instance is built from. It must not be changed.
func (b *Birth) Plan() *fleet.Plan { return &b.plan }

// Spawner makes births from one snapshot. It hands out each ordinal once.
type Spawner struct {
	snap      *view.Snapshot
	materials fleet.Materials
	now       time.Time
	rand      *rand.Rand
	taken     map[fleet.GroupName]map[int]bool
	// next is the smallest ordinal that may be free: what is taken stays so.
	next map[fleet.GroupName]int
}

// New makes a spawner over a snapshot.
func New(s *view.Snapshot, now time.Time, r *rand.Rand) *Spawner {
	return &Spawner{snap: s, materials: s.Materials(), now: now.UTC(), rand: r, taken: map[fleet.GroupName]map[int]bool{}, next: map[fleet.GroupName]int{}}
}

// Fresh is a new instance of a group: new id, smallest free ordinal. replaces is
// the crashed or lost instance it is made for, whose intent then says so, so that
// nothing is replaced twice; it may be empty. One that is lost must still be lost.
func (s *Spawner) Fresh(g *fleet.Group, c Cause, replaces fleet.InstanceID, values map[string]string) Birth {
	plan := fleet.Compose(*s.snap.Whole(g), s.materials, s.rand.Uint64())
	ordinal := s.freeOrdinal(g.Name)
	intent := fleet.Intent{
		ID: s.freshID(), Group: g.Name, Ordinal: ordinal, Name: fleet.InstanceName(g.Name, ordinal),
		GroupRevision: g.Revision, Plan: plan.Digest(), Desired: fleet.DesiredRunning,
		Generation: 1, GenerationAt: s.now, CreatedAt: s.now,
		Origin: c.Origin, Replaces: replaces, Reason: c.Reason, Message: c.Message, By: c.By,
		Values: maps.Clone(values),
	}
	var (
		writes []store.Write
		guards []store.Guard
	)
	if old, ok := s.snap.Instances.Get(replaces); ok {
		intent.Lineage = old.Intent.Place()
		marked := old.Intent
		marked.ReplacedBy, marked.Displaced = intent.ID, old.Lost()
		writes = append(writes, store.Replace(store.IntentKey(replaces), marked, old.Intent.ModRev))
		if old.Lost() {
			guards = append(guards, store.Unchanged(store.StatusKey(replaces), old.Status.ModRev))
		}
	}
	writes = append(writes, store.Create(store.IntentKey(intent.ID), intent), s.claim(g.Name, ordinal, intent.ID))
	return Birth{Intent: intent, plan: plan, digest: intent.Plan, writes: writes, guards: guards}
}

// Again is the next generation of a terminal instance under the same id and, if
// nobody took it, the same name. Conflict when the instance is not terminal.
func (s *Spawner) Again(g *fleet.Group, i *fleet.Instance, c Cause) (Birth, error) {
	if !i.Terminal() {
		return Birth{}, errs.New(errs.Conflict, "instance %s %s: stop it first", i.Intent.Name, i.State().Text())
	}
	return s.again(g, i, c, left{}), nil
}

// Renewed is the next generation of an instance that waits for a node, made from the
// group as it is now. Conflict when it holds a node, or has ended.
func (s *Spawner) Renewed(g *fleet.Group, i *fleet.Instance, c Cause) (Birth, error) {
	if !i.NeedsPlacement() || i.HoldsNode() {
		return Birth{}, errs.New(errs.Conflict, "instance %s %s: it waits for no node", i.Intent.Name, i.State().Text())
	}
	return s.again(g, i, c, left{}), nil
}

// Elsewhere is the next generation of an instance on a lost node, for the owner of
// its group who knows that the old copy cannot run any more. It happens only while
// the node has no session, has not joined since, and the instance's status is as it was.
func (s *Spawner) Elsewhere(g *fleet.Group, i *fleet.Instance, c Cause) Birth {
	node := i.Placement.Node
	var joined int64
	if record, ok := s.snap.Nodes.Get(node); ok {
		joined = record.ModRev
	}
	b := s.again(g, i, c, left{status: i.Status.ModRev, node: joined})
	b.guards = append(b.guards, store.Missing(store.NodeSessionKey(node)), store.Unchanged(store.NodeKey(node), joined),
		store.Unchanged(store.StatusKey(i.Intent.ID), i.Status.ModRev))
	return b
}

// left are the revisions by which an intent names the loss that it was asked for.
type left struct{ status, node int64 }

func (s *Spawner) again(g *fleet.Group, i *fleet.Instance, c Cause, from left) Birth {
	plan := fleet.Compose(*s.snap.Whole(g), s.materials, s.rand.Uint64())
	next := i.Intent
	next.GroupRevision, next.Plan = g.Revision, plan.Digest()
	next.Lineage = i.Intent.Anew()
	next.Desired, next.Stop, next.RestartPending = fleet.DesiredRunning, nil, false
	next.Generation = i.LastGeneration() + 1
	next.GenerationAt, next.Leaves, next.LeavesNode = s.now, from.status, from.node
	next.Reason, next.Message, next.By = c.Reason, c.Message, c.By
	next.Crashes, next.ReplacedBy, next.Displaced = i.CrashesOf(g.Revision), "", false

	holder := s.holder(g.Name, next.Ordinal)
	ours := holder != nil && holder.ID == next.ID
	if s.taken[g.Name][next.Ordinal] || !ours && !s.free(g.Name, next.Ordinal) {
		next.Ordinal = s.freeOrdinal(g.Name)
		next.Name = fleet.InstanceName(g.Name, next.Ordinal)
	}
	writes := []store.Write{
		s.claim(g.Name, next.Ordinal, next.ID), // written though it is ours still: somebody may be about to take it
		store.Replace(store.IntentKey(next.ID), next, i.Intent.ModRev),
	}
	return Birth{Intent: next, plan: plan, digest: next.Plan, writes: writes}
}

// Txns packs births into transactions of at most maxOps comparisons, none larger
// than etcd takes, each carrying the given fences and guards. Plans are created or renewed with their
// first reference.
func (s *Spawner) Txns(births []Birth, fences []store.Fence, guards []store.Guard, maxOps int) []store.Txn {
	var out []store.Txn
	made := map[string]bool{} // plans settled in an earlier transaction
	for len(births) > 0 {
		t, n := s.fill(births, store.Txn{Fences: slices.Clone(fences), Guards: slices.Clone(guards)}, maxOps, made)
		for _, b := range births[:n] {
			made[b.digest] = true
		}
		out, births = append(out, t), births[n:]
	}
	return out
}

// First is the first transaction of Txns, and how many of the births it holds: at least
// one if there is any.
func (s *Spawner) First(births []Birth, guards []store.Guard, maxOps int) (t store.Txn, n int) {
	return s.fill(births, store.Txn{Guards: slices.Clone(guards)}, maxOps, nil)
}

// fill adds births to a transaction until it is full, and counts them. made are the plans
// that an earlier transaction settles.
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

// settlePlan makes sure that the plan exists with the transaction.
func (s *Spawner) settlePlan(t *store.Txn, b Birth, made bool) {
	key := store.PlanKey(b.digest)
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

// maxGuarded bounds how many versions one new plan demands, so that they fit a
// transaction. A plan of more layers may meet the deletion of one of the others; its
// instances fail then, and the next are composed anew.
const maxGuarded = 64

// versions demand that what a new plan is composed of is not deleted: a version goes
// only after all plans were looked at, and a plan comes only while its versions are
// there. None for a plan that exists.
func (s *Spawner) versions(b Birth) []store.Guard {
	if _, ok := s.snap.Plans.Get(b.digest); ok {
		return nil
	}
	var guards []store.Guard
	for _, l := range b.plan.Layers {
		if l.Digest != "" && len(guards) < maxGuarded {
			guards = append(guards, store.Exists(store.TemplateVersionKey(l.TemplateRef, l.Digest)))
		}
	}
	return guards
}

func (s *Spawner) freshID() fleet.InstanceID {
	for {
		id := fleet.NewInstanceID(s.rand.Uint64())
		if _, used := s.snap.Instances.Get(id); !used {
			return id
		}
	}
}

// freeOrdinal hands out the smallest ordinal nobody living holds.
func (s *Spawner) freeOrdinal(g fleet.GroupName) int {
	for n := max(1, s.next[g]); ; n++ {
		if !s.taken[g][n] && s.free(g, n) {
			s.take(g, n)
			s.next[g] = n + 1
			return n
		}
	}
}

func (s *Spawner) take(g fleet.GroupName, ordinal int) {
	if s.taken[g] == nil {
		s.taken[g] = map[int]bool{}
	}
	s.taken[g][ordinal] = true
}

func (s *Spawner) holder(g fleet.GroupName, ordinal int) *store.NameClaim {
	claim, ok := s.snap.Name(g, ordinal)
	if !ok {
		return nil
	}
	return claim
}

// free reports whether an ordinal's holder is absent or terminal. A static
// instance keeps its name as long as its record stands: its data lies under it.
func (s *Spawner) free(g fleet.GroupName, ordinal int) bool {
	claim := s.holder(g, ordinal)
	if claim == nil {
		return true
	}
	i, ok := s.snap.Instances.Get(claim.ID)
	if !ok {
		return true
	}
	if group, ok := s.snap.Groups.Get(g); ok && group.Spec.Static.Enabled {
		return false
	}
	return i.Terminal() && !i.Intent.RestartPending
}

func (s *Spawner) claim(g fleet.GroupName, ordinal int, id fleet.InstanceID) store.Write {
	s.take(g, ordinal)
	var rev int64
	if have := s.holder(g, ordinal); have != nil {
		rev = have.ModRev
	}
	return store.Replace(store.NameKey(g, ordinal), store.NameClaim{ID: id}, rev)
}
