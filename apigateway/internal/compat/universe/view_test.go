package universe

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a store with a view of it.
type world struct {
	t     *testing.T
	store *store.Client
	view  *view.View
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := storetest.New(t)
	w := &world{t: t, store: c, view: view.New(c, nil)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.view.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	if err := w.view.Synced(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// commit writes to the store and waits until the view has the writes.
func (w *world) commit(writes ...store.Write) *view.Snapshot {
	w.t.Helper()
	rev, err := w.store.Commit(w.t.Context(), store.Txn{Writes: writes})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), await.Patience)
	defer cancel()
	s, err := w.view.WaitRev(ctx, rev)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

const id fleet.InstanceID = "abc123"

// runningInstance returns the records of an ONLINE instance on node-1 with a report.
func runningInstance() []store.Write {
	plan := fleet.Plan{Group: "lobby", Runtime: fleet.RuntimeProcess, Resources: fleet.Resources{MemoryMiB: 512, CPU: 50}}
	return []store.Write{
		store.Create(keys.Node("node-1"), fleet.Node{
			ID: "node-1", Address: "10.0.0.1", AgentURL: "http://10.0.0.1:7070", Version: "1.2.3",
			Capacity: fleet.Resources{MemoryMiB: 8192, CPU: 400},
			Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}, {Name: fleet.RuntimeScreen}},
		}),
		store.Create(keys.NodeSession("node-1"), fleet.NodeSession{Node: "node-1"}),
		store.Create(keys.Plan("p1"), fleet.StoredPlan{Plan: plan}),
		store.Create(keys.Intent(id), fleet.Intent{
			ID: id, Name: "lobby-1", Group: "lobby", Ordinal: 1, Generation: 1, GenerationAt: at, Plan: "p1", Desired: fleet.DesiredRunning,
		}),
		store.Create(keys.Name("lobby", 1), keys.NameClaim{ID: id}),
		store.Create(keys.Placement("node-1", id), fleet.Placement{
			Instance: id, Node: "node-1", Generation: 1, Port: 25565, Resources: plan.Resources,
		}),
		store.Create(keys.Status(id), fleet.Status{
			Instance: id, Generation: 1, State: fleet.Online, Reason: fleet.ReasonReady, PID: 4711,
			HostAddress: "10.0.0.1", StartedAt: at, ChangedAt: at.Add(time.Second),
		}),
		store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", Instances: map[fleet.InstanceID]reports.InstanceReport{
			id: {Players: 3, MaxPlayers: 20, PlayersKnown: true, TPS: 19.9, HeartbeatAt: at.Add(2 * time.Second), Usage: reports.Usage{
				MemoryBytes: 300 << 20, CPU: 12.5, CPUKnown: true, DiskBytes: 40 << 20, DiskKnown: true,
			}},
		}}),
	}
}

func TestShapes(t *testing.T) {
	w := newWorld(t)
	s := w.commit(runningInstance()...)
	i, ok := s.Find("lobby-1")
	if !ok {
		t.Fatal("no instance")
	}
	golden(t, "instance-online", InstanceOf(s, i, at.Add(time.Minute)))
	n, ok := s.Nodes.Get("node-1")
	if !ok {
		t.Fatal("no node")
	}
	golden(t, "node", nodeDetailOf(s, n, "node-1"))

	s = w.commit(
		store.Create(keys.Intent("zzz999"), fleet.Intent{
			ID: "zzz999", Name: "lobby-2", Group: "lobby", Ordinal: 2, Generation: 1, GenerationAt: at, Plan: "p1", Desired: fleet.DesiredRunning,
		}))
	i, ok = s.Find("zzz999")
	if !ok {
		t.Fatal("no instance")
	}
	golden(t, "instance-creating", InstanceOf(s, i, at.Add(time.Minute)))
}

func TestAListThatIsKeptIsAsOneThatIsNot(t *testing.T) {
	w := newWorld(t)
	s := w.commit(runningInstance()...)
	i, ok := s.Find("lobby-1")
	if !ok {
		t.Fatal("no instance")
	}
	h := newShownInstances()
	for _, now := range []time.Time{at, at.Add(1234567 * time.Millisecond), at.Add(100 * time.Hour)} {
		want, err := json.Marshal([]Instance{InstanceOf(s, i, now)})
		if err != nil {
			t.Fatal(err)
		}
		if got := h.list(s, listedFor{all: true}, now).Plain; string(got) != string(want) {
			t.Errorf("at %s:\ngot  %s\nwant %s", now, got, want)
		}
	}
}

func TestAnInstanceThatCouldNotStartShowsWhy(t *testing.T) {
	i := &fleet.Instance{
		Intent:    fleet.Intent{ID: id, Generation: 1, Desired: fleet.DesiredRunning},
		Placement: &fleet.Placement{Node: "node-1", Generation: 1},
		Status:    &fleet.Status{Generation: 1, State: fleet.Failed, Reason: fleet.ReasonTemplateMissing, PID: 12},
	}
	got := InstanceOf(view.New(nil, nil).Snapshot(), i, at)
	if got.State != offline || got.Reason != fleet.ReasonTemplateMissing || got.Message != fleet.ReasonTemplateMissing.Text() || got.ProcessPID != nil {
		t.Errorf("%+v", got)
	}
}

func TestStates(t *testing.T) {
	for native, want := range map[fleet.State]string{
		fleet.Unplaced: creating, fleet.Preparing: creating, fleet.Starting: creating,
		fleet.Online: online, fleet.Stopping: online,
		fleet.Stopped: stopped, fleet.Crashed: offline, fleet.Failed: offline, fleet.Offline: offline,
	} {
		if got := stateOf(native); got != want {
			t.Errorf("%s is %s, want %s", native, got, want)
		}
	}
	for _, s := range fleet.States {
		if stateOf(s) == "" {
			t.Errorf("%s has no name", s)
		}
	}
}

func TestTheListLeavesOutWhatEndedAWhileAgo(t *testing.T) {
	for _, tc := range []struct {
		state fleet.State
		age   time.Duration
		want  bool
	}{
		{fleet.Online, time.Hour, false},
		{fleet.Preparing, time.Hour, false},
		{fleet.Stopped, 10 * time.Second, false},
		{fleet.Stopped, 10*time.Second + 1, true},
		{fleet.Crashed, 15 * time.Second, false},
		{fleet.Crashed, 15*time.Second + 1, true},
		{fleet.Offline, 15*time.Second + 1, true},
	} {
		i := &fleet.Instance{
			Intent: fleet.Intent{Generation: 1},
			Status: &fleet.Status{Generation: 1, State: tc.state, ChangedAt: at, FinishedAt: at},
		}
		if got := Hidden(i, at.Add(tc.age)); got != tc.want {
			t.Errorf("%s after %v: hidden = %v", tc.state, tc.age, got)
		}
	}
}
