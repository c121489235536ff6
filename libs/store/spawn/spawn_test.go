package spawn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is an etcd with a view that follows the test's writes.
type cluster struct {
	t      *testing.T
	client *store.Client
	view   *view.View
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, client: storetest.New(t)}
	c.view = view.New(c.client, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.view.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

// commit performs transactions and returns a snapshot that includes them.
func (c *cluster) commit(txns ...store.Txn) *view.Snapshot {
	c.t.Helper()
	var snap *view.Snapshot
	for _, txn := range txns {
		rev, err := c.client.Commit(c.t.Context(), txn)
		if err != nil {
			c.t.Fatal(err)
		}
		if snap, err = c.view.WaitRev(c.t.Context(), rev); err != nil {
			c.t.Fatal(err)
		}
	}
	return snap
}

func (c *cluster) write(writes ...store.Write) *view.Snapshot {
	c.t.Helper()
	return c.commit(store.Txn{Writes: writes})
}

// group creates a group.
func (c *cluster) group(edit func(*fleet.Group)) (*fleet.Group, *view.Snapshot) {
	c.t.Helper()
	g := fleet.Group{Name: "g", Revision: 1, Spec: fleet.DefaultSpec()}
	edit(&g)
	snap := c.write(store.Create(keys.Group("g"), g))
	have, _ := snap.Groups.Get("g")
	return have, snap
}

// end reports the end of an instance.
func (c *cluster) end(i *fleet.Instance, state fleet.State) *view.Snapshot {
	c.t.Helper()
	s := fleet.Status{Instance: i.Intent.ID, Generation: i.Intent.Generation, State: state, Reason: fleet.ReasonExited, FinishedAt: noon.Add(time.Hour), ChangedAt: noon.Add(time.Hour)}
	var rev int64
	if i.Status != nil {
		rev = i.Status.ModRev
	}
	return c.write(store.Replace(keys.Status(i.Intent.ID), s, rev))
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func plain(*fleet.Group) {}

var (
	byMinimum = Cause{Origin: fleet.OriginMinimum, Reason: fleet.ReasonBelowMinimum}
	byAlice   = Cause{Origin: fleet.OriginManual, Reason: fleet.ReasonRequested, By: "alice"}
)

// fresh creates n instances and returns the snapshot and their IDs.
func (c *cluster) fresh(g *fleet.Group, snap *view.Snapshot, n int) (*view.Snapshot, []fleet.InstanceID) {
	c.t.Helper()
	s := New(snap, noon, random(uint64(snap.Rev)))
	var births []Birth
	var ids []fleet.InstanceID
	for range n {
		b := s.Fresh(g, byAlice, "", nil)
		births, ids = append(births, b), append(ids, b.Intent.ID)
	}
	return c.commit(s.Txns(births, nil, nil, c.client.MaxOps())...), ids
}

func (c *cluster) get(snap *view.Snapshot, id fleet.InstanceID) *fleet.Instance {
	c.t.Helper()
	i, ok := snap.Instances.Get(id)
	if !ok {
		c.t.Fatalf("no instance %s", id)
	}
	return i
}

func TestFreshTakesSmallestFreeOrdinal(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(plain)
	snap, ids := c.fresh(g, snap, 3)
	for n, id := range ids {
		if got := c.get(snap, id).Intent.Ordinal; got != n+1 {
			t.Errorf("instance %d has ordinal %d", n+1, got)
		}
	}
	snap = c.end(c.get(snap, ids[1]), fleet.Crashed)
	snap, more := c.fresh(g, snap, 2)
	for n, want := range []string{"g-2", "g-4"} {
		if got := c.get(snap, more[n]).Intent.Name; got != want {
			t.Errorf("new instance %d is %s, want %s", n, got, want)
		}
	}
	if claim, ok := snap.Name("g-2"); !ok || claim.ID != more[0] {
		t.Errorf("g-2 points to %+v, want %s", claim, more[0])
	}
}

func TestAnOrdinalIsKept(t *testing.T) {
	tests := map[string]struct {
		group  func(*fleet.Group)
		intent func(*fleet.Intent)
	}{
		"of a static group by every record": {func(g *fleet.Group) { g.Spec.Static.Enabled = true }, func(*fleet.Intent) {}},
		"by who is being restarted": {plain, func(i *fleet.Intent) {
			i.Desired, i.RestartPending = fleet.DesiredStopped, true
		}},
	}
	for rule, tt := range tests {
		t.Run(rule, func(t *testing.T) {
			c := newCluster(t)
			g, snap := c.group(tt.group)
			snap, ids := c.fresh(g, snap, 1)
			snap = c.end(c.get(snap, ids[0]), fleet.Crashed)
			i := c.get(snap, ids[0])
			next := i.Intent
			tt.intent(&next)
			snap = c.write(store.Replace(keys.Intent(next.ID), next, i.Intent.ModRev))
			snap, more := c.fresh(g, snap, 1)
			if got := c.get(snap, more[0]).Intent.Name; got != "g-2" {
				t.Errorf("the new one is %s, want g-2", got)
			}
		})
	}
}

func TestOneNameIsGivenOnce(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(plain)
	var results []error
	for seed := range uint64(2) {
		s := New(snap, noon, random(seed))
		b := s.Fresh(g, byAlice, "", nil)
		for _, txn := range s.Txns([]Birth{b}, nil, nil, c.client.MaxOps()) {
			_, err := c.client.Commit(t.Context(), txn)
			results = append(results, err)
		}
	}
	if results[0] != nil || !errs.Is(results[1], errs.AlreadyExists) {
		t.Errorf("two creates from one snapshot: %v", results)
	}
}

// pairs is a random source that gives each number twice.
type pairs uint64

func (p *pairs) Uint64() uint64 {
	*p++
	return uint64(*p+1) / 2
}

func TestOneIDIsGivenOnce(t *testing.T) {
	s := New(view.New(storetest.New(t), nil).Snapshot(), time.Now(), rand.New(new(pairs)))
	if first, second := s.freshID(), s.freshID(); first == second {
		t.Errorf("two instances have the ID %s", first)
	}
}

func TestAgainGetsNewNameIfTaken(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(plain)
	snap, ids := c.fresh(g, snap, 1)
	snap = c.end(c.get(snap, ids[0]), fleet.Stopped)
	again := New(snap, noon, random(1)) // two replicas decide about g-1 from the same state
	b, err := again.Again(g, c.get(snap, ids[0]), byAlice)
	if err != nil {
		t.Fatal(err)
	}
	late := again.Txns([]Birth{b}, nil, nil, c.client.MaxOps())
	fresh := New(snap, noon, random(2))
	other := fresh.Txns([]Birth{fresh.Fresh(g, byMinimum, "", nil)}, nil, nil, c.client.MaxOps())
	c.commit(other...)
	if _, err := c.client.Commit(t.Context(), late[0]); !errs.Is(err, errs.Conflict) {
		t.Errorf("two living instances have the name g-1: %v, want a conflict", err)
	}
	snap, _ = c.view.WaitRev(t.Context(), 1)
	if claim, ok := snap.Name("g-1"); !ok || claim.ID == ids[0] {
		t.Errorf("g-1 points to %+v, want who was first", claim)
	}
}

func TestReusedNameIsNotAssignedTwice(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(plain)
	snap, ids := c.fresh(g, snap, 1)
	snap = c.end(c.get(snap, ids[0]), fleet.Stopped)
	fresh := New(snap, noon, random(2))
	late := fresh.Txns([]Birth{fresh.Fresh(g, byMinimum, "", nil)}, nil, nil, c.client.MaxOps())
	again := New(snap, noon, random(1))
	b, err := again.Again(g, c.get(snap, ids[0]), byAlice)
	if err != nil {
		t.Fatal(err)
	}
	c.commit(again.Txns([]Birth{b}, nil, nil, c.client.MaxOps())...)
	if _, err := c.client.Commit(t.Context(), late[0]); !errs.Is(err, errs.Conflict) {
		t.Errorf("two living instances have the name g-1: %v, want a conflict", err)
	}
}

func TestReplacementLinksBothIntents(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(plain)
	snap, ids := c.fresh(g, snap, 1)
	snap = c.end(c.get(snap, ids[0]), fleet.Crashed)
	s := New(snap, noon, random(9))
	values := map[string]string{"MAP": "desert"}
	b := s.Fresh(g, byAlice, ids[0], values)
	txns := s.Txns([]Birth{b}, nil, nil, c.client.MaxOps())
	snap = c.commit(txns...)
	made := c.get(snap, b.Intent.ID).Intent
	if made.Replaces != ids[0] || made.Place() != string(ids[0]) || made.Values["MAP"] != "desert" || made.Name != "g-1" {
		t.Errorf("successor = %+v", made)
	}
	if old := c.get(snap, ids[0]).Intent; old.ReplacedBy != b.Intent.ID || old.Generation != 1 {
		t.Errorf("predecessor = %+v", old)
	}
	if _, err := c.client.Commit(t.Context(), txns[0]); !errs.Is(err, errs.Conflict) {
		t.Errorf("the same replacement again: %v, want a conflict", err)
	}
}

func TestReplacementsShareOnePlace(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(plain)
	snap, ids := c.fresh(g, snap, 1)
	last := ids[0]
	replace := func(state fleet.State) fleet.Intent {
		t.Helper()
		snap = c.end(c.get(snap, last), state)
		s := New(snap, noon, random(uint64(snap.Rev)))
		b := s.Fresh(g, byAlice, last, nil)
		snap = c.commit(s.Txns([]Birth{b}, nil, nil, c.client.MaxOps())...)
		last = b.Intent.ID
		return b.Intent
	}
	for _, state := range []fleet.State{fleet.Offline, fleet.Crashed, fleet.Offline} {
		if made := replace(state); made.Place() != string(ids[0]) {
			t.Errorf("made for one that is %s it has the place of %s, want %s", state, made.Place(), ids[0])
		}
	}

	// An instance that starts after a stop counts as one more. A restart changes nothing.
	for _, restart := range []bool{true, false} {
		i := c.get(snap, last)
		next := i.Intent
		next.Desired, next.RestartPending = fleet.DesiredStopped, restart
		snap = c.write(store.Replace(keys.Intent(last), next, i.Intent.ModRev))
		snap = c.end(c.get(snap, last), fleet.Stopped)
		s := New(snap, noon, random(9))
		b, err := s.Again(g, c.get(snap, last), byAlice)
		if err != nil {
			t.Fatal(err)
		}
		snap = c.commit(s.Txns([]Birth{b}, nil, nil, c.client.MaxOps())...)
		if kept := b.Intent.Place() == string(ids[0]); kept != restart {
			t.Errorf("restarted %v it has the place of %s", restart, b.Intent.Place())
		}
	}
}

func TestAgain(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(plain)
	snap, ids := c.fresh(g, snap, 1)
	if _, err := New(snap, noon, random(1)).Again(g, c.get(snap, ids[0]), byAlice); !errs.Is(err, errs.Conflict) {
		t.Fatalf("again while it lives: %v, want a conflict", err)
	}
	snap = c.end(c.get(snap, ids[0]), fleet.Crashed)
	again := func(snap *view.Snapshot) *view.Snapshot {
		t.Helper()
		s := New(snap, noon.Add(time.Hour), random(2))
		b, err := s.Again(g, c.get(snap, ids[0]), byMinimum)
		if err != nil {
			t.Fatal(err)
		}
		return c.commit(s.Txns([]Birth{b}, nil, nil, c.client.MaxOps())...)
	}
	snap = again(snap)
	second := c.get(snap, ids[0])
	if in := second.Intent; in.Generation != 2 || in.Name != "g-1" || in.Origin != fleet.OriginManual ||
		!slices.Equal(in.Crashes, []time.Time{noon.Add(time.Hour)}) || !second.NeedsPlacement() {
		t.Errorf("second generation = %+v", in)
	}

	// Another instance took the name while it was down, so it gets a new one.
	snap = c.end(second, fleet.Crashed)
	snap, _ = c.fresh(g, snap, 1)
	snap = again(snap)
	if in := c.get(snap, ids[0]).Intent; in.Generation != 3 || in.Name != "g-2" || len(in.Crashes) != 2 {
		t.Errorf("third generation = %+v, want g-2", in)
	}
	if claim, ok := snap.Name("g-2"); !ok || claim.ID != ids[0] {
		t.Errorf("g-2 points to %+v", claim)
	}

	// Another revision of the group may fix the crashes, so it starts without earlier ones.
	snap = c.end(c.get(snap, ids[0]), fleet.Crashed)
	cured := *g
	cured.Revision++
	b, err := New(snap, noon, random(3)).Again(&cured, c.get(snap, ids[0]), byMinimum)
	if err != nil || len(b.Intent.Crashes) != 0 {
		t.Errorf("of another revision: %+v, %v", b.Intent, err)
	}
}

func TestRenewedUsesCurrentGroup(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(plain)
	snap, ids := c.fresh(g, snap, 1)
	first := c.get(snap, ids[0])
	next := *g
	next.Revision, next.Spec.Resources.MemoryMiB = 2, 5
	snap = c.write(store.Replace(keys.Group("g"), next, g.ModRev))
	changed, _ := snap.Groups.Get("g")
	s := New(snap, noon.Add(time.Hour), random(2))
	b, err := s.Renewed(changed, first, byMinimum)
	if err != nil {
		t.Fatal(err)
	}
	snap = c.commit(s.Txns([]Birth{b}, nil, nil, c.client.MaxOps())...)
	second := c.get(snap, ids[0])
	if in := second.Intent; in.Generation != 2 || in.GroupRevision != 2 || in.Name != "g-1" || in.Plan == first.Intent.Plan || !second.NeedsPlacement() {
		t.Errorf("second generation = %+v", in)
	}
	if p, ok := snap.Plans.Get(second.Intent.Plan); !ok || p.Plan.Resources.MemoryMiB != 5 {
		t.Errorf("its plan is %+v", p)
	}
	ended := c.end(second, fleet.Crashed)
	if _, err := New(ended, noon, random(1)).Renewed(changed, c.get(ended, ids[0]), byMinimum); !errs.Is(err, errs.Conflict) {
		t.Errorf("of one that has ended: %v, want a conflict", err)
	}
}

func TestAgainAvoidsNameFromSameSpawner(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(plain)
	snap, ids := c.fresh(g, snap, 1)
	snap = c.end(c.get(snap, ids[0]), fleet.Stopped)
	s := New(snap, noon, random(3))
	fresh := s.Fresh(g, byMinimum, "", nil)
	again, err := s.Again(g, c.get(snap, ids[0]), byAlice)
	if err != nil {
		t.Fatal(err)
	}
	if fresh.Intent.Name != "g-1" || again.Intent.Name != "g-2" {
		t.Errorf("names = %s and %s, want g-1 and g-2", fresh.Intent.Name, again.Intent.Name)
	}
	c.commit(s.Txns([]Birth{fresh, again}, nil, nil, c.client.MaxOps())...)
}

func TestTxnsPacksUpToTheLimit(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(plain)
	s := New(snap, noon, random(4))
	var births []Birth
	for range 200 {
		births = append(births, s.Fresh(g, byMinimum, "", nil))
	}
	unchanged := store.Unchanged(keys.Group("g"), g.ModRev)
	fence := store.FenceOf(keys.Group("g"), g.CreateRev)
	txns := s.Txns(births, []store.Fence{fence}, []store.Guard{unchanged}, c.client.MaxOps())
	for n, txn := range txns {
		if txn.Size() > c.client.MaxOps() {
			t.Errorf("transaction %d has %d comparisons", n, txn.Size())
		}
		if !slices.Contains(txn.Fences, fence) || !slices.Contains(txn.Guards, unchanged) {
			t.Errorf("transaction %d lacks the fence or the guard", n)
		}
	}
	if len(txns) != 4 {
		t.Errorf("%d transactions for 200 instances, want 4", len(txns))
	}
	snap = c.commit(txns...)
	if snap.Instances.Len() != 200 || snap.Plans.Len() != 1 {
		t.Errorf("%d instances of %d plans, want 200 of one", snap.Instances.Len(), snap.Plans.Len())
	}
	c.write(store.Replace(keys.Group("g"), *g, g.ModRev))
	late := New(snap, noon, random(5))
	for _, txn := range late.Txns([]Birth{late.Fresh(g, byMinimum, "", nil)}, nil, []store.Guard{unchanged}, c.client.MaxOps()) {
		if _, err := c.client.Commit(t.Context(), txn); !errs.Is(err, errs.Conflict) {
			t.Errorf("a create for a group that changed: %v, want a conflict", err)
		}
	}
}

func TestPlanIsTouchedOrGuarded(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(plain)
	snap, ids := c.fresh(g, snap, 1)
	digest := c.get(snap, ids[0]).Intent.Plan
	touched := func(snap *view.Snapshot) time.Time {
		p, ok := snap.Plans.Get(digest)
		if !ok {
			t.Fatal("the plan is gone")
		}
		return p.TouchedAt
	}
	make1 := func(snap *view.Snapshot, now time.Time) ([]store.Txn, Birth) {
		s := New(snap, now, random(uint64(now.Unix())))
		b := s.Fresh(g, byAlice, "", nil)
		return s.Txns([]Birth{b}, nil, nil, c.client.MaxOps()), b
	}
	soon, _ := make1(snap, noon.Add(touchAfter))
	snap = c.commit(soon...)
	if got := touched(snap); !got.Equal(noon) {
		t.Errorf("touched at %v by a reference soon after, want %v still", got, noon)
	}
	later := noon.Add(touchAfter + time.Minute)
	renewing, _ := make1(snap, later)
	snap = c.commit(renewing...)
	if got := touched(snap); !got.Equal(later) {
		t.Errorf("touched at %v, want %v", got, later)
	}
	demanding, _ := make1(snap, later)
	p, _ := snap.Plans.Get(digest)
	c.write(store.Remove(keys.Plan(digest), p.ModRev))
	if _, err := c.client.Commit(t.Context(), demanding[0]); !errs.Is(err, errs.Conflict) {
		t.Errorf("a create whose plan was collected meanwhile: %v, want a conflict", err)
	}
}

func TestNewPlanGuardsItsVersions(t *testing.T) {
	c := newCluster(t)
	ref := content.TemplateRef{Group: "g", Name: "t"}
	version := content.TemplateVersion{TemplateRef: ref, Digest: "d"}
	g, _ := c.group(func(g *fleet.Group) { g.Spec.Templates.AllOf = []content.TemplateLayer{{TemplateRef: ref}} })
	c.write(store.Create(keys.TemplateVersion(ref, "d"), version))
	snap := c.write(store.Create(keys.TemplateHead(ref), content.TemplateHead{TemplateRef: ref, Digest: "d"}))
	spawn := func(seed uint64) []store.Txn {
		s := New(snap, noon, random(seed))
		return s.Txns([]Birth{s.Fresh(g, byMinimum, "", nil)}, nil, nil, c.client.MaxOps())
	}
	txns := spawn(1)
	have, err := store.Get(t.Context(), c.client, keys.TemplateVersion(ref, "d"))
	if err != nil {
		t.Fatal(err)
	}
	c.write(store.Remove(keys.TemplateVersion(ref, "d"), have.ModRev))
	if _, err := c.client.Commit(t.Context(), txns[0]); !errs.Is(err, errs.Conflict) {
		t.Errorf("a plan of a version that was deleted meanwhile: %v", err)
	}
	c.write(store.Create(keys.TemplateVersion(ref, "d"), version))
	snap = c.commit(txns...)
	if snap.Instances.Len() != 1 {
		t.Errorf("%d instances", snap.Instances.Len())
	}
	if guards := spawn(2)[0].Guards; len(guards) != 1 {
		t.Errorf("a plan that exists demands its versions again: %v", guards)
	}
}

func TestPlansWithManyLayersFit(t *testing.T) {
	c := newCluster(t)
	var writes []store.Write
	g, _ := c.group(func(g *fleet.Group) { g.Spec.Templates.AllInGroups = []string{"many"} })
	for n := range 40 {
		ref := content.TemplateRef{Group: "many", Name: fmt.Sprint("t", n)}
		writes = append(writes, store.Create(keys.TemplateVersion(ref, "d"), content.TemplateVersion{TemplateRef: ref, Digest: "d"}),
			store.Create(keys.TemplateHead(ref), content.TemplateHead{TemplateRef: ref, Digest: "d"}))
	}
	snap := c.write(writes...)
	s := New(snap, noon, random(1))
	var births []Birth
	for range 100 {
		births = append(births, s.Fresh(g, byMinimum, "", nil))
	}
	if snap = c.commit(s.Txns(births, nil, nil, c.client.MaxOps())...); snap.Instances.Len() != 100 {
		t.Errorf("%d instances", snap.Instances.Len())
	}
}

func TestAWokenInstanceKeepsItsPlanAndName(t *testing.T) {
	c := newCluster(t)
	g, snap := c.group(plain)
	snap, ids := c.fresh(g, snap, 1)
	i := c.get(snap, ids[0])
	cause := Cause{Origin: fleet.OriginManual, Reason: fleet.ReasonWoken, Message: "because"}
	if _, err := New(snap, noon, random(1)).Woken(g, i, cause); !errs.Is(err, errs.Conflict) {
		t.Errorf("an instance that is awake is woken: %v", err)
	}
	asleep := i.Intent
	asleep.Sleep = &fleet.Nap{At: noon, Reason: fleet.ReasonAsleep}
	changed := *g
	changed.Revision, changed.Spec.Command = 2, "other"
	snap = c.write(store.Replace(keys.Intent(ids[0]), asleep, i.Intent.ModRev), store.Replace(keys.Group("g"), changed, g.ModRev))
	snap = c.end(c.get(snap, ids[0]), fleet.Sleeping)
	i = c.get(snap, ids[0])
	g, _ = snap.Groups.Get("g")
	s := New(snap, noon, random(1))
	b, err := s.Woken(g, i, cause)
	if err != nil {
		t.Fatal(err)
	}
	snap = c.commit(s.Txns([]Birth{b}, nil, nil, c.client.MaxOps())...)
	woken := c.get(snap, ids[0]).Intent
	if woken.Plan != i.Intent.Plan || woken.GroupRevision != 1 || woken.Name != i.Intent.Name || woken.Generation != 2 || woken.Sleep != nil || woken.Reason != fleet.ReasonWoken {
		t.Errorf("woken as %+v", woken)
	}
}
