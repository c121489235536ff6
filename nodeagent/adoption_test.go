package nodeagent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
)

// processesOf lists the processes with an instance's mark that work below the site's directory.
func (s *site) processesOf(id fleet.InstanceID) []int {
	s.t.Helper()
	return proctest.Where(s.t, func(p proctest.Process) bool {
		return p.Carries("ORRERY_INSTANCE_ID="+string(id)) && strings.HasPrefix(p.Dir(), s.dir+"/")
	})
}

func (s *site) entryPath(id fleet.InstanceID) string {
	return filepath.Join(s.dir, "journal", string(id)+".json")
}

// loseEntry removes an instance's journal entry while no agent runs.
func (s *site) loseEntry(id fleet.InstanceID) {
	s.t.Helper()
	if err := os.Remove(s.entryPath(id)); err != nil {
		s.t.Fatal(err)
	}
}

// edit changes an instance's journal entry while no agent runs.
func (s *site) edit(id fleet.InstanceID, change func(*journal.Entry)) {
	s.t.Helper()
	b, err := os.ReadFile(s.entryPath(id))
	if err != nil {
		s.t.Fatal(err)
	}
	var e journal.Entry
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &e); err != nil {
		s.t.Fatal(err)
	}
	change(&e)
	if b, err = json.Marshal(e); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.entryPath(id), b, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// logbook is a log that can be searched while it is written.
type logbook struct{ await.Text }

func (l *logbook) into(c *nodeagent.Config) { c.Log = slog.New(slog.NewTextHandler(l, nil)) }

// endAll ends all processes of an instance at once, as a power cut does, without a report.
func (s *site) endAll(id fleet.InstanceID) {
	s.t.Helper()
	s.edit(id, func(e *journal.Entry) {
		if err := syscall.Kill(e.Process.Shell.PID, syscall.SIGKILL); err != nil {
			s.t.Fatal(err)
		}
	})
	for _, pid := range s.processesOf(id) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	await.That(s.t, "the processes gone", func() string {
		left := s.processesOf(id)
		return await.Unless(len(left) == 0, "%v", left)
	})
}

func TestResumeWithoutJournalEntryAdoptsProcess(t *testing.T) {
	t.Parallel()
	spoil := map[string]func(path string) error{
		"cut short":          func(path string) error { return os.Truncate(path, 20) },
		"empty":              func(path string) error { return os.Truncate(path, 0) },
		"deleted":            os.Remove,
		"of a newer version": func(path string) error { return os.WriteFile(path, []byte(`{"version":99,"machine":[]}`), 0o600) },
		"the whole journal":  func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	}
	for name, spoil := range spoil {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.start(nil)
			plan := server()
			plan.OnCrash = fleet.CrashRestart
			s.place("aaaaaa", 1, plan, freePort(t))
			s.place("bbbbbb", 1, basic("sleep 1000"), 0)
			a, b := s.awaitState("aaaaaa", 1, fleet.Online), s.awaitState("bbbbbb", 1, fleet.Online)
			processes := s.processesOf("aaaaaa")
			s.stop()
			if err := spoil(s.entryPath("aaaaaa")); err != nil {
				t.Fatal(err)
			}
			var log logbook
			s.start(log.into)
			await.That(t, "the instance taken up", func() string {
				i, err := s.api().Instance(t.Context(), "aaaaaa")
				return await.Unless(err == nil && i.PID == a.PID && i.State == fleet.Online, "%+v, %v", i, err)
			})
			if got := s.processesOf("aaaaaa"); fmt.Sprint(got) != fmt.Sprint(processes) {
				t.Errorf("processes %v, before %v", got, processes)
			}
			if st := s.status("bbbbbb"); st.PID != b.PID || !alive(b.PID) {
				t.Errorf("the other instance: %+v", st)
			}
			if !strings.Contains(log.String(), "missing from the journal") || !strings.Contains(log.String(), "instance=aaaaaa") {
				t.Errorf("the log names it nowhere:\n%s", &log)
			}
			s.stop()
			s.start(taking) // its entry is whole again; the plan's stop line ends it
			s.order("aaaaaa", 1, fleet.OrderStop)
			if st := s.awaitState("aaaaaa", 1, fleet.Stopped); st.Exit == nil || st.Exit.Code != 0 {
				t.Errorf("status %+v, exit %+v", st, st.Exit)
			}
		})
	}
}

func TestResumedInstanceKeepsTokenAcrossRestart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	plan := basic(`echo "$ORRERY_TOKEN" >>tokens; echo >up; sleep 1000`)
	plan.OnCrash = fleet.CrashRestart
	first := s.online("aaaaaa", plan)
	await.That(t, "the first run", func() string { return await.Unless(s.running("aaaaaa", "up") != "", "it is not up") })
	s.stop()
	s.loseEntry("aaaaaa")
	s.start(taking)
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := s.await("aaaaaa", "a second run", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
	await.That(t, "both tokens", func() string {
		tokens := strings.Fields(s.running("aaaaaa", "tokens"))
		return await.Unless(len(tokens) == 2 && tokens[0] == tokens[1], "%v", tokens)
	})
	if second.TokenHash != first.TokenHash {
		t.Error("the token changed")
	}
}

func TestResumedInstanceObeysPendingOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	pid := s.online("aaaaaa", basic("sleep 1000")).PID
	s.stop()
	s.loseEntry("aaaaaa")
	s.order("aaaaaa", 1, fleet.OrderStop)
	s.start(taking)
	s.awaitState("aaaaaa", 1, fleet.Stopped)
	awaitGone(t, pid)
}

func TestUnreportedProcessIsAdopted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	pid := s.online("aaaaaa", basic("sleep 1000")).PID
	s.stop()
	s.loseEntry("aaaaaa")
	s.remove(keys.Status("aaaaaa"))
	s.start(taking)
	if st := s.awaitState("aaaaaa", 1, fleet.Online); st.PID != pid || len(s.processesOf("aaaaaa")) != 2 {
		t.Errorf("status %+v, processes %v", st, s.processesOf("aaaaaa"))
	}
}

func TestUnjournalledStartIsAdopted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	pid := s.online("aaaaaa", basic("sleep 1000")).PID
	s.stop()
	s.edit("aaaaaa", func(e *journal.Entry) {
		e.Machine.Phase, e.Machine.Pending, e.ProcessRun = "launching", "launch", 0
		e.Machine.Status.State, e.Machine.Status.PID = fleet.Preparing, 0
	})
	s.start(taking)
	await.That(t, "the same process", func() string {
		i, err := s.api().Instance(t.Context(), "aaaaaa")
		return await.Unless(err == nil && i.State == fleet.Online && i.PID == pid, "%+v, %v", i, err)
	})
}

func TestExitIsKnownWithoutJournal(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	pid := s.online("aaaaaa", basic("read go; exit 37")).PID
	if err := s.api().WriteLine(t.Context(), "aaaaaa", "too early to stop"); err != nil {
		t.Fatal(err)
	}
	s.stop()
	awaitGone(t, pid)
	if err := os.RemoveAll(filepath.Join(s.dir, "journal")); err != nil {
		t.Fatal(err)
	}
	s.start(taking)
	if st := s.awaitState("aaaaaa", 1, fleet.Crashed); st.Exit == nil || st.Exit.Code != 37 {
		t.Errorf("status %+v, exit %+v", st, st.Exit)
	}
}

func TestHostRestartIsNotACrash(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{"whole", "cut short"} {
		t.Run(entry, func(t *testing.T) {
			s := newSite(t)
			s.start(nil)
			again := basic("sleep 1000")
			again.OnCrash = fleet.CrashRestart
			s.place("aaaaaa", 1, basic("sleep 1000"), 0)
			s.place("bbbbbb", 1, again, 0)
			s.awaitState("aaaaaa", 1, fleet.Online)
			before := s.awaitState("bbbbbb", 1, fleet.Online)
			s.stop()
			recycled := proctest.Bystander(t)
			for _, id := range []fleet.InstanceID{"aaaaaa", "bbbbbb"} {
				s.endAll(id)
				s.edit(id, func(e *journal.Entry) {
					e.Process.Server.PID, e.Process.Server.Start = recycled, proctest.StartTime(t, recycled)
					e.Process.Shell = e.Process.Server
				})
			}
			if entry == "cut short" {
				if err := os.Truncate(s.entryPath("aaaaaa"), 9); err != nil {
					t.Fatal(err)
				}
			}
			s.start(func(c *nodeagent.Config) { taking(c); c.BootID = "the next boot" })
			st := s.awaitState("aaaaaa", 1, fleet.Crashed)
			if st.Reason != fleet.ReasonNodeRebooted {
				t.Errorf("status %+v", st)
			}
			after := s.await("bbbbbb", "a run after the restart", func(st fleet.Status) bool { return st.State == fleet.Online && st.PID != before.PID })
			s.stop()
			s.edit("bbbbbb", func(e *journal.Entry) {
				if e.Machine.Level != 0 || len(e.Machine.Crashes) != 0 {
					t.Errorf("counted as a crash: level %d, %v; status %+v", e.Machine.Level, e.Machine.Crashes, after)
				}
			})
			if !alive(recycled) {
				t.Error("a process that has an old one's number was ended")
			}
		})
	}
}

func TestInstancesOfARebootedHostStartInStages(t *testing.T) {
	t.Parallel()
	const all = 6
	s := newSite(t)
	s.start(nil)
	ready := filepath.Join(t.TempDir(), "ready")
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.fill(all, func(n int, p *fleet.Plan) {
		p.Command, p.OnCrash, p.StartupWeight = "until [ -e "+ready+" ]; do sleep 0.05; done; echo Done; sleep 1000", fleet.CrashRestart, n
		p.Readiness = fleet.Check{Type: fleet.CheckLog, Pattern: "Done"}
	})
	s.stop()
	for n := range all {
		s.endAll(s.id(n))
	}
	if err := os.Remove(ready); err != nil {
		t.Fatal(err)
	}
	s.start(func(c *nodeagent.Config) { taking(c); c.BootID, c.StartParallel = "the next boot", 2 })
	await.That(t, "the two of the highest weight start, and the others wait", func() string {
		var is []string
		for n := range all {
			is = append(is, string(s.status(s.id(n)).Reason))
		}
		queued := slices.Repeat([]string{string(fleet.ReasonStartQueued)}, all-2)
		return await.Unless(slices.Equal(is[:all-2], queued) && is[all-2] == string(fleet.ReasonRestartedInPlace) && is[all-1] == is[all-2], "%v", is)
	})
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range all {
		s.await(s.id(n), "running again", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
	}
}

func TestReusedPIDIsNotSignalled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	s.online("aaaaaa", basic("sleep 1000"))
	s.stop()
	s.endAll("aaaaaa")
	recycled := proctest.Bystander(t)
	s.edit("aaaaaa", func(e *journal.Entry) { e.Process.Shell.PID, e.Process.Server.PID = recycled, recycled })
	s.start(taking)
	s.awaitState("aaaaaa", 1, fleet.Crashed)
	if !alive(recycled) {
		t.Error("a stranger was ended")
	}
}

func TestEntriesOfAnotherNodeAreReportedAndIgnored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	pid := s.online("aaaaaa", basic("sleep 1000")).PID
	s.write(keys.Intent("aaaaaa"), fleet.Intent{ID: "aaaaaa", Group: "lobby", Name: "lobby-1", Desired: fleet.DesiredRunning})
	s.stop()
	before, err := os.ReadFile(s.entryPath("aaaaaa"))
	if err != nil {
		t.Fatal(err)
	}
	var log logbook
	s.start(func(c *nodeagent.Config) { taking(c); log.into(c); c.Node = "node-2" })
	s.write(keys.Placement("node-2", "bbbbbb"), fleet.Placement{Instance: "bbbbbb", Group: "lobby", Node: "node-2", Generation: 1, Plan: "none"})
	s.awaitState("bbbbbb", 1, fleet.Failed) // the agent has processed the placements
	if text := log.String(); !strings.Contains(text, s.entryPath("aaaaaa")) || !strings.Contains(text, "node-1") {
		t.Errorf("not named:\n%s", text)
	}
	s.stop()
	if after, err := os.ReadFile(s.entryPath("aaaaaa")); err != nil || !bytes.Equal(before, after) || !alive(pid) {
		t.Errorf("the entry or its process was touched: %v", err)
	}
	s.start(taking)
	s.order("aaaaaa", 1, fleet.OrderStop)
	s.awaitState("aaaaaa", 1, fleet.Stopped)
}

func TestNodeIDBelongsToItsDirectoryUntilDeletion(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	pid := s.online("aaaaaa", basic("sleep 1000")).PID
	other := *s
	other.dir = t.TempDir()
	refused := func(when string) {
		t.Helper()
		a, err := nodeagent.New(other.config())
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Run(t.Context()); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), "orrery delete node node-1 --dry-run") {
			t.Errorf("%s: %v", when, err)
		}
	}
	refused("while the first lives")
	if st := s.status("aaaaaa"); st.PID != pid || !alive(pid) {
		t.Errorf("the first one's instance was touched: %+v", st)
	}
	s.order("aaaaaa", 1, fleet.OrderKill)
	s.awaitState("aaaaaa", 1, fleet.Stopped)
	s.stop()
	s.remove(keys.NodeSession(node))
	refused("after its session is gone")
	s.remove(keys.Node(node))
	other.start(taking)
}

func TestCopyOfUsedDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	before := s.online("aaaaaa", basic("sleep 1000"))
	record, err := store.Get(t.Context(), s.store, keys.Node(node))
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.config()
	cfg.DataDir = t.TempDir()
	for _, part := range []string{"uuid", "holder", "journal/aaaaaa.json"} {
		b, err := os.ReadFile(filepath.Join(s.dir, part))
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(cfg.DataDir, part)), 0o700), os.WriteFile(filepath.Join(cfg.DataDir, part), b, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg.SessionTTL = 1e9 // a second, so that it is sure sooner
	a, err := nodeagent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), "copy of this data directory") {
		t.Errorf("the copy: %v", err)
	}
	again, err := store.Get(t.Context(), s.store, keys.Node(node))
	if err != nil || again.AgentURL != record.AgentURL {
		t.Errorf("the copy wrote the node's record: %+v, %v", again, err)
	}
	if st := s.status("aaaaaa"); st.PID != before.PID || st.Epoch != before.Epoch || !alive(before.PID) {
		t.Errorf("before %+v\nafter %+v", before, st)
	}
}
