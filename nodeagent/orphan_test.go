package nodeagent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
)

// stray leaves a running instance without journal and record, and no agent.
func stray(t *testing.T, s *site) (pid int) {
	t.Helper()
	s.start(nil)
	s.place("aaaaaa", 1, basic("sleep 1000"), 0)
	s.place("bbbbbb", 1, basic("sleep 1000"), 0)
	pid = s.awaitState("aaaaaa", 1, fleet.Online).PID
	s.awaitState("bbbbbb", 1, fleet.Online)
	s.stop()
	if err := os.Remove(s.entryPath("aaaaaa")); err != nil {
		t.Fatal(err)
	}
	s.remove(keys.Placement(node, "aaaaaa"))
	s.remove(keys.Status("aaaaaa"))
	t.Cleanup(func() { // even if the test fails
		for _, pid := range s.processesOf("aaaaaa") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return pid
}

// orphans reads the metric.
func orphans(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "orrery_nodeagent_orphans" {
			return f.Metric[0].Gauge.GetValue()
		}
	}
	t.Fatal("no such metric")
	return 0
}

// awaitOrphans waits until the metric says so many.
func awaitOrphans(t *testing.T, reg *prometheus.Registry, want float64) {
	t.Helper()
	await.That(t, fmt.Sprint(want, " orphans"), func() string {
		got := orphans(t, reg)
		return await.Unless(got == want, "%v", got)
	})
}

func TestStrayIsReportedAndEndedAfterGrace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	pid := stray(t, s)
	var log logbook
	reg := prometheus.NewRegistry()
	s.start(func(c *nodeagent.Config) {
		taking(c)
		log.into(c)
		c.Metrics, c.OrphanGrace = reg, 500*time.Millisecond
	})
	awaitOrphans(t, reg, 1)
	if !alive(pid) || !strings.Contains(log.String(), "orphan: a process runs for an instance without a record") {
		t.Errorf("ended before its grace, or not named:\n%s", &log)
	}
	awaitGone(t, pid)
	awaitOrphans(t, reg, 0)
	if st := s.status("bbbbbb"); st.State != fleet.Online || !alive(st.PID) {
		t.Errorf("an instance with a record: %+v", st)
	}
	if !exists(filepath.Join(s.dir, "logs", "aaaaaa.log")) {
		t.Error("its log is gone")
	}
}

func TestOrphanIsStoppedByPolicyAfterGrace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	reg := prometheus.NewRegistry()
	s.start(func(c *nodeagent.Config) { taking(c); c.Metrics, c.OrphanGrace = reg, 500*time.Millisecond })
	said := filepath.Join(t.TempDir(), "said")
	plan := basic(`read line; echo "$line" >` + said)
	plan.Stop.Command = "save and stop"
	s.online("aaaaaa", plan)
	s.remove(keys.Placement(node, "aaaaaa"))
	await.That(t, "the stop line", func() string {
		b, _ := os.ReadFile(said)
		return await.Unless(string(b) == "save and stop\n", "%q", b)
	})
	await.That(t, "nothing of it left", func() string { return await.Unless(!exists(s.entryPath("aaaaaa")), "its journal entry") })
}

func TestOrphanIsLeftAloneWhile(t *testing.T) {
	t.Parallel()
	grace := func(c *nodeagent.Config) { c.OrphanGrace = 50 * time.Millisecond }
	never := func(c *nodeagent.Config) { c.OrphanGrace = 0 }
	nothing := func(*testing.T, *site) {}
	cases := []struct {
		name    string
		change  func(*nodeagent.Config)
		before  func(*testing.T, *site)
		orphans float64
	}{
		{"the grace is unlimited", never, nothing, 1},
		{"the intent exists", grace, func(_ *testing.T, s *site) {
			s.write(keys.Intent("aaaaaa"), fleet.Intent{ID: "aaaaaa", Group: "lobby", Name: "lobby-1", Desired: fleet.DesiredRunning})
		}, 0},
		{"the store was emptied after the start", grace, func(_ *testing.T, s *site) {
			s.remove(keys.Node(node))
			s.remove(keys.Placement(node, "bbbbbb"))
			s.remove(keys.Status("bbbbbb"))
		}, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t)
			pid := stray(t, s)
			c.before(t, s)
			reg := prometheus.NewRegistry()
			s.start(func(cfg *nodeagent.Config) { c.change(cfg); cfg.Metrics = reg })
			awaitOrphans(t, reg, c.orphans)
			looks(t, s)
			if !alive(pid) {
				t.Error("it was ended")
			}
			s.place("aaaaaa", 2, basic("true"), 0) // its record is back
			s.awaitState("aaaaaa", 2, fleet.Online)
			if st := s.status("aaaaaa"); st.PID != pid {
				t.Errorf("status %+v, want pid %d", st, pid)
			}
			s.order("aaaaaa", 2, fleet.OrderKill)
			s.order("bbbbbb", 1, fleet.OrderKill)
			s.awaitState("aaaaaa", 2, fleet.Stopped)
			awaitGone(t, pid)
		})
	}
}

func TestRunsAfterBackupAreLeftAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		ttl  time.Duration
		bump int
	}{
		{"the session is in the backup", time.Minute, 0},
		{"the node joins again", 2 * time.Second, 0},
		{"the session is in the backup and the revision is raised", time.Minute, 1000},
		{"the node joins again and the revision is raised", 2 * time.Second, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			reg := prometheus.NewRegistry()
			s.start(func(c *nodeagent.Config) {
				taking(c)
				c.Metrics, c.OrphanGrace, c.SessionTTL = reg, time.Second, tt.ttl
			})
			s.place("bbbbbb", 1, basic("sleep 1000"), 0)
			older := s.awaitState("bbbbbb", 1, fleet.Online).PID
			s.etcd.Stop()
			backup := s.etcd.Backup(t)
			s.etcd.Restart(t)
			s.awaitAgent("reached again", func(a client.Agent) bool { return a.Etcd.SessionAlive && a.Unwritten == 0 })
			s.place("aaaaaa", 1, basic("sleep 1000"), 0)
			younger := s.awaitState("aaaaaa", 1, fleet.Online).PID
			for n := range 20 { // changes of the rest of the fleet
				s.write(keys.Intent(s.id(n)), fleet.Intent{ID: s.id(n), Group: "lobby", Name: "lobby-1", Desired: fleet.DesiredStopped})
			}
			s.etcd.Stop()
			s.restore(backup, tt.bump)
			s.etcd.Restart(t)
			awaitOrphans(t, reg, 1)
			waited := time.Now()
			await.That(t, "more than its grace to pass", func() string { return await.Unless(time.Since(waited) > 2*time.Second, "%v", time.Since(waited)) })
			if !alive(younger) || !alive(older) {
				t.Error("the backup's lack of a record ended it")
			}
		})
	}
}

// The agent joined before the backup was made, so the node's record does not show that the store
// has lost data. Its report does.
func TestRestoreDuringAgentDowntimeIsDetected(t *testing.T) {
	t.Parallel()
	for _, bump := range []int{0, 1000} {
		t.Run(fmt.Sprintf("revision raised by %d", bump), func(t *testing.T) {
			s := newSite(t)
			reg := prometheus.NewRegistry()
			config := func(c *nodeagent.Config) {
				c.Metrics, c.OrphanGrace, c.SessionTTL = reg, time.Second, time.Minute
			}
			s.start(config)
			s.etcd.Stop()
			backup := s.etcd.Backup(t)
			s.etcd.Restart(t)
			s.awaitAgent("reached again", func(a client.Agent) bool { return a.Etcd.SessionAlive && a.Unwritten == 0 })
			s.place("aaaaaa", 1, basic("sleep 1000"), 0)
			younger := s.awaitState("aaaaaa", 1, fleet.Online).PID
			t.Cleanup(func() {
				for _, pid := range s.processesOf("aaaaaa") {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			placed, err := store.Get(t.Context(), s.store, keys.Placement(node, "aaaaaa"))
			if err != nil {
				t.Fatal(err)
			}
			await.That(t, "the start to be reported", func() string {
				b, err := os.ReadFile(filepath.Join(s.dir, journal.HistoryFile))
				if err != nil {
					return err.Error()
				}
				var name string
				var joined, reported int64
				_, err = fmt.Sscan(string(b), &name, &joined, &reported)
				return await.Unless(err == nil && reported > placed.ModRev, "%q, %v", b, err)
			})
			s.stop()
			s.etcd.Stop()
			s.restore(backup, bump)
			s.etcd.Restart(t)
			reg = prometheus.NewRegistry()
			s.start(config)
			awaitOrphans(t, reg, 1)
			waited := time.Now()
			await.That(t, "more than its grace to pass", func() string { return await.Unless(time.Since(waited) > 2*time.Second, "%v", time.Since(waited)) })
			if !alive(younger) {
				t.Error("the backup's lack of a record ended it")
			}
		})
	}
}

// restore replaces the data of a stopped etcd with a backup. It raises the revision unless bump
// is 0.
func (s *site) restore(backup string, bump int) {
	s.t.Helper()
	if bump == 0 {
		s.etcd.Restore(s.t, backup)
		return
	}
	s.etcd.RestoreBumped(s.t, backup, bump)
}

// The backup contains the session, so the agent does not join again. Its status is newer than the
// restored placement, and an order for that generation stops it.
func TestRestoreMakesAgentReportAgain(t *testing.T) {
	t.Parallel()
	for _, bump := range []int{0, 1000} {
		t.Run(fmt.Sprintf("revision raised by %d", bump), func(t *testing.T) {
			s := newSite(t)
			s.start(func(c *nodeagent.Config) { taking(c); c.SessionTTL = time.Minute })
			s.place("aaaaaa", 1, basic("sleep 1000"), 0)
			s.awaitState("aaaaaa", 1, fleet.Online)
			s.etcd.Stop()
			backup := s.etcd.Backup(t)
			s.etcd.Restart(t)
			s.awaitAgent("reached again", func(a client.Agent) bool { return a.Etcd.SessionAlive && a.Unwritten == 0 })
			s.place("aaaaaa", 2, basic("sleep 1000"), 0)
			pid := s.awaitState("aaaaaa", 2, fleet.Online).PID
			s.etcd.Stop()
			s.restore(backup, bump)
			s.etcd.Restart(t)
			if got := s.awaitState("aaaaaa", 2, fleet.Online).PID; got != pid || !alive(pid) {
				t.Errorf("pid %d is reported, want %d", got, pid)
			}
			s.order("aaaaaa", 2, fleet.OrderKill)
			s.awaitState("aaaaaa", 2, fleet.Stopped)
			awaitGone(t, pid)
		})
	}
}

// An operator deleted the node while it was offline, which abandoned all its instances. The agent
// returns and finds no record of itself or of its instances.
func TestDeletedNodeStopsInstancesAfterGrace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// known is whether the deletion is recorded, and for the agent's record.
		known, restarts bool
	}{
		{"the deletion is known", true, false},
		{"the deletion is known and the agent restarts during the grace", true, true},
		{"the deletion is not known", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t)
			s.start(nil)
			var pids []int
			for n := range 4 {
				s.place(s.id(n), 1, basic("sleep 1000"), 0)
				pids = append(pids, s.awaitState(s.id(n), 1, fleet.Online).PID)
			}
			s.stop()
			record, err := store.Get(t.Context(), s.store, keys.Node(node))
			if err != nil {
				t.Fatal(err)
			}
			gone := cluster.DeletedNode{Node: node, Record: record.ModRev, By: "alice"}
			if !tt.known {
				gone.Record--
			}
			s.write(keys.DeletedNode(node), gone)
			s.remove(keys.Node(node))
			for n := range 4 {
				s.remove(keys.Placement(node, s.id(n)))
				s.remove(keys.Status(s.id(n)))
			}
			if tt.restarts {
				reg := prometheus.NewRegistry()
				s.start(func(c *nodeagent.Config) { c.Metrics, c.OrphanGrace = reg, time.Hour })
				awaitOrphans(t, reg, 4)
				s.stop()
			}
			reg := prometheus.NewRegistry()
			s.start(func(c *nodeagent.Config) { c.Metrics, c.OrphanGrace = reg, 500*time.Millisecond })
			if tt.known {
				for _, pid := range pids {
					awaitGone(t, pid)
				}
				return
			}
			awaitOrphans(t, reg, 4)
			looks(t, s)
			for n, pid := range pids {
				if !alive(pid) {
					t.Errorf("%s was ended", s.id(n))
				}
				_ = syscall.Kill(pid, syscall.SIGKILL)
				awaitGone(t, pid)
			}
			awaitOrphans(t, reg, 0)
		})
	}
}

func TestTooManyOrphansAreNotStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var log logbook
	reg := prometheus.NewRegistry()
	s.start(func(c *nodeagent.Config) { taking(c); log.into(c); c.Metrics, c.OrphanGrace = reg, 50*time.Millisecond })
	var pids []int
	ids := []fleet.InstanceID{"aaaaaa", "bbbbbb", "cccccc", "dddddd"}
	for _, id := range ids {
		pids = append(pids, s.online(id, basic("sleep 1000")).PID)
	}
	for _, id := range ids {
		s.remove(keys.Placement(node, id))
	}
	awaitOrphans(t, reg, 4)
	await.That(t, "the doubt told", func() string {
		return await.Unless(strings.Contains(log.String(), "too many instances have no record"), "%s", &log)
	})
	looks(t, s)
	for _, pid := range pids {
		if !alive(pid) {
			t.Errorf("process %d was ended", pid)
		}
	}
}

func TestOutageEndsNoOrphan(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	reg := prometheus.NewRegistry()
	s.start(func(c *nodeagent.Config) { taking(c); c.Metrics, c.OrphanGrace = reg, 1500*time.Millisecond })
	pid := s.online("aaaaaa", basic("sleep 1000")).PID
	s.remove(keys.Placement(node, "aaaaaa"))
	awaitOrphans(t, reg, 1)
	s.etcd.Stop()
	waited := time.Now()
	await.That(t, "more than its grace to pass", func() string {
		return await.Unless(time.Since(waited) > 3*time.Second, "%v", time.Since(waited))
	})
	if !alive(pid) {
		t.Error("it was ended without the store")
	}
	s.etcd.Restart(t)
	awaitGone(t, pid)
}

// looks waits for many checks with a grace of 50 ms.
func looks(t *testing.T, s *site) {
	t.Helper()
	s.place("zzzzzz", 1, basic("sleep 0.5"), 0)
	s.awaitState("zzzzzz", 1, fleet.Stopped)
	s.remove(keys.Placement(node, "zzzzzz"))
}
