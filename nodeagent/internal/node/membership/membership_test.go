package membership

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/nodeagent/internal/node/deadline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const node = fleet.NodeID("node-1")

// An operator may delete the node after the join has checked that and before the session is open.
// The node would then exist with a mark of deletion that nothing removes.
func TestDeletedNodeDoesNotJoin(t *testing.T) {
	for _, cordoned := range []bool{false, true} { // with and without earlier settings by an operator
		client := storetest.New(t)
		ctx := t.Context()
		var rev int64
		if cordoned {
			var err error
			if rev, err = client.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(keys.NodeDesired(node), fleet.NodeDesired{Node: node, Cordoned: true})}}); err != nil {
				t.Fatal(err)
			}
		}
		record := fleet.Node{ID: node, DataUUID: "uuid"}
		left, err := store.OpenSession(ctx, client, keys.NodeSession(node), fleet.NodeSession{Node: node, DataUUID: "uuid", Holder: "lock"}, time.Minute, false)
		if err != nil {
			t.Fatal(err)
		}
		left.Abandon()
		m := New(Config{Store: client, Record: record, Holder: "lock", Log: slog.New(slog.DiscardHandler), Joining: func() error {
			_, err := client.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(keys.NodeDesired(node), fleet.NodeDesired{Node: node, Deleted: true}, rev)}})
			return err
		}})
		s, _, err := m.join(ctx)
		if s != nil {
			s.Close(ctx)
		}
		if !errs.Is(err, errs.Unavailable) {
			t.Errorf("joined though it was deleted meanwhile: %v, want to be told to try again", err)
		}
		if _, _, err := m.join(ctx); !errs.Is(err, errs.Unavailable) {
			t.Errorf("joined while its deletion is under way: %v", err)
		}
	}
}

func TestRevokedNodeJoinsAfterRevocationEnds(t *testing.T) {
	client := storetest.New(t)
	ctx := t.Context()
	bar := func(rev int64, until time.Time) int64 {
		t.Helper()
		next, err := client.Commit(ctx, store.Txn{Writes: []store.Write{store.Replace(keys.RevokedNode(node), cluster.RevokedNode{Node: node, Until: until, By: "admin"}, rev)}})
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	left, err := store.OpenSession(ctx, client, keys.NodeSession(node), fleet.NodeSession{Node: node, DataUUID: "uuid", Holder: "lock"}, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	left.Abandon()
	until := time.Now().Add(time.Hour)
	rev := bar(0, until)
	var meanwhile func() error
	m := New(Config{
		Store: client, Record: fleet.Node{ID: node, DataUUID: "uuid"}, Holder: "lock", Log: slog.New(slog.DiscardHandler),
		Joining: func() error { return meanwhile() },
		Now:     func() time.Time { return until.Add(time.Hour) }, // the host's clock does not end it
	})
	meanwhile = func() error { t.Error("its session was taken over"); return nil }
	if _, _, err := m.join(ctx); !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "orrery unrevoke node node-1") {
		t.Errorf("joined though it is revoked: %v", err)
	}
	if !m.Revoked(ctx) {
		t.Error("what its instances say is thought to arrive")
	}
	let := func() {
		t.Helper()
		if _, err := client.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(keys.RevokedNode(node), rev)}}); err != nil {
			t.Fatal(err)
		}
	}
	let()
	meanwhile = func() error { rev = bar(0, until); return nil }
	if s, _, err := m.join(ctx); !errs.Is(err, errs.Unavailable) {
		t.Errorf("joined though it was revoked meanwhile: %v, %v", s, err)
	}
	let()
	meanwhile = func() error { return nil }
	s, _, err := m.join(ctx)
	if err != nil {
		t.Fatalf("the record is gone: %v", err)
	}
	if m.Revoked(ctx) {
		t.Error("what its instances say is thought not to arrive")
	}
	s.Close(ctx)
}

func TestBlockNeedsOwnSession(t *testing.T) {
	client := storetest.New(t)
	ctx := t.Context()
	m := New(Config{Store: client, Record: fleet.Node{ID: node, DataUUID: "uuid"}, Holder: "lock", Log: slog.New(slog.DiscardHandler), Joining: func() error { return nil }})
	blocked := func() int {
		t.Helper()
		record, err := store.Get(ctx, client, keys.Node(node))
		if err != nil && !errs.Is(err, errs.NotFound) {
			t.Fatal(err)
		}
		return len(record.BlockedPorts)
	}
	m.Block(ctx, fleet.BlockedPort{Port: 25565, Until: time.Now().Add(fleet.PortBlockedFor)})
	if n := blocked(); n != 0 {
		t.Errorf("%d ports are blocked by an agent that has not joined", n)
	}
	s, cluster, err := m.join(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m.recordJoin(s, cluster, time.Now())
	m.Block(ctx, fleet.BlockedPort{Port: 25565, Until: time.Now().Add(fleet.PortBlockedFor)})
	if n := blocked(); n != 1 {
		t.Errorf("%d ports are blocked by the node's agent, want 1", n)
	}
	if err := store.RevokeSession(ctx, client, keys.NodeSession(node), s.Fence().Epoch()); err != nil {
		t.Fatal(err)
	}
	m.Block(ctx, fleet.BlockedPort{Port: 25566, Until: time.Now().Add(fleet.PortBlockedFor)}) // the agent has not noticed yet
	if n := blocked(); n != 1 {
		t.Errorf("%d ports are blocked after the session was revoked, want 1", n)
	}
	s.Close(ctx)
}

// Without space etcd refuses leases and writes. An agent that restarts then continues its
// predecessor's session, and joins as usual when there is space again.
func TestRestartWithoutEtcdSpaceKeepsSession(t *testing.T) {
	etcd := storetest.StartSmall(t, 4<<20)
	client := etcd.Client(t)
	if _, err := client.Join(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	file, err := deadline.Create(filepath.Join(t.TempDir(), "deadline"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const ttl = 5 * time.Second
	config := func(joined chan *store.Session, deadlines *deadline.Keeper) Config {
		return Config{
			Store: client, Record: fleet.Node{ID: node, DataUUID: "uuid"}, Holder: "lock", TTL: ttl, Log: slog.New(slog.DiscardHandler),
			Joining: deadlines.Joining, Replacing: deadlines.Replacing, Joined: func(s *store.Session) { deadlines.Joined(s); joined <- s },
		}
	}
	keeper := func(ending func(deadline.Stage)) *deadline.Keeper {
		return deadline.NewKeeper(deadline.Config{File: file, Boot: "boot", TTL: ttl, Ending: ending, Log: slog.New(slog.DiscardHandler)})
	}
	first := make(chan *store.Session, 1)
	before, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	m := New(config(first, keeper(func(deadline.Stage) {})))
	go func() { ended <- m.Run(before) }()
	epoch := (<-first).Fence().Epoch()
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	m.Leave(t.Context(), false)
	etcd.Fill(t)

	joined := make(chan *store.Session, 1)
	deadlines := keeper(func(stage deadline.Stage) {
		if stage == deadline.Lapsed {
			t.Error("exclusive instances are ended")
		}
	})
	successor := New(config(joined, deadlines))
	ctx, end := context.WithCancel(t.Context())
	go func() { ended <- successor.Run(ctx) }()
	kept := make(chan error, 1)
	go func() { kept <- deadlines.Run(ctx) }()
	s := <-joined
	if s.Fence().Epoch() != epoch {
		t.Fatalf("epoch %d, want %d", s.Fence().Epoch(), epoch)
	}
	for range 5 { // longer than the lease would have lived
		<-s.Renewed()
	}
	if have, err := store.Get(t.Context(), client, keys.NodeSession(node)); err != nil || have.CreateRev != epoch {
		t.Errorf("the session in the store is of epoch %d, %v", have.CreateRev, err)
	}
	etcd.Free(t)
	if s = <-joined; s.Fence().Epoch() <= epoch {
		t.Errorf("epoch %d after there is space again", s.Fence().Epoch())
	}
	<-s.Renewed()
	end()
	for _, done := range []chan error{ended, kept} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	successor.Leave(t.Context(), true)
}

// records are the stored record and session of the node, or nil.
func records(t *testing.T, c *store.Client) (*fleet.Node, *fleet.NodeSession) {
	t.Helper()
	record, err := store.Get(t.Context(), c, keys.Node(node))
	if err != nil {
		t.Fatal(err)
	}
	session, err := store.Get(t.Context(), c, keys.NodeSession(node))
	if errs.Is(err, errs.NotFound) {
		return &record, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return &record, &session
}

// member returns a Member that has joined.
func member(t *testing.T, c *store.Client, ttl time.Duration) (*Member, *store.Session) {
	t.Helper()
	m := New(Config{Store: c, Record: fleet.Node{ID: node, DataUUID: "uuid"}, Holder: "lock", TTL: ttl, Log: slog.New(slog.DiscardHandler), Joining: func() error { return nil }})
	s, cluster, err := m.join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.recordJoin(s, cluster, time.Now())
	return m, s
}

func TestJoinWritesRecordWithSession(t *testing.T) {
	c := storetest.New(t)
	var before int64
	for range 2 {
		m, s := member(t, c, 2500*time.Millisecond)
		record, session := records(t, c)
		if session == nil || record.ModRev != session.CreateRev || record.ModRev <= before || session.CreateRev != s.Fence().Epoch() {
			t.Fatalf("the record is of revision %d after %d, the session %+v", record.ModRev, before, session)
		}
		// etcd counts in whole seconds.
		if granted := s.Deadline().Sub(s.Confirmed()); time.Duration(record.SessionTTLSeconds)*time.Second != granted {
			t.Errorf("the record says a TTL of %d s, etcd granted %v", record.SessionTTLSeconds, granted)
		}
		m.Block(t.Context(), fleet.BlockedPort{Port: 25565, Until: time.Now().Add(fleet.PortBlockedFor)})
		if written, _ := records(t, c); written.SessionTTLSeconds != record.SessionTTLSeconds {
			t.Errorf("a TTL of %d s after another write, want %d s", written.SessionTTLSeconds, record.SessionTTLSeconds)
		} else {
			before = written.ModRev
		}
		m.Leave(t.Context(), false)
	}
}

func TestFreedPortsAreUnblocked(t *testing.T) {
	c := storetest.New(t)
	m, s := member(t, c, time.Minute)
	defer m.Leave(t.Context(), false)
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	until := time.Now().Add(fleet.PortBlockedFor).UTC()
	free, held, own, expired, again := freePort(t), l.Addr().(*net.TCPAddr).Port, freePort(t), freePort(t), freePort(t)
	m.cfg.InUse = func() map[int]bool { return map[int]bool{own: true} }
	for port, until := range map[int]time.Time{free: until, held: until, own: until, expired: time.Now().Add(-time.Second), again: until} {
		m.Block(t.Context(), fleet.BlockedPort{Port: port, Until: until})
	}
	found := m.freePorts()
	if got := slices.Sorted(slices.Values(numbers(found))); !slices.Equal(got, slices.Sorted(slices.Values([]int{free, again}))) {
		t.Fatalf("free of free %d, held %d, own %d, expired %d, again %d: %v", free, held, own, expired, again, got)
	}
	m.Block(t.Context(), fleet.BlockedPort{Port: again, Until: until.Add(time.Second)})
	m.unblock(t.Context(), s.Fence(), found)
	record, _ := records(t, c)
	left := slices.Sorted(slices.Values(numbers(record.BlockedPorts)))
	if !slices.Equal(left, slices.Sorted(slices.Values([]int{held, own, again}))) {
		t.Errorf("free %d; still blocked: %v", free, left)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestLeaveReleasesSession(t *testing.T) {
	c := storetest.New(t)
	m, _ := member(t, c, time.Minute)
	m.Leave(t.Context(), true)
	if record, session := records(t, c); session != nil || !record.Released {
		t.Errorf("after it left: released %v, session %+v", record.Released, session)
	}
	m, s := member(t, c, time.Minute)
	if record, _ := records(t, c); record.Released {
		t.Error("the next join keeps what the one before released")
	}
	if err := store.RevokeSession(t.Context(), c, keys.NodeSession(node), s.Fence().Epoch()); err != nil {
		t.Fatal(err)
	}
	m.Leave(t.Context(), true) // its session has already ended
	if record, _ := records(t, c); record.Released {
		t.Error("an agent released instances without a session")
	}
	m, _ = member(t, c, time.Minute)
	m.Leave(t.Context(), false)
	if record, session := records(t, c); session == nil || record.Released {
		t.Errorf("an agent that leaves its instances running: released %v, session %+v", record.Released, session)
	}
}
