package view_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

type log struct {
	mu      sync.Mutex
	batches []view.Batch
}

func (l *log) hear(b view.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches = append(l.batches, b)
}

func (l *log) changes() []view.Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []view.Change
	for _, b := range l.batches {
		out = append(out, b.Changes...)
	}
	return out
}

func start(t *testing.T, c *store.Client) (*view.View, *log) {
	t.Helper()
	v, l := view.New(c, nil), &log{}
	v.Subscribe(l.hear)
	run(t, v)
	return v, l
}

// run runs a view until the test ends and waits for its first list.
func run(t *testing.T, v *view.View) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = v.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if err := v.Synced(bounded(t)); err != nil {
		t.Fatal(err)
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	t.Cleanup(cancel)
	return ctx
}

func commit(t *testing.T, c *store.Client, writes ...store.Write) int64 {
	t.Helper()
	rev, err := c.Commit(t.Context(), store.Txn{Writes: writes})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func TestInstanceRecordsJoinInAnyOrder(t *testing.T) {
	c := storetest.New(t)
	v, _ := start(t, c)
	id := fleet.InstanceID("abc123")
	commit(t, c, store.Create(keys.Status(id), fleet.Status{Instance: id, Generation: 1, State: fleet.Online}))
	commit(t, c, store.Create(keys.Placement("n1", id), fleet.Placement{Instance: id, Node: "n1", Generation: 1, Port: 7}))
	rev := commit(t, c,
		store.Create(keys.Intent(id), fleet.Intent{ID: id, Name: "lobby-1", Group: "lobby", Generation: 1, Desired: fleet.DesiredRunning}),
		store.Create(keys.Name("lobby", 1), keys.NameClaim{ID: id}))
	s, err := v.WaitRev(bounded(t), rev)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"abc123", "lobby-1"} {
		i, ok := s.Find(ref)
		if !ok || i.State() != fleet.Online || i.Port() != 7 || i.Intent.ModRev != rev {
			t.Errorf("Find(%q) = %+v, %v", ref, i, ok)
		}
	}
	if got := len(slices.Collect(s.GroupInstances("lobby"))); got != 1 {
		t.Errorf("%d instances in the group", got)
	}
	if got := len(slices.Collect(s.NodeInstances("n1"))); got != 1 {
		t.Errorf("%d instances on the node", got)
	}
	if s.Orphans.Len() != 0 {
		t.Error("records stayed orphans")
	}
}

func TestInstanceByToken(t *testing.T) {
	c := storetest.New(t)
	v, _ := start(t, c)
	holders := func(rev int64) string {
		t.Helper()
		s, err := v.WaitRev(bounded(t), rev)
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, hash := range []string{"", "h1", "h2"} {
			if i, ok := s.InstanceByToken(hash); ok {
				out += hash + " is of " + string(i.Intent.ID) + "; "
			}
		}
		return out
	}
	at := map[fleet.InstanceID]int64{}
	has := func(id fleet.InstanceID, hash, want string) {
		t.Helper()
		status := fleet.Status{Instance: id, Generation: 1, State: fleet.Online, TokenHash: hash}
		at[id] = commit(t, c, store.Replace(keys.Status(id), status, at[id]))
		if got := holders(at[id]); got != want {
			t.Errorf("with %q for %s: %q, want %q", hash, id, got, want)
		}
	}
	exists := func(id fleet.InstanceID, want string) {
		t.Helper()
		rev := commit(t, c, store.Create(keys.Intent(id), fleet.Intent{ID: id, Name: string(id), Group: "lobby", Generation: 1}))
		if got := holders(rev); got != want {
			t.Errorf("%s exists: %q, want %q", id, got, want)
		}
	}
	has("one111", "h1", "") // without an intent it belongs to no instance
	exists("one111", "h1 is of one111; ")
	exists("two222", "h1 is of one111; ")
	has("two222", "h2", "h1 is of one111; h2 is of two222; ")
	has("one111", "", "h2 is of two222; ")
	has("one111", "h2", "h2 is of one111; ")
	has("two222", "", "h2 is of one111; ") // two222 had h2 before: it stays with one111
	has("one111", "h1", "h1 is of one111; ")
	if got := holders(commit(t, c, store.Remove(keys.Status("one111"), at["one111"]))); got != "" {
		t.Errorf("without a status: %q", got)
	}
}

func TestVersionChangesWithItsKinds(t *testing.T) {
	c := storetest.New(t)
	v, _ := start(t, c)
	at := func(rev int64) *view.Snapshot {
		t.Helper()
		s, err := v.WaitRev(bounded(t), rev)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := at(commit(t, c, store.Create(keys.Group("lobby"), fleet.Group{Name: "lobby"})))
	groups, both := first.Version(view.KindGroup), first.Version(view.KindGroup, view.KindUser)
	users := at(commit(t, c, store.Create(keys.User("ann"), account.User{Username: "ann"})))
	if users.Version(view.KindGroup) != groups {
		t.Error("the version of the groups moved with a user")
	}
	if users.Version(view.KindGroup, view.KindUser) == both || users.Version(view.KindUser) == 0 {
		t.Error("the version of users did not move with one")
	}
	if first.Version(view.KindGroup, view.KindUser) != both {
		t.Error("a snapshot's version changed")
	}
	record, err := store.Get(t.Context(), c, keys.Group("lobby"))
	if err != nil {
		t.Fatal(err)
	}
	gone := at(commit(t, c, store.Remove(keys.Group("lobby"), record.ModRev)))
	if gone.Version(view.KindGroup) == groups {
		t.Error("the version of the groups did not move with the removal of one")
	}
	if gone.Version(view.KindNode) != 0 {
		t.Error("nodes, of which there were none, have a version")
	}
}

func TestASnapshotNeverChanges(t *testing.T) {
	c := storetest.New(t)
	v, _ := start(t, c)
	var revs []int64
	for i := range 50 {
		revs = append(revs, commit(t, c, store.Create(keys.Group(fleet.GroupName(fmt.Sprintf("g%02d", i))), fleet.Group{})))
	}
	s, err := v.WaitRev(bounded(t), revs[len(revs)-1])
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		rev := commit(t, c, store.Remove(keys.Group(fleet.GroupName(fmt.Sprintf("g%02d", i))), revs[i]))
		if _, err := v.WaitRev(bounded(t), rev); err != nil {
			t.Fatal(err)
		}
	}
	if s.Groups.Len() != 50 {
		t.Errorf("the old snapshot now has %d groups", s.Groups.Len())
	}
	if now := v.Snapshot().Groups.Len(); now != 0 {
		t.Errorf("the new one has %d", now)
	}
}

func TestListenersReceiveEachChangeOnce(t *testing.T) {
	c := storetest.New(t)
	v, l := start(t, c)
	k := keys.Group("lobby")
	r1 := commit(t, c, store.Create(k, fleet.Group{Name: "lobby", Revision: 1}))
	r2 := commit(t, c, store.Replace(k, fleet.Group{Name: "lobby", Revision: 2}, r1))
	r3 := commit(t, c, store.Remove(k, r2))
	if _, err := v.WaitRev(bounded(t), r3); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ch := range l.changes() {
		got = append(got, fmt.Sprintf("%d %v->%v", ch.Rev, revision(ch.Before), revision(ch.After)))
	}
	want := []string{fmt.Sprintf("%d 0->1", r1), fmt.Sprintf("%d 1->2", r2), fmt.Sprintf("%d 2->0", r3)}
	if !slices.Equal(got, want) {
		t.Errorf("heard %v, want %v", got, want)
	}
}

func revision(v any) int64 {
	if g, ok := v.(*fleet.Group); ok && g != nil {
		return g.Revision
	}
	return 0
}

func TestRelistIsDeliveredAsDifference(t *testing.T) {
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	v, l := start(t, c)
	for _, g := range []fleet.GroupName{"stays", "goes", "moves"} {
		rev := commit(t, c, store.Create(keys.Group(g), fleet.Group{Name: g, Revision: 1}))
		if _, err := v.WaitRev(bounded(t), rev); err != nil {
			t.Fatal(err)
		}
	}
	heard := len(l.changes())
	etcd.Stop()
	etcd.Restart(t)
	raw := etcd.Raw()
	if _, err := raw.Delete(t.Context(), keys.Group("goes").String()); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Put(t.Context(), keys.Group("moves").String(), `{"name":"moves","revision":2}`); err != nil {
		t.Fatal(err)
	}
	etcd.Compact(t)
	resp, err := raw.Put(t.Context(), keys.Group("comes").String(), `{"name":"comes","revision":1}`)
	if err != nil {
		t.Fatal(err)
	}
	s, err := v.WaitRev(bounded(t), resp.Header.Revision)
	if err != nil {
		t.Fatal(err)
	}
	if s.Groups.Len() != 3 {
		t.Errorf("%d groups", s.Groups.Len())
	}
	got := map[string]string{}
	for _, ch := range l.changes()[heard:] {
		got[ch.Key[0]] = fmt.Sprintf("%d->%d", revision(ch.Before), revision(ch.After))
	}
	want := map[string]string{"goes": "1->0", "moves": "1->2", "comes": "0->1"}
	if len(got) != len(want) {
		t.Errorf("heard %v, want %v", got, want)
	}
	for k, w := range want {
		if got[k] != w {
			t.Errorf("%s: heard %q, want %q", k, got[k], w)
		}
	}
}

func TestWaitRevWaitsForListeners(t *testing.T) {
	c := storetest.New(t)
	v := view.New(c, nil)
	var first, second atomic.Int64
	held := make(chan struct{}, 1)
	v.Subscribe(func(b view.Batch) { first.Store(b.After.Rev) })
	v.Subscribe(func(b view.Batch) {
		if len(b.Changes) > 0 {
			held <- struct{}{} // the snapshot is published, but the listener has not returned
			runtime.Gosched()
		}
		second.Store(b.After.Rev)
	})
	run(t, v)
	for i := range 200 {
		rev := commit(t, c, store.Create(keys.Group(fleet.GroupName(fmt.Sprintf("g%d", i))), fleet.Group{}))
		<-held
		if _, err := v.WaitRev(bounded(t), rev); err != nil {
			t.Fatal(err)
		}
		if first.Load() < rev || second.Load() < rev {
			t.Fatalf("waited for %d, the listeners have heard up to %d and %d", rev, first.Load(), second.Load())
		}
	}
}

func TestWaitRevEndsWithItsContext(t *testing.T) {
	c := storetest.New(t)
	v, _ := start(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.WaitRev(ctx, 1<<40); !errs.Is(err, errs.Canceled) {
		t.Errorf("err = %v", err)
	}
}

func TestWaitRevDistinguishesLagFromOutage(t *testing.T) {
	etcd := storetest.Start(t)
	c, err := store.Dial([]string{etcd.Endpoint}, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	v, _ := start(t, c)
	wait := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := v.WaitRev(ctx, 1<<40)
		return err
	}
	if err := wait(); !errors.Is(err, view.ErrBehind) || errors.Is(err, store.ErrUnreachable) || !errs.Is(err, errs.Unavailable) {
		t.Errorf("with etcd: %v", err)
	}
	etcd.Stop()
	await.That(t, "the loss of etcd", func() string {
		_, away := c.Away()
		return await.Unless(away, "it is not noticed")
	})
	if err := wait(); errors.Is(err, view.ErrBehind) || !errors.Is(err, store.ErrUnreachable) || !errs.Is(err, errs.Unavailable) {
		t.Errorf("without etcd: %v", err)
	}
}

func TestStartingViewMissesNothing(t *testing.T) {
	c, faults := storetest.Start(t).Faulty(t)
	other, _ := start(t, c)
	asked := faults.Overtake()
	v := view.New(c, nil)
	ctx := bounded(t)
	var waiting sync.WaitGroup
	t.Cleanup(waiting.Wait)
	var rev int64
	v.Subscribe(func(b view.Batch) {
		if !b.Relisted {
			return
		}
		var err error // between its list and its watch
		if rev, err = c.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(keys.Group("between"), fleet.Group{})}}); err != nil {
			t.Error(err)
			return
		}
		waiting.Go(func() { _, _ = other.WaitRev(t.Context(), rev+1) })
		select {
		case <-asked:
		case <-ctx.Done():
			t.Error("nobody asked etcd how far the watches have come")
		}
	})
	run(t, v)
	s, err := v.WaitRev(ctx, rev)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Groups.Get("between"); !ok {
		t.Errorf("what was written after the list is missing at revision %d", s.Rev)
	}
}

func TestUnreadableRecordIsSkipped(t *testing.T) {
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	v, _ := start(t, c)
	if _, err := etcd.Raw().Put(t.Context(), keys.Group("bad").String(), `{`); err != nil {
		t.Fatal(err)
	}
	rev := commit(t, c, store.Create(keys.Group("good"), fleet.Group{Name: "good"}))
	s, err := v.WaitRev(bounded(t), rev)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Groups.Get("good"); !ok {
		t.Error("the good record is missing")
	}
}

func TestDamagedMarkKeepsItsRevision(t *testing.T) {
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	v, _ := start(t, c)
	var last int64
	for _, key := range []string{keys.Alloc("n1").String(), keys.QuotaAlloc("acme").String()} {
		put, err := etcd.Raw().Put(t.Context(), key, `{`)
		if err != nil {
			t.Fatal(err)
		}
		last = put.Header.Revision
	}
	s, err := v.WaitRev(bounded(t), last)
	if err != nil {
		t.Fatal(err)
	}
	alloc, known := s.Allocs.Get("n1")
	quota, also := s.QuotaAllocs.Get("acme")
	if !known || !also {
		t.Fatalf("alloc known: %v, quota's known: %v", known, also)
	}
	commit(t, c, store.Replace(keys.Alloc("n1"), fleet.Alloc{Node: "n1"}, alloc.ModRev),
		store.Replace(keys.QuotaAlloc("acme"), cluster.QuotaAlloc{Quota: "acme"}, quota.ModRev))
}
