package etcdproxy_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/etcdproxy"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/trust/trusttest"
)

var gateway = pki.Identity{Service: pki.Gateway}

func agent(node string) pki.Identity { return pki.Identity{Service: pki.Agent, Name: node} }

// world is an etcd with proxies in front of it.
type world struct {
	*storetest.Etcd
	own       *store.Client
	authority *trusttest.Authority
	view      *view.View
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Etcd: storetest.Start(t), authority: trusttest.New(t)}
	w.own = w.Client(t)
	if _, err := w.own.Join(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	w.view = view.New(w.own, nil)
	run(t, w.view.Run)
	if err := w.view.Synced(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs a function until the test ends.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = f(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// proxy serves a proxy until the test ends, and returns its URL.
func (w *world) proxy(t *testing.T) string {
	t.Helper()
	peers := w.authority.Peers(gateway)
	p := etcdproxy.New(etcdproxy.Config{Store: w.own, Snapshot: w.view.Snapshot, Peers: peers, Secret: "secret", Log: slog.New(slog.DiscardHandler)})
	mux := http.NewServeMux()
	p.Register(mux)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	run(t, func(ctx context.Context) error { return p.Serve(ctx, l, mux) })
	return "https://" + l.Addr().String()
}

// node returns the client of a node's agent.
func (w *world) node(t *testing.T, node string, urls ...string) *store.Client {
	t.Helper()
	c, err := store.Dial(urls, store.Options{TLS: w.authority.Peers(agent(node)).ClientTLS(gateway)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	await.That(t, "the proxy to be ready", func() string {
		_, err := c.Join(t.Context(), time.Now())
		return await.Unless(err == nil, "%v", err)
	})
	return c
}

// raw returns a client of etcd's own library for a node.
func (w *world) raw(t *testing.T, node, url string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, TLS: w.authority.Peers(agent(node)).ClientTLS(gateway), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func put[T any](t *testing.T, w *world, k keys.Key[T], v T) {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	done, err := w.Raw().Put(t.Context(), k.String(), string(b))
	if err == nil {
		_, err = w.view.WaitRev(t.Context(), done.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnAgentWorksThroughProxies(t *testing.T) {
	w := newWorld(t)
	c := w.node(t, "n1", w.proxy(t), w.proxy(t))
	session, err := store.OpenSession(t.Context(), c, keys.NodeSession("n1"), fleet.NodeSession{Node: "n1"}, time.Second, false, func(time.Duration) store.Txn {
		return store.Txn{Guards: []store.Guard{store.Missing(keys.RevokedNode("n1"))}, Writes: []store.Write{store.Create(keys.Node("n1"), fleet.Node{ID: "n1"})}}
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan store.Change, 100)
	run(t, func(ctx context.Context) error {
		return c.Follow(ctx, keys.PlacementsOn("n1").String(), changes(seen))
	})
	put(t, w, keys.Placement("n1", "abc"), fleet.Placement{Instance: "abc", Group: "g", Node: "n1", Generation: 1})
	if got := <-seen; got.Key != keys.Placement("n1", "abc").String() {
		t.Fatalf("watched %s", got.Key)
	}
	_, err = c.Commit(t.Context(), store.Txn{
		Fences: []store.Fence{session.Fence()}, Writes: []store.Write{store.Create(keys.Status("abc"), fleet.Status{Instance: "abc", Group: "g", Node: "n1", Generation: 1, State: fleet.Online})},
	})
	if err != nil {
		t.Errorf("a status: %v", err)
	}
	if n, err := store.Count(t.Context(), c, keys.NodeSessions()); n != 1 || err != nil {
		t.Errorf("%d sessions, %v", n, err)
	}
	for range 3 { // it outlives its first lease
		select {
		case <-session.Renewed():
		case <-session.Done():
			t.Fatal("the session has ended")
		}
	}
	session.Close(t.Context())
	if _, err := store.Get(t.Context(), c, keys.NodeSession("n1")); !errs.Is(err, errs.NotFound) {
		t.Errorf("after the session's end: %v", err)
	}
}

// changes sends each changed or listed key to a channel.
type changes chan<- store.Change

func (c changes) Reset(kvs []store.KeyValue, _ int64) {
	for _, kv := range kvs {
		c <- store.Change{KeyValue: kv}
	}
}

func (c changes) Apply(all []store.Change, _ int64) {
	for _, ch := range all {
		c <- ch
	}
}

func TestAHostileNodeReachesNothingOfOthers(t *testing.T) {
	w := newWorld(t)
	put(t, w, keys.Placement("n2", "abc"), fleet.Placement{Instance: "abc", Group: "g", Node: "n2", Generation: 1})
	put(t, w, keys.Status("abc"), fleet.Status{Instance: "abc", Group: "g", Node: "n2", Generation: 1})
	put(t, w, keys.Placement("n1", "own"), fleet.Placement{Instance: "own", Group: "g", Node: "n1", Generation: 2})
	put(t, w, keys.Status("gone"), fleet.Status{Instance: "gone", Group: "g", Node: "n1", Generation: 1})
	put(t, w, keys.Placement("n2", "gone"), fleet.Placement{Instance: "gone", Group: "g", Node: "n2", Generation: 2})
	put(t, w, keys.Move("abc"), move.Move{Instance: "abc", Source: "n2", Target: "n3"})
	url := w.proxy(t)
	honest := w.node(t, "n2", url)
	session, err := store.OpenSession(t.Context(), honest, keys.NodeSession("n2"), fleet.NodeSession{Node: "n2"}, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	other, err := w.Raw().Get(t.Context(), keys.NodeSession("n2").String())
	if err != nil {
		t.Fatal(err)
	}
	w.node(t, "n1", url)
	c := w.raw(t, "n1", url)
	txn := func(ops ...clientv3.Op) func(context.Context) error {
		return func(ctx context.Context) error { _, err := c.Txn(ctx).Then(ops...).Commit(); return err }
	}
	record := func(key string, v any, opts ...clientv3.OpOption) func(context.Context) error {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return txn(clientv3.OpPut(key, string(b), opts...))
	}
	read := func(key string, opts ...clientv3.OpOption) func(context.Context) error {
		return func(ctx context.Context) error { _, err := c.Get(ctx, key, opts...); return err }
	}
	watch := func(key string, opts ...clientv3.OpOption) func(context.Context) error {
		return func(ctx context.Context) error {
			for r := range c.Watch(ctx, key, append(opts, clientv3.WithCreatedNotify())...) {
				return r.Err()
			}
			return status.Error(codes.PermissionDenied, "the watch has ended")
		}
	}
	lease := clientv3.LeaseID(other.Kvs[0].Lease)
	if err := read(keys.Tenant("g").String())(t.Context()); err != nil { // to know the user of a static group
		t.Errorf("the number of a group: %v", err)
	}
	for name, try := range map[string]func(context.Context) error{
		"read everything":               read("", clientv3.WithPrefix()),
		"read from its own on":          read(keys.PlacementsOn("n1").String(), clientv3.WithFromKey()),
		"read from before its own":      read(keys.Root+"placements/n0/", clientv3.WithRange(keys.Root+"placements/n1/~")),
		"placements of others":          read(keys.PlacementsOn("n2").String(), clientv3.WithPrefix()),
		"a node with its name's prefix": read(keys.PlacementsOn("n10").String(), clientv3.WithPrefix()),
		"a secret":                      read(keys.Secret("db").String()),
		"all secrets":                   read(keys.Root+"secrets/", clientv3.WithPrefix()),
		"users":                         read(keys.Root+"users/", clientv3.WithPrefix()),
		"the signing keys":              read(keys.SealedKey("jwt").String()),
		"the secret's fingerprint":      read(keys.SecretFingerprint().String()),
		"all plans":                     read(keys.Plans().String(), clientv3.WithPrefix()),
		"the numbers of all groups":     read(keys.Root+"tenants/", clientv3.WithPrefix()),
		"all instances":                 read(keys.Intents().String(), clientv3.WithPrefix()),
		"sessions with values":          read(keys.NodeSessions().String(), clientv3.WithPrefix()),
		"another session":               read(keys.NodeSession("n2").String()),
		"a crash of others":             read(keys.Crash("abc-1-1").String()),
		"watch everything":              watch("", clientv3.WithPrefix()),
		"watch secrets":                 watch(keys.Root+"secrets/", clientv3.WithPrefix()),
		"watch previous values":         watch(keys.PlacementsOn("n1").String(), clientv3.WithPrefix(), clientv3.WithPrevKV()),
		"read in a transaction":         txn(clientv3.OpGet(keys.Secret("db").String())),
		"read in a nested transaction":  txn(clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpGet(keys.Secret("db").String())}, nil)),
		"compare a secret": func(ctx context.Context) error {
			_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Value(keys.Secret("db").String()), ">", "a")).Commit()
			return err
		},
		"compare a range": func(ctx context.Context) error {
			_, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Value(keys.Node("").String()), ">", "a").WithPrefix()).Commit()
			return err
		},
		"a group":                       record(keys.Group("g").String(), fleet.Group{}),
		"the number of a group":         record(keys.Tenant("g").String(), cluster.Tenant{Group: "g", Number: 1}),
		"another node":                  record(keys.Node("n2").String(), fleet.Node{ID: "n2"}),
		"itself as another node":        record(keys.Node("n1").String(), fleet.Node{ID: "n2"}),
		"another session's key":         record(keys.NodeSession("n2").String(), fleet.NodeSession{Node: "n2"}),
		"its session as another":        record(keys.NodeSession("n1").String(), fleet.NodeSession{Node: "n2"}),
		"a report of another":           record(keys.Report("n1").String(), reports.Report{Node: "n2"}),
		"a placement":                   record(keys.Placement("n1", "abc").String(), fleet.Placement{Instance: "abc", Node: "n1"}),
		"an intent":                     record(keys.Intent("abc").String(), fleet.Intent{}),
		"what operators want of it":     record(keys.NodeDesired("n1").String(), fleet.NodeDesired{Node: "n1"}),
		"the end of its own revocation": txn(clientv3.OpDelete(keys.RevokedNode("n1").String())),
		"a status of others":            record(keys.Status("abc").String(), fleet.Status{Instance: "abc", Group: "g", Node: "n1", Generation: 1}),
		"a status in another's name":    record(keys.Status("own").String(), fleet.Status{Instance: "own", Group: "g", Node: "n2", Generation: 2}),
		"a status for another instance": record(keys.Status("own").String(), fleet.Status{Instance: "abc", Group: "g", Node: "n1", Generation: 2}),
		"a status of another group":     record(keys.Status("own").String(), fleet.Status{Instance: "own", Group: "x", Node: "n1", Generation: 2}),
		"a status of a coming start":    record(keys.Status("own").String(), fleet.Status{Instance: "own", Group: "g", Node: "n1", Generation: 3}),
		"a status of what has left it":  record(keys.Status("gone").String(), fleet.Status{Instance: "gone", Group: "g", Node: "n1", Generation: 2}),
		"a status on a lease":           record(keys.Status("own").String(), fleet.Status{Instance: "own", Group: "g", Node: "n1", Generation: 2}, clientv3.WithLease(lease)),
		"a crash of another group":      record(keys.Crash("own-2-1").String(), reports.Crash{ID: "own-2-1", Instance: "own", Group: "x", Node: "n1", Generation: 2}),
		"a crash with a free name":      record(keys.Crash("own-x").String(), reports.Crash{ID: "own-x", Instance: "own", Group: "g", Node: "n1", Generation: 2}),
		"its session without a lease":   record(keys.NodeSession("n1").String(), fleet.NodeSession{Node: "n1"}),
		"a part that no report has":     record(keys.ReportPart("n1", fleet.ReportParts).String(), reports.ReportPart{}),
		"a part that is no number":      record(keys.ReportPartsOn("n1").String()+"x", reports.ReportPart{}),
		"a part with a zero before":     record(keys.PlayersOn("n1").String()+"01", players.PresencePart{}),
		"figures of others' instances":  record(keys.ReportPart("n1", 1).String(), reports.ReportPart{Instances: map[fleet.InstanceID]reports.InstanceReport{"abc": {Players: 5}}}),
		"a record of a megabyte":        record(keys.Node("n1").String(), fleet.Node{ID: "n1", Address: strings.Repeat("x", 1<<20)}),
		"an endless transaction":        txn(slices.Repeat([]clientv3.Op{clientv3.OpGet(keys.Node("n1").String())}, 200)...),
		"a crash of others, to write":   record(keys.Crash("abc-1-1").String(), reports.Crash{ID: "abc-1-1", Instance: "abc", Group: "g", Node: "n1", Generation: 1}),
		"a crash for another instance":  record(keys.Crash("own-1-1").String(), reports.Crash{ID: "own-1-1", Instance: "abc", Group: "g", Node: "n1", Generation: 1}),
		"a copy to another node":        record(keys.Copy("abc").String(), move.Copy{Instance: "abc", Node: "n1"}),
		"players of others' instances":  record(keys.Players("n1", 5).String(), players.PresencePart{Part: 5, Players: []players.Presence{{Player: "069a79f4-44e9-4726-a5be-fca90e38aaf5", Name: "p", By: "abc"}}}),
		"a record that is not JSON":     txn(clientv3.OpPut(keys.Node("n1").String(), "x")),
		"a status to delete":            txn(clientv3.OpDelete(keys.Status("own").String())),
		"a range to delete":             txn(clientv3.OpDelete(keys.PlayersOn("n1").String(), clientv3.WithPrefix())),
		"a put of its own": func(ctx context.Context) error {
			_, err := c.Put(ctx, keys.Node("n1").String(), `{"id":"n1"}`)
			return unimplemented(err)
		},
		"its session on another's lease": record(keys.NodeSession("n1").String(), fleet.NodeSession{Node: "n1"}, clientv3.WithLease(lease)),
		"another's lease, to renew":      func(ctx context.Context) error { _, err := c.KeepAliveOnce(ctx, lease); return err },
		"another's lease, to revoke":     func(ctx context.Context) error { _, err := c.Revoke(ctx, lease); return err },
		"all leases":                     func(ctx context.Context) error { _, err := c.Leases(ctx); return unimplemented(err) },
		"an endless lease":               func(ctx context.Context) error { _, err := c.Grant(ctx, 1<<30); return err },
		"compaction":                     func(ctx context.Context) error { _, err := c.Compact(ctx, 1); return unimplemented(err) },
		"members":                        func(ctx context.Context) error { _, err := c.MemberList(ctx); return unimplemented(err) },
		"users of etcd":                  func(ctx context.Context) error { _, err := c.UserList(ctx); return unimplemented(err) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
			defer cancel()
			err := try(ctx)
			if s, _ := status.FromError(err); s.Code() != codes.PermissionDenied && !strings.Contains(errText(err), "PermissionDenied") && !strings.Contains(errText(err), "may not") {
				t.Errorf("it is not refused: %v", err)
			}
		})
	}
	select {
	case <-session.Done():
		t.Error("the other node's session has ended")
	default:
	}
}

func TestAnAgentReportsWhatItHas(t *testing.T) {
	w := newWorld(t)
	c := w.node(t, "n1", w.proxy(t))
	put(t, w, keys.Placement("n1", "own"), fleet.Placement{Instance: "own", Group: "g", Node: "n1", Generation: 2})
	put(t, w, keys.Status("old"), fleet.Status{Instance: "old", Group: "g", Node: "n1", Generation: 3})
	put(t, w, keys.Placement("n2", "moved"), fleet.Placement{Instance: "moved", Group: "g", Node: "n2", Generation: 5})
	put(t, w, keys.Status("moved"), fleet.Status{Instance: "moved", Group: "g", Node: "n1", Generation: 4})
	put(t, w, keys.Move("coming"), move.Move{Instance: "coming", Source: "n2", Target: "n1"})
	status := func(id fleet.InstanceID, generation int64) store.Write {
		have, err := store.Get(t.Context(), c, keys.Status(id))
		if err != nil && !errs.Is(err, errs.NotFound) {
			t.Fatal(err)
		}
		return store.Replace(keys.Status(id), fleet.Status{Instance: id, Group: "g", Node: "n1", Generation: generation}, have.ModRev)
	}
	for name, write := range map[string]store.Write{
		"a status":                             status("own", 2),
		"the end of what has no placement":     status("old", 3),
		"the end of what starts elsewhere now": status("moved", 4),
		"a crash":                              store.Create(keys.Crash("own-2-1"), reports.Crash{ID: "own-2-1", Instance: "own", Group: "g", Node: "n1", Generation: 2}),
		"its tail":                             store.Create(keys.CrashTail("own-2-1"), reports.CrashTail{ID: "own-2-1"}),
		"a copy":                               store.Create(keys.Copy("coming"), move.Copy{Instance: "coming", Node: "n1"}),
		"figures":                              store.Create(keys.ReportPart("n1", 15), reports.ReportPart{Instances: map[fleet.InstanceID]reports.InstanceReport{"own": {Players: 1}, "unknown": {Players: 1}}}),
		"players":                              store.Create(keys.Players("n1", 63), players.PresencePart{Part: 63, Players: []players.Presence{{Player: "069a79f4-44e9-4726-a5be-fca90e38aaf5", Name: "p", By: "own"}}}),
	} {
		if _, err := c.Commit(t.Context(), store.Txn{Writes: []store.Write{write}}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// unimplemented turns the error for calls that the proxy does not have into a refusal.
func unimplemented(err error) error {
	if s, _ := status.FromError(err); s.Code() == codes.Unimplemented || strings.Contains(errText(err), "Unimplemented") || strings.Contains(errText(err), "404") {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return err
}

func TestARevocationCutsTheNode(t *testing.T) {
	w := newWorld(t)
	url := w.proxy(t)
	c, other := w.node(t, "n1", url), w.node(t, "n2", url)
	session, err := store.OpenSession(t.Context(), c, keys.NodeSession("n1"), fleet.NodeSession{Node: "n1"}, 2*time.Second, false)
	if err != nil {
		t.Fatal(err)
	}
	raw := w.raw(t, "n1", url)
	watch := raw.Watch(t.Context(), keys.PlacementsOn("n1").String(), clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if r := <-watch; r.Err() != nil {
		t.Fatal(r.Err())
	}
	put(t, w, keys.RevokedNode("n1"), cluster.RevokedNode{Node: "n1", By: "admin"})
	for r := range watch { // it ends
		if r.Err() == nil {
			t.Errorf("the watch goes on: %+v", r)
		}
	}
	<-session.Done()
	if _, err := store.Get(t.Context(), c, keys.Node("n1")); !errs.Is(err, errs.Denied) || !strings.Contains(err.Error(), "orrery unrevoke node n1") {
		t.Errorf("a read: %v", err)
	}
	if err := other.Ping(t.Context()); err != nil {
		t.Errorf("another node: %v", err)
	}
	if _, err := w.Raw().Delete(t.Context(), keys.RevokedNode("n1").String()); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the node to be admitted again", func() string {
		err := c.Ping(t.Context())
		return await.Unless(err == nil, "%v", err)
	})
}

func TestASessionOfEtcdContinuesThroughAProxy(t *testing.T) {
	w := newWorld(t)
	before, err := store.OpenSession(t.Context(), w.own, keys.NodeSession("n1"), fleet.NodeSession{Node: "n1"}, time.Minute, false)
	if err != nil {
		t.Fatal(err)
	}
	epoch := before.Fence().Epoch()
	before.Abandon()
	c := w.node(t, "n1", w.proxy(t))
	s, err := store.ResumeSession(t.Context(), c, keys.NodeSession("n1"), epoch)
	if err != nil {
		t.Fatal(err)
	}
	s.Abandon()
	if err := store.RevokeSession(t.Context(), c, keys.NodeSession("n1"), epoch); err != nil {
		t.Error(err)
	}
}

func TestOthersThanAgentsAreRefused(t *testing.T) {
	w := newWorld(t)
	url := w.proxy(t)
	w.node(t, "n1", url)
	for name, who := range map[string]pki.Identity{"scheduler": {Service: pki.Scheduler}, "gateway": gateway} {
		c, err := store.Dial([]string{url}, store.Options{TLS: w.authority.Peers(who).ClientTLS(gateway)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Ping(t.Context()); err == nil {
			t.Errorf("%s is admitted", name)
		}
		_ = c.Close()
	}
}
