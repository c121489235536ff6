package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestFencedWriteIsRefused(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	ctx := t.Context()

	shard := keys.Shard("scheduler", 7)
	first, err := store.OpenSession(ctx, c, shard, cluster.Shard{Service: "scheduler", Replica: "a"}, time.Second*5, false)
	if err != nil {
		t.Fatal(err)
	}
	first.Abandon() // paused: does not notice the loss of its lease
	if _, err := etcd.Raw().Delete(ctx, shard.String()); err != nil {
		t.Fatal(err)
	}
	second, err := store.OpenSession(ctx, c, shard, cluster.Shard{Service: "scheduler", Replica: "b"}, time.Second*5, false)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close(ctx)
	if second.Fence().Epoch() <= first.Fence().Epoch() {
		t.Errorf("epoch %d after %d: it must grow", second.Fence().Epoch(), first.Fence().Epoch())
	}

	write := store.Create(keys.Alloc("n1"), fleet.Alloc{Node: "n1"})
	_, err = c.Commit(ctx, store.Txn{Fences: []store.Fence{first.Fence()}, Writes: []store.Write{write}})
	if !errs.Is(err, errs.Fenced) {
		t.Fatalf("the former owner's write: %v, want Fenced", err)
	}
	if lost := store.Lost(err); lost == nil || !lost.Fence || len(lost.Keys) != 1 || lost.Keys[0] != shard.String() {
		t.Errorf("LostError = %+v", lost)
	}
	if _, err := store.Get(ctx, c, keys.Alloc("n1")); !errs.Is(err, errs.NotFound) {
		t.Errorf("the refused write left a trace: %v", err)
	}
	if _, err := c.Commit(ctx, store.Txn{Fences: []store.Fence{second.Fence()}, Writes: []store.Write{write}}); err != nil {
		t.Errorf("the owner's write: %v", err)
	}
}

func TestAZeroFenceOwnsNothing(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	_, err := c.Commit(t.Context(), store.Txn{
		Fences: []store.Fence{{}},
		Writes: []store.Write{store.Create(keys.Alloc("n1"), fleet.Alloc{})},
	})
	if !errs.Is(err, errs.Fenced) {
		t.Errorf("err = %v, want Fenced", err)
	}
}

func TestEveryWriteCompares(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	ctx := t.Context()
	k := keys.Group("lobby")
	rev, err := c.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(k, fleet.Group{Name: "lobby"})}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := store.Get(ctx, c, k)
	if err != nil || g.ModRev != rev || g.CreateRev != rev {
		t.Fatalf("group %+v at %d, err %v", g.Rev, rev, err)
	}
	cases := []struct {
		name  string
		write store.Write
		want  errs.Kind
	}{
		{"a create of an existing key is AlreadyExists", store.Create(k, g), errs.AlreadyExists},
		{"a replace of a moved record is Conflict", store.Replace(k, g, rev-1), errs.Conflict},
		{"a removal of a moved record is Conflict", store.Remove(k, rev-1), errs.Conflict},
		{"a replace of a missing record is Conflict", store.Replace(keys.Group("no"), g, rev), errs.Conflict},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			_, err := c.Commit(ctx, store.Txn{Writes: []store.Write{tc.write}})
			if !errs.Is(err, tc.want) {
				t.Errorf("err = %v, want %v", err, tc.want)
			}
		})
	}
}

func TestGuardsAreCheckedAndNamed(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	ctx := t.Context()
	create := func(id fleet.InstanceID, guards ...store.Guard) error {
		_, err := c.Commit(ctx, store.Txn{Guards: guards, Writes: []store.Write{store.Create(keys.Intent(id), fleet.Intent{ID: id})}})
		return err
	}
	k := keys.Group("lobby")
	if err := create("aaaaaa", store.Exists(k)); !errs.Is(err, errs.Conflict) || store.Lost(err).Keys[0] != k.String() {
		t.Errorf("Exists on a missing key: %v", err)
	}
	if err := create("aaaaaa", store.Missing(k)); err != nil {
		t.Errorf("Missing on a missing key: %v", err)
	}
}

func TestTenParallelCreatesGiveOneWinner(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		wins int
	)
	for range 10 {
		wg.Go(func() {
			_, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.Group("one"), fleet.Group{Name: "one"})}})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				wins++
			case !errs.Is(err, errs.AlreadyExists):
				t.Errorf("a loser got %v", err)
			}
		})
	}
	wg.Wait()
	if wins != 1 {
		t.Errorf("%d winners", wins)
	}
}

// recorder keeps the latest state and all changes that a Handler receives.
type recorder struct {
	mu      sync.Mutex
	state   map[string]string
	applied []int64
	resets  int
	rev     int64
	moved   chan struct{}
}

func newRecorder() *recorder {
	return &recorder{state: map[string]string{}, moved: make(chan struct{}, 1)}
}

func (r *recorder) Reset(kvs []store.KeyValue, rev int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.state)
	for _, kv := range kvs {
		r.state[kv.Key] = string(kv.Value)
	}
	r.resets++
	r.rev = rev
	r.wake()
}

func (r *recorder) Apply(changes []store.Change, rev int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ch := range changes {
		r.applied = append(r.applied, ch.ModRev)
		if ch.Removed {
			delete(r.state, ch.Key)
		} else {
			r.state[ch.Key] = string(ch.Value)
		}
	}
	r.rev = rev
	r.wake()
}

func (r *recorder) wake() {
	select {
	case r.moved <- struct{}{}:
	default:
	}
}

func (r *recorder) waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(await.Patience)
	for {
		r.mu.Lock()
		ok := cond()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.moved:
		case <-deadline:
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Fatalf("never saw %s: %d keys at revision %d, %d resets", what, len(r.state), r.rev, r.resets)
		}
	}
}

func TestFollowerRelistsAfterCompaction(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	rec := newRecorder()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Follow(ctx, keys.Groups().String(), rec) }()
	rec.waitFor(t, "the first list", func() bool { return rec.resets == 1 })

	put := func(c *clientv3.Client, name string) {
		if _, err := c.Put(t.Context(), keys.Group(fleet.GroupName(name)).String(), `{"name":"`+name+`"}`); err != nil {
			t.Fatal(err)
		}
	}
	put(etcd.Raw(), "before")
	rec.waitFor(t, "a live change", func() bool { return len(rec.state) == 1 })

	// The stream breaks while etcd is down. After the restart, history advances and is compacted before
	// the follower reconnects.
	etcd.Stop()
	restarted := etcd
	restarted.Restart(t)
	put(etcd.Raw(), "during")
	if _, err := etcd.Raw().Delete(t.Context(), keys.Group("before").String()); err != nil {
		t.Fatal(err)
	}
	etcd.Compact(t)
	put(etcd.Raw(), "after")

	rec.waitFor(t, "everything after the compaction", func() bool {
		_, during := rec.state[keys.Group("during").String()]
		_, after := rec.state[keys.Group("after").String()]
		_, before := rec.state[keys.Group("before").String()]
		return during && after && !before
	})
	rec.mu.Lock()
	for i := 1; i < len(rec.applied); i++ {
		if rec.applied[i] < rec.applied[i-1] {
			t.Errorf("revision %d came after %d", rec.applied[i], rec.applied[i-1])
		}
	}
	rec.mu.Unlock()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Follow returned %v", err)
	}
}

func TestASessionTakenOverEndsTheFirst(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	ctx := t.Context()
	k := keys.NodeSession("n1")
	first, err := store.OpenSession(ctx, c, k, fleet.NodeSession{Node: "n1"}, 3*time.Second, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.OpenSession(ctx, c, k, fleet.NodeSession{Node: "n1"}, 3*time.Second, false); !errs.Is(err, errs.AlreadyExists) {
		t.Fatalf("a second session: %v, want AlreadyExists", err)
	}
	second, err := store.OpenSession(ctx, c, k, fleet.NodeSession{Node: "n1"}, 3*time.Second, true)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close(ctx)
	select {
	case <-first.Done():
	case <-time.After(await.Patience):
		t.Fatal("the first session did not notice")
	}
}

func TestRevokeSessionChecksRevision(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	ctx := t.Context()
	k := keys.NodeSession("n1")
	s, err := store.OpenSession(ctx, c, k, fleet.NodeSession{Node: "n1"}, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	for _, epoch := range []int64{s.Fence().Epoch() - 1, s.Fence().Epoch() + 1} {
		if err := store.RevokeSession(ctx, c, k, epoch); err != nil {
			t.Fatal(err)
		}
		if have, err := store.Get(ctx, c, k); err != nil || have.CreateRev != s.Fence().Epoch() {
			t.Errorf("after the revocation of epoch %d: %+v, %v", epoch, have, err)
		}
	}
	if err := store.RevokeSession(ctx, c, k, s.Fence().Epoch()); err != nil {
		t.Fatal(err)
	}
	if have, err := store.Get(ctx, c, k); !errs.Is(err, errs.NotFound) {
		t.Errorf("it stands: %+v, %v", have, err)
	}
	if err := store.RevokeSession(ctx, c, k, s.Fence().Epoch()); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestSessionSignalsRenewal(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	s, err := store.OpenSession(t.Context(), c, keys.NodeSession("n1"), fleet.NodeSession{Node: "n1"}, time.Second, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	for range 2 {
		renewed, before := s.Renewed(), s.Deadline()
		select {
		case <-renewed:
		case <-time.After(await.Patience):
			t.Fatal("nothing was renewed")
		}
		if after := s.Deadline(); !after.After(before) || !s.Confirmed().Before(after) || s.Confirmed().After(time.Now()) {
			t.Errorf("deadline %v after %v, confirmed at %v", after, before, s.Confirmed())
		}
	}
}

func TestClosingASessionRemovesItsKeysAtOnce(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	ctx := t.Context()
	s, err := store.OpenSession(ctx, c, keys.Session("enforcer", "a"), cluster.Session{}, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Commit(ctx, store.Txn{Writes: []store.Write{store.OnSession(s, keys.Shard("enforcer", 1), cluster.Shard{})}}); err != nil {
		t.Fatal(err)
	}
	s.Close(ctx)
	if _, err := store.Get(ctx, c, keys.Shard("enforcer", 1)); !errs.Is(err, errs.NotFound) {
		t.Errorf("the shard key is still there: %v", err)
	}
}

func TestANewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	meta, err := c.Join(t.Context(), time.Unix(1, 0))
	if err != nil || meta.Schema != keys.Schema || meta.ClusterID == "" {
		t.Fatalf("first join: %+v, %v", meta, err)
	}
	again, err := c.Join(t.Context(), time.Unix(2, 0))
	if err != nil || again.ClusterID != meta.ClusterID {
		t.Errorf("second join: %+v, %v", again, err)
	}
	if _, err := etcd.Raw().Put(t.Context(), keys.Meta().String(), `{"schema":99}`); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Join(t.Context(), time.Unix(3, 0)); !errs.Is(err, errs.Conflict) {
		t.Errorf("a newer schema: %v, want Conflict", err)
	}
}

func TestListReadsPastOnePage(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	const intents, placements, claims = 9000, 3000, 2000 // several pages, several parts of a page, exactly one page
	want := map[string]string{}
	for i := range intents {
		id := fleet.NewInstanceID(uint64(i))
		want[keys.Intent(id).String()] = `{"id":"` + string(id) + `"}`
		if i < placements {
			want[keys.Placement(fleet.NodeID(fmt.Sprint("node-", i%7)), id).String()] = "{}"
		}
		if i < claims {
			want[keys.Claims(id).String()] = "{}"
		}
	}
	want[keys.Meta().String()] = "{}"
	for some := range slices.Chunk(slices.Sorted(maps.Keys(want)), 100) {
		ops := make([]clientv3.Op, 0, len(some))
		for _, key := range some {
			ops = append(ops, clientv3.OpPut(key, want[key]))
		}
		if _, err := etcd.Raw().Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	all, rev, err := store.List(t.Context(), c, keys.Intents())
	if err != nil || len(all) != intents || rev == 0 {
		t.Errorf("%d records at %d, %v", len(all), rev, err)
	}
	got := newRecorder()
	if err := c.History(t.Context(), keys.Root, rev, rev, got); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got.state, want) {
		t.Errorf("the list of everything has %d keys of %d", len(got.state), len(want))
	}
}

func TestListPart(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		value := `{"name":"` + name + `"}`
		if name == "a" || name == "e" {
			value = "what nobody can read"
		}
		if _, err := etcd.Raw().Put(t.Context(), keys.Secret(name).String(), value); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []struct {
		from, n int
		want    string
	}{{1, 3, "b c d"}, {1, 1, "b"}, {3, 1, "d"}, {5, 2, ""}, {1 << 40, 2, ""}, {-1, 2, ""}} {
		part, total, err := store.ListPart(t.Context(), c, keys.Secrets(), p.from, p.n)
		var got []string
		for _, s := range part {
			got = append(got, s.Name)
		}
		if err != nil || total != 5 || strings.Join(got, " ") != p.want {
			t.Errorf("%d from %d: %v of %d, %v", p.n, p.from, got, total, err)
		}
	}
}

func TestGetAll(t *testing.T) {
	t.Parallel()
	c := storetest.New(t)
	var last int64
	for _, name := range []string{"a", "b", "c"} {
		rev, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.User(name), account.User{Username: name})}})
		if err != nil {
			t.Fatal(err)
		}
		last = rev
	}
	keys := []keys.Key[account.User]{keys.User("c"), keys.User("none"), keys.User("a")}
	got, err := store.GetAll(t.Context(), c, keys)
	if err != nil || len(got) != 2 || got[0].Username != "c" || got[0].ModRev != last || got[1].Username != "a" {
		t.Errorf("read %+v, %v", got, err)
	}
	if none, err := store.GetAll[account.User](t.Context(), c, nil); err != nil || len(none) != 0 {
		t.Errorf("of no keys: %v, %v", none, err)
	}
}
