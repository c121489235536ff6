package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/sourceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the golden files anew")

const (
	secret = "0123456789abcdef0123456789abcdef"
)

var at = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// node is a fake of all agents. Methods it does not define must not be called.
type node struct {
	upstream.Agent
	typed []string
	lines []string
	mu    sync.Mutex
	// shut records the nodes that were shut down and the reasons. unheard has the errors to return per
	// node.
	shut    []string
	unheard map[fleet.NodeID]error
	// meanwhile runs during a shutdown request; may be nil.
	meanwhile func()
}

func (n *node) Shutdown(_ context.Context, s client.Shutdown) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.meanwhile != nil {
		n.meanwhile()
	}
	if err := n.unheard[s.Node]; err != nil {
		return err
	}
	n.shut = append(n.shut, string(s.Node)+": "+s.Reason)
	return nil
}

// Errors of an unreachable agent and of one whose connection broke during the request.
var (
	errNobody = errs.WrapAs(errs.Unavailable, "client", &net.OpError{Op: "dial", Err: errors.New("refused")})
	errBroken = errs.WrapAs(errs.Unavailable, "client", io.ErrUnexpectedEOF)
)

func (n *node) WriteLine(_ context.Context, _ fleet.InstanceID, line string) error {
	n.typed = append(n.typed, line)
	return nil
}

func (n *node) Find(_ context.Context, _ fleet.InstanceID, q client.Query) (client.Log, error) {
	var out client.Log
	for _, text := range n.lines[max(0, len(n.lines)-q.Lines):] {
		out.Lines = append(out.Lines, client.Line{Text: text})
	}
	return out, nil
}

func (n *node) Warm(_ context.Context, digests []string) (client.WarmAnswer, error) {
	var out client.WarmAnswer
	for _, d := range digests {
		out.Versions = append(out.Versions, client.WarmedVersion{Digest: d, Status: client.WarmOK, Bytes: 12})
	}
	return out, nil
}

func (n *node) Export(context.Context, fleet.InstanceID, string) (io.ReadCloser, error) {
	return nil, errs.New(errs.Unavailable, "nothing is exported here")
}

// ended is a fake of the other gateways. asked records those that were asked to shut down, unheard has
// the errors to return.
type ended struct {
	asked   []string
	unheard map[string]error
}

func (e *ended) other(_ context.Context, r *cluster.Session) error {
	if err := e.unheard[r.Replica]; err != nil {
		return &errs.Error{Kind: errs.Unavailable, Message: "it does not answer", Err: err}
	}
	e.asked = append(e.asked, r.Replica)
	return nil
}

// world is an interpreter with a store.
type world struct {
	ended
	t       *testing.T
	store   *store.Client
	view    *view.View
	node    *node
	console *Interpreter
	who     auth.Identity
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := storetest.New(t)
	w := &world{t: t, store: c, view: view.New(c, nil), node: &node{}}
	now := func() time.Time { return at }
	known := auth.New(auth.Config{Store: c, View: w.view, Now: now}) // subscribes to the view
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.view.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	if err := w.view.Synced(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := ops.New(ops.Config{
		Store: c, View: w.view, Seal: seal.Only(secret), Log: slog.New(slog.DiscardHandler), Now: now,
		Agents: upstream.NewAgents(upstream.NewHealth(telemetry.NewMetrics(prometheus.NewRegistry(), "test"), slog.New(slog.DiscardHandler)), w.view, func(*fleet.Node) upstream.Agent { return w.node }),
	})
	sources := sourceops.New(o.Committer, seal.Only(secret))
	w.console = New(Config{
		Operations: o, Sources: sources, ClusterName: "test", ClusterID: "c1", Now: now,
		Auth: known, Replica: "g-1", End: func() { w.asked = append(w.asked, "g-1") }, EndOther: w.other,
	})
	admin, _ := auth.RoleOf(w.view.Snapshot(), auth.RoleAdmin)
	w.who = auth.Identity{User: "ann", Role: admin.Name, Permissions: admin.Permissions}
	for _, user := range []string{"ann", "bob"} {
		w.commit(store.Create(keys.User(user), account.User{Username: user, Role: admin.Name}))
	}
	return w
}

// commit writes to the store and waits until the view has the writes.
func (w *world) commit(writes ...store.Write) {
	w.t.Helper()
	rev, err := w.store.Commit(w.t.Context(), store.Txn{Writes: writes})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), await.Patience)
	defer cancel()
	if _, err := w.view.WaitRev(ctx, rev); err != nil {
		w.t.Fatal(err)
	}
}

// run runs a line and returns its output.
func (w *world) run(line string) (said []string, err error) { return w.runIn(w.t.Context(), line) }

// runIn is run with a context.
func (w *world) runIn(ctx context.Context, line string) (said []string, err error) {
	err = w.console.Run(ctx, Session{
		By: txn.Actor{User: w.who.User}, Who: w.who, Node: "node-1",
		Say: func(line string) error { said = append(said, line); return nil },
	}, line)
	return said, err
}

// transcript runs lines and returns what a user would see.
func (w *world) transcript(lines ...string) string {
	var out strings.Builder
	for _, line := range lines {
		said, err := w.run(line)
		fmt.Fprintf(&out, "> %s\n", line)
		for _, s := range said {
			fmt.Fprintln(&out, s)
		}
		if err != nil {
			fmt.Fprintf(&out, "%s: %s\n", errs.KindOf(err), Explain(err))
		}
	}
	return out.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got)\n%s", path, d)
	}
}

// gatewaysOf returns the session records of running gateways.
func gatewaysOf(replicas ...string) (out []store.Write) {
	for _, replica := range replicas {
		out = append(out, store.Create(keys.Session(gateways, replica), cluster.Session{Service: gateways, Replica: replica}))
	}
	return out
}

// connected returns the records of a connected node.
func connected(id fleet.NodeID) []store.Write {
	return []store.Write{
		store.Create(keys.Node(id), fleet.Node{ID: id, AgentURL: "http://" + string(id) + ":7070"}),
		store.Create(keys.NodeSession(id), fleet.NodeSession{Node: id}),
	}
}

// fleetOfOne returns the records of a node, a configuration and a running instance.
func fleetOfOne() []store.Write {
	spec := fleet.DefaultSpec()
	spec.Command, spec.Scaling.Max = "sleep 60", 0
	spec.Variables = map[string]string{"MOTD": "hi", "PASSWORD": "hunter2"}
	plan := fleet.Plan{Group: "lobby", Runtime: fleet.RuntimeProcess, Resources: fleet.Resources{MemoryMiB: 512, CPU: 50}}
	ref := content.ParseTemplateRef("default/lobby")
	return []store.Write{
		store.Create(keys.Node("node-1"), fleet.Node{
			ID: "node-1", Address: "10.0.0.1", AgentURL: "http://10.0.0.1:7070", Version: "1.2.3", Labels: map[string]string{"zone": "a"},
			Capacity: fleet.Resources{MemoryMiB: 8192, CPU: 400}, Host: fleet.HostInfo{Hostname: "metal", OSName: "Debian", OSVersion: "12", Arch: "amd64"},
			Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}, {Name: fleet.RuntimeScreen, Why: "screen is not installed"}},
		}),
		store.Create(keys.NodeSession("node-1"), fleet.NodeSession{Node: "node-1"}),
		store.Create(keys.Node("node-2"), fleet.Node{ID: "node-2", Address: "10.0.0.2", Capacity: fleet.Resources{MemoryMiB: 1024, CPU: 100}}),
		store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", CPU: 0.25, MemoryMiB: 2048, Instances: map[fleet.InstanceID]reports.InstanceReport{
			"abc123": {Players: 3, MaxPlayers: 20, PlayersKnown: true, HeartbeatAt: at, Usage: reports.Usage{MemoryBytes: 300 << 20, CPU: 12.5, CPUKnown: true}},
		}}),
		store.Create(keys.Group("lobby"), fleet.Group{Name: "lobby", Revision: 1, Spec: spec, Hidden: map[string]content.Visibility{"PASSWORD": content.VisibleToAdmins}}),
		store.Create(keys.TemplateHead(ref), content.TemplateHead{TemplateRef: ref, Digest: "0123456789abcdef", Files: 3, SizeBytes: 1234, Origin: content.DirectoryOrigin}),
		store.Create(keys.TemplateVersion(ref, "0123456789abcdef"), content.TemplateVersion{TemplateRef: ref, Digest: "0123456789abcdef"}),
		store.Create(keys.Plan("p1"), fleet.StoredPlan{Plan: plan}),
		store.Create(keys.Intent("abc123"), fleet.Intent{
			ID: "abc123", Name: "lobby-1", Group: "lobby", Ordinal: 1, Generation: 1, GenerationAt: at.Add(-time.Hour), Plan: "p1", Desired: fleet.DesiredRunning,
		}),
		store.Create(keys.Name("lobby", 1), keys.NameClaim{ID: "abc123"}),
		store.Create(keys.Placement("node-1", "abc123"), fleet.Placement{Instance: "abc123", Node: "node-1", Generation: 1, Port: 25565, Resources: plan.Resources}),
		store.Create(keys.Status("abc123"), fleet.Status{
			Instance: "abc123", Node: "node-1", Group: "lobby", Generation: 1, State: fleet.Online, Reason: fleet.ReasonReady, PID: 4711,
			HostAddress: "10.0.0.1", ChangedAt: at.Add(-time.Minute),
		}),
	}
}
