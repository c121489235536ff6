package nodeagent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// fill places n instances and waits until they run.
func (s *site) fill(n int, change func(n int, p *fleet.Plan)) map[fleet.InstanceID]fleet.Status {
	s.t.Helper()
	all := map[fleet.InstanceID]fleet.Status{}
	for i := range n {
		plan := basic("sleep 1000")
		if change != nil {
			change(i, &plan)
		}
		s.place(s.id(i), 1, plan, 0)
	}
	for i := range n {
		all[s.id(i)] = s.awaitState(s.id(i), 1, fleet.Online)
	}
	return all
}

func TestOutageRestartsOnlyCrashed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	figures := prometheus.NewRegistry()
	s.start(func(c *nodeagent.Config) { taking(c); c.Metrics = figures })
	before := s.fill(20, func(n int, p *fleet.Plan) {
		switch n {
		case 3:
			p.OnCrash = fleet.CrashRestart
		case 5:
			p.OnCrash = fleet.CrashStop
		}
	})
	s.etcd.Stop()
	for i := range 6 {
		killed(t, before[s.id(i)].PID)
	}
	for i := range 5 {
		s.awaitLocal(s.id(i), "a second run", func(now client.Instance) bool {
			return now.State == fleet.Online && now.Restarts == 1 && alive(now.PID) && now.PID != before[now.ID].PID
		})
	}
	if a := s.awaitAgent("the outage seen", func(a client.Agent) bool { return !a.Etcd.Reachable && !a.Etcd.SessionAlive }); a.LocalRestarts != 5 ||
		a.Unwritten == 0 || a.Instances[fleet.Online] != 19 || a.Instances[fleet.Crashed] != 1 || a.Orphans != 0 {
		t.Errorf("agent %+v", a)
	}
	away := gather(t, figures)
	if away["etcd_reachable"] != 0 || away["etcd_last_contact_seconds"] < 1 || away["local_restarts_total"] != 5 || away["unwritten_statuses"] == 0 {
		t.Errorf("metrics while etcd is away: %v", away)
	}
	s.etcd.Restart(t)
	for i := range 20 {
		id := s.id(i)
		switch {
		case i < 5:
			s.await(id, "the second run reported", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
		case i == 5:
			s.awaitState(id, 1, fleet.Crashed)
		}
	}
	s.awaitAgent("all reported", func(a client.Agent) bool { return a.Etcd.Reachable && a.Unwritten == 0 && a.LocalRestarts == 5 })
	if back := gather(t, figures); back["etcd_reachable"] != 1 || back["orphans"] != 0 {
		t.Errorf("metrics afterwards: %v", back)
	}
	for i := 6; i < 20; i++ {
		if st := s.status(s.id(i)); st.ModRev != before[s.id(i)].ModRev || !alive(st.PID) {
			t.Errorf("untouched by the outage: before %+v\nafter %+v", before[s.id(i)], st)
		}
	}
	s.order(s.id(7), 1, fleet.OrderStop)
	s.awaitState(s.id(7), 1, fleet.Stopped)
}

// gather reads the agent's metrics that have no labels.
func gather(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			if len(m.Label) == 0 {
				all[strings.TrimPrefix(f.GetName(), "orrery_nodeagent_")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return all
}

func TestAgentStartsWithoutStore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kill := s.spawn()
	counting := basic(`while read x; do echo "got $x"; done <&0 & while :; do n=$((n+1)); echo "line $n"; sleep 0.05; done`)
	count := s.id(50)
	s.place(count, 1, counting, 0)
	before := s.fill(6, nil)
	before[count] = s.awaitState(count, 1, fleet.Online)
	first, err := s.local().Read(t.Context(), count, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	s.etcd.Stop()
	kill()
	killed(t, before[s.id(0)].PID)

	s.spawn()
	for id, was := range before {
		if id == s.id(0) {
			s.awaitLocal(id, "started again", func(i client.Instance) bool { return i.State == fleet.Online && i.PID != was.PID })
			continue
		}
		s.awaitLocal(id, "adopted", func(i client.Instance) bool {
			return i.State == fleet.Online && i.Reason == fleet.ReasonAdopted && i.PID == was.PID
		})
	}
	if a, err := s.local().Agent(t.Context()); err != nil || a.Etcd.Reachable || !a.Etcd.LastContact.IsZero() {
		t.Errorf("agent %+v, %v", a, err)
	}
	if err := s.local().WriteLine(t.Context(), count, "hello"); err != nil {
		t.Fatal(err)
	}
	text, next := string(first.Data), first.Next
	await.That(t, "the console going on at its byte", func() string {
		chunk, err := s.local().Read(t.Context(), count, next, 0)
		text, next = text+string(chunk.Data), chunk.Next
		return await.Unless(strings.Contains(text, "got hello\n") && strings.HasSuffix(text, "\n"), "%q, %v", text, err)
	})
	n := 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "got") {
			continue
		}
		if n++; line != fmt.Sprintf("line %d\n", n) {
			t.Fatalf("line %d is %q", n, line)
		}
	}

	s.etcd.Restart(t)
	s.await(s.id(0), "its second run reported", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
	s.awaitAgent("joined", func(a client.Agent) bool { return a.Etcd.Reachable && a.Unwritten == 0 })
	for id, was := range before {
		if st := s.status(id); id != s.id(0) && (st.PID != was.PID || st.Restarts != 0 || !alive(st.PID)) {
			t.Errorf("before %+v\nafter %+v", was, st)
		}
	}
	if _, err := s.local().Stop(t.Context(), client.Stop{All: true, Force: true}); err != nil {
		t.Error(err)
	}
	for _, was := range before {
		s.awaitState(was.Instance, 1, fleet.Stopped)
	}
}

func TestHostRestartWaitsForJoin(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kill := s.spawn()
	before := s.fill(2, func(_ int, p *fleet.Plan) { p.OnCrash = fleet.CrashRestart })
	s.etcd.Stop()
	kill()
	for id := range before {
		s.endAll(id)
	}
	s.begin(func(c *nodeagent.Config) { taking(c); c.BootID = "the next boot" })
	for id := range before {
		i := s.awaitLocal(id, "held", func(client.Instance) bool { return true })
		if i.State != fleet.Offline || i.PID != 0 || !strings.Contains(i.Message, "joined") {
			t.Errorf("shown as %+v", i)
		}
	}
	_, err := s.local().Stop(t.Context(), client.Stop{All: true})
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "Restore the connection to etcd") {
		t.Errorf("stopped: %v", err)
	}
	if err := s.local().WriteLine(t.Context(), s.id(0), "hello"); !errs.Is(err, errs.Unavailable) {
		t.Errorf("typed: %v", err)
	}
	if a, err := s.local().Agent(t.Context()); err != nil || a.Held != 2 || a.Instances[fleet.Offline] != 2 {
		t.Errorf("agent %+v, %v", a, err)
	}
	s.etcd.Restart(t)
	for id, was := range before {
		s.await(id, "a run after the restart", func(st fleet.Status) bool { return st.State == fleet.Online && st.PID != was.PID })
	}
	if a, err := s.local().Agent(t.Context()); err != nil || a.Held != 0 {
		t.Errorf("agent %+v, %v", a, err)
	}
}

func TestLocalStopIsReportedAfterOutage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kill := s.spawn()
	before := s.fill(3, func(_ int, p *fleet.Plan) { p.OnCrash = fleet.CrashRestart })
	s.etcd.Stop()
	s.awaitAgent("the outage seen", func(a client.Agent) bool { return !a.Etcd.Reachable })
	answer, err := s.local().Stop(t.Context(), client.Stop{Instances: []fleet.InstanceID{s.id(0), s.id(1)}})
	if err != nil || len(answer.Instances) != 2 || !strings.Contains(answer.Note, "scale it down") {
		t.Fatalf("answer %+v, %v", answer, err)
	}
	kill() // at once: confirmed changes are in the journal
	s.begin(taking)
	for i := range 2 {
		s.awaitLocal(s.id(i), "stopped", func(i client.Instance) bool {
			return i.State == fleet.Stopped && i.Reason == fleet.ReasonStoppedLocally && i.Restarts == 0
		})
		awaitGone(t, before[s.id(i)].PID)
	}
	s.etcd.Restart(t)
	for i := range 2 {
		st := s.awaitState(s.id(i), 1, fleet.Stopped)
		if st.Reason != fleet.ReasonStoppedLocally || !strings.Contains(st.Message, "uid ") || st.Restarts != 0 {
			t.Errorf("status %+v", st)
		}
	}
	if st := s.status(s.id(2)); st.State != fleet.Online || st.PID != before[s.id(2)].PID {
		t.Errorf("status %+v", st)
	}
}

func TestRebootWithoutStorePreparesFromJournal(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	plan := basic("cat motd; sleep 1000")
	plan.OnCrash = fleet.CrashRestart
	plan.Layers = []fleet.PlanLayer{s.library.add("base", map[string]string{"motd": "hello\n"})}
	before := s.online(s.id(0), plan)
	s.stop()
	s.etcd.Stop()
	killed(t, before.PID)
	awaitGone(t, before.PID)
	entry := filepath.Join(s.dir, "journal", string(s.id(0))+".json")
	b, err := os.ReadFile(entry)
	if err != nil {
		t.Fatal(err)
	}
	boot := regexp.MustCompile(`"bootId":"[^"]*"`)
	if err := os.WriteFile(entry, boot.ReplaceAll(b, []byte(`"bootId":"an earlier one"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.library = newLibrary() // templates are unavailable too
	s.begin(taking)
	s.awaitLocal(s.id(0), "running again", func(i client.Instance) bool { return i.State == fleet.Online && i.Restarts == 1 })
	s.etcd.Restart(t)
	s.await(s.id(0), "the second run reported", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
}

func TestMassStopAfterOutageIsObeyedAndLogged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	s.fill(6, nil)
	s.stop()
	for i := range 6 {
		s.order(s.id(i), 1, fleet.OrderKill)
	}
	var log logbook
	s.start(log.into)
	for i := range 6 {
		s.awaitState(s.id(i), 1, fleet.Stopped)
	}
	if want := "most of the running instances were ordered to stop"; !strings.Contains(log.String(), want) {
		t.Errorf("%q is not in the log:\n%s", want, log.String())
	}
}

func TestEmptiedStoreStopsNothing(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*site){
		"etcd was replaced by an empty one": func(s *site) {
			s.etcd.Stop()
			s.etcd.Empty(s.t)
		},
		"all keys were deleted": func(s *site) { s.etcd.Clear(s.t) },
	}
	for name, lose := range ways {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.start(taking)
			before := s.fill(6, nil)
			first := s.awaitAgent("the session", func(a client.Agent) bool { return a.Etcd.SessionAlive })
			lose(s)
			s.awaitAgent("orphans under a new session", func(a client.Agent) bool {
				return a.Orphans == 6 && a.Etcd.Reachable && a.Etcd.Cluster != first.Etcd.Cluster
			})
			all, err := s.local().Instances(t.Context())
			if err != nil || len(all) != 6 {
				t.Fatalf("%+v, %v", all, err)
			}
			for _, i := range all {
				if !i.Orphan || i.PID != before[i.ID].PID || !alive(i.PID) || i.State != fleet.Online {
					t.Errorf("instance %+v", i)
				}
			}
			if n, err := store.Get(t.Context(), s.store, keys.Node(node)); err != nil || n.ID != node {
				t.Errorf("the node's record: %+v, %v", n, err)
			}
			s.online(s.id(50), basic("sleep 1000"))
		})
	}
}

func TestNewerSchemaIsReportedWithoutHarm(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	before := s.fill(1, nil)[s.id(0)]
	s.stop()
	s.write(keys.Meta(), cluster.Meta{Schema: keys.Schema + 1, ClusterID: "newer"})
	a, err := nodeagent.New(s.config())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), "schema") {
		t.Errorf("the agent ended with %v", err)
	}
	if st := s.status(s.id(0)); !alive(before.PID) || st.ModRev != before.ModRev {
		t.Errorf("before %+v\nafter %+v", before, st)
	}
	s.write(keys.Meta(), cluster.Meta{Schema: keys.Schema, ClusterID: "as before"})
	s.start(taking)
}
