package nodeagent_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	node   = fleet.NodeID("node-1")
	secret = "cluster-secret"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == nodeagent.GuardCommand {
		os.Exit(nodeagent.Guard(os.Stdin, os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == nodeagent.PaneCommand {
		os.Exit(nodeagent.Pane(os.Args[2:], os.Stderr))
	}
	if mode := os.Getenv("ORRERY_TEST_MODE"); mode != "" {
		os.Exit(child(mode))
	}
	await.Parallel(6)
	goleak.VerifyTestMain(m)
}

// library is a template source with trees in memory by hash.
type library struct {
	manifests map[string]content.Manifest
	contents  map[string][]byte
}

func newLibrary() *library {
	return &library{manifests: map[string]content.Manifest{}, contents: map[string][]byte{}}
}

func (l *library) Manifest(_ context.Context, digest string) (io.ReadCloser, error) {
	m, ok := l.manifests[digest]
	if !ok {
		return nil, errs.New(errs.NotFound, "no manifest %s", digest)
	}
	b, err := json.Marshal(m)
	return io.NopCloser(bytes.NewReader(b)), err
}

// Row only supports single blobs.
func (l *library) Row(context.Context, []string) (io.ReadCloser, error) {
	return nil, errs.New(errs.NotFound, "one at a time")
}

func (l *library) Suspect(context.Context, string) error { return nil }

func (l *library) Blob(_ context.Context, hash string) (io.ReadCloser, error) {
	if b, ok := l.contents[hash]; ok {
		return io.NopCloser(bytes.NewReader(b)), nil
	}
	return nil, errs.New(errs.NotFound, "no blob %s", hash)
}

// add publishes a template made of files and returns its layer.
func (l *library) add(name string, files map[string]string) fleet.PlanLayer {
	var m content.Manifest
	for path, body := range files {
		sum := sha256.Sum256([]byte(body))
		hash := hex.EncodeToString(sum[:])
		l.contents[hash] = []byte(body)
		m.Entries = append(m.Entries, content.ManifestEntry{Path: path, Mode: 0o644, Size: int64(len(body)), SHA256: hash})
	}
	slices.SortFunc(m.Entries, func(a, b content.ManifestEntry) int { return strings.Compare(a.Path, b.Path) })
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and numbers only
	}
	sum := sha256.Sum256(b)
	digest := hex.EncodeToString(sum[:])
	l.manifests[digest] = m
	return fleet.PlanLayer{TemplateRef: content.TemplateRef{Group: "default", Name: name}, Digest: digest}
}

// site is a store, a data directory and at most one agent on it.
type site struct {
	t       testing.TB
	etcd    *storetest.Etcd
	store   *store.Client
	dir     string
	library *library
	stop    func()
	agent   *nodeagent.Agent // the latest in this process
	// tag is the prefix of this site's instance ids. Without control groups processes are
	// identified by instance id, across all agents of the host.
	tag string
}

func newSite(t testing.TB) *site {
	etcd := storetest.Start(t)
	return &site{t: t, etcd: etcd, store: etcd.Client(t), dir: t.TempDir(), library: newLibrary(), tag: strings.ToLower(rand.Text()[:4])}
}

// id is the site's n-th instance id.
func (s *site) id(n int) fleet.InstanceID { return fleet.InstanceID(fmt.Sprintf("%s%02d", s.tag, n)) }

func (s *site) config() nodeagent.Config {
	return nodeagent.Config{
		Store: s.store, Node: node, DataDir: s.dir, Address: "play.example.org", ClusterSecret: secret,
		Templates: s.library, APIURL: "http://127.0.0.1:8080", Log: logger(s.t), SessionTTL: 2 * time.Second,
		Guard: nodeagent.OwnGuard(), Pane: nodeagent.OwnPane(), MemoryMiB: 4096, CPU: 400, Variables: map[string]string{"REGION": "north"},
		Policy: policy.Policy{Users: []string{policy.Any}, ContainerUsers: []string{policy.Any}, Volumes: []string{policy.Any}, Networks: []string{policy.Any}},
	}
}

func logger(t testing.TB) *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// start runs an agent until the test ends or halt is called, and waits until it has joined.
func (s *site) start(change func(*nodeagent.Config)) {
	s.t.Helper()
	a, ended := s.begin(change)
	select {
	case <-a.Ready():
	case err := <-ended:
		ended <- err
		s.t.Fatalf("the agent ended: %v", err)
	case <-time.After(await.Patience):
		s.t.Fatal("the agent was not ready in time")
	}
}

// begin runs an agent like start, but does not wait for it.
func (s *site) begin(change func(*nodeagent.Config)) (*nodeagent.Agent, chan error) {
	s.t.Helper()
	cfg := s.config()
	if change != nil {
		change(&cfg)
	}
	a, err := nodeagent.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.agent = a
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	once := false
	s.stop = func() {
		if once {
			return
		}
		once = true
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("the agent ended with %v", err)
		}
		proctest.AwaitUnlocked(s.t, filepath.Join(cfg.DataDir, "lock"))
	}
	s.t.Cleanup(s.stop)
	return a, ended
}

// basic is a plan that runs a command.
func basic(command string) fleet.Plan {
	return fleet.Plan{
		Group: "lobby", Runtime: fleet.RuntimeProcess, Command: command, OnCrash: fleet.CrashReplace,
		Stop: fleet.Stop{GraceSeconds: 5, Signal: "TERM"}, Readiness: fleet.Check{Type: fleet.CheckNone},
		Resources: fleet.Resources{MemoryMiB: 256},
	}
}

// place writes a plan and a placement of it, as a scheduler would.
func (s *site) place(id fleet.InstanceID, generation int64, plan fleet.Plan, port int) fleet.Placement {
	s.t.Helper()
	stored := fleet.StoredPlan{Plan: plan, TouchedAt: time.Now()}
	s.write(keys.Plan(plan.Digest()), stored)
	p := fleet.Placement{
		Instance: id, Name: "lobby-1", Group: "lobby", Node: node, Generation: generation, Plan: plan.Digest(), Port: port,
		PlacedAt: time.Now(),
	}
	if plan.Static {
		n, err := store.Get(s.t.Context(), s.store, keys.Node(node))
		if err != nil && !errs.Is(err, errs.NotFound) {
			s.t.Fatal(err)
		}
		p.DataUUID = n.DataUUID
	}
	s.write(keys.Placement(node, id), p)
	return p
}

func (s *site) order(id fleet.InstanceID, generation int64, action fleet.OrderAction) {
	s.t.Helper()
	s.write(keys.Order(node, id), fleet.Order{
		Instance: id, Node: node, Generation: generation, Action: action, Reason: fleet.ReasonStopRequested, At: time.Now(),
	})
}

func (s *site) write(key any, value any) {
	s.t.Helper()
	b, err := json.Marshal(value)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.etcd.Raw().Put(s.t.Context(), fmt.Sprint(key), string(b)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) remove(key any) {
	s.t.Helper()
	if _, err := s.etcd.Raw().Delete(s.t.Context(), fmt.Sprint(key)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) status(id fleet.InstanceID) fleet.Status {
	st, err := store.Get(s.t.Context(), s.store, keys.Status(id))
	if err != nil && !errs.Is(err, errs.NotFound) {
		s.t.Fatal(err)
	}
	return st
}

// online places an instance without a port and waits until it is online.
func (s *site) online(id fleet.InstanceID, plan fleet.Plan) fleet.Status {
	s.t.Helper()
	s.place(id, 1, plan, 0)
	return s.awaitState(id, 1, fleet.Online)
}

// figures are an instance's live figures in the store, and the revision of their part.
func (s *site) figures(id fleet.InstanceID) (f reports.InstanceReport, rev int64, err error) {
	s.t.Helper()
	part, err := store.Get(s.t.Context(), s.store, keys.ReportPart(node, id.Part()))
	return part.Instances[id], part.ModRev, err
}

// await waits until an instance's status satisfies a condition.
func (s *site) await(id fleet.InstanceID, what string, ok func(fleet.Status) bool) fleet.Status {
	s.t.Helper()
	var last fleet.Status
	await.That(s.t, what, func() string {
		last = s.status(id)
		return await.Unless(ok(last), "%+v", last)
	})
	return last
}

func (s *site) awaitState(id fleet.InstanceID, generation int64, state fleet.State) fleet.Status {
	s.t.Helper()
	return s.await(id, fmt.Sprintf("%s generation %d %s", id, generation, state), func(st fleet.Status) bool {
		return st.Generation == generation && st.State == state
	})
}

// api is a client of the agent as its record advertises it.
func (s *site) api() *client.Client {
	s.t.Helper()
	c, err := s.apiUntil(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// apiUntil is the agent's API for goroutines that outlive the test's own context.
func (s *site) apiUntil(ctx context.Context) (*client.Client, error) {
	n, err := store.Get(ctx, s.store, keys.Node(node))
	if err != nil {
		return nil, err
	}
	return client.New(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, n.AgentURL, secret), nil
}

// lastPort makes the ports of tests that run at the same time different.
var lastPort = func() *atomic.Int64 {
	var n atomic.Int64
	n.Store(mathrand.Int64N(10_000))
	return &n
}()

// freePort returns a port that is free and that the kernel gives to no outgoing connection.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 20_000 + int(lastPort.Add(1)%10_000)
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port between 20000 and 30000 is free")
	return 0
}

func (s *site) running(id fleet.InstanceID, path string) string {
	b, err := os.ReadFile(filepath.Join(s.dir, "running", string(id), path))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return string(b)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil || !isNotExist(err)
}

func isNotExist(err error) bool { return err != nil && os.IsNotExist(err) }

// child runs a mode of the test binary in a child process.
func child(mode string) int {
	switch mode {
	case "server":
		return serve()
	case "holder":
		return holdPort()
	case "agent":
		return agentProcess()
	case "web":
		return web()
	case "beat":
		return beat()
	}
	fmt.Fprintln(os.Stderr, "unknown mode", mode)
	return 2
}

// serve is a small network server: it listens on PORT and ends on "stop".
func serve() int {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("ORRERY_PORT"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	buf := make([]byte, 256)
	for {
		n, err := os.Stdin.Read(buf)
		if err != nil || strings.Contains(string(buf[:n]), "stop") {
			return 0
		}
	}
}

// server is a plan that runs the small network server.
func server() fleet.Plan {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	p := basic("exec " + exe)
	p.Env = map[string]string{"ORRERY_TEST_MODE": "server"}
	p.Readiness.Type = fleet.CheckPort
	p.Stop.Command = "stop"
	return p
}

// Artifact returns content like Blob.
func (l *library) Artifact(ctx context.Context, hash string) (io.ReadCloser, error) {
	return l.Blob(ctx, hash)
}
