package nodeagent_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// crashes waits until the store has n crashes and returns them in order of id.
func (s *site) crashes(n int) []reports.Crash {
	s.t.Helper()
	var all []reports.Crash
	await.That(s.t, "the crashes", func() string {
		var err error
		if all, _, err = store.List(s.t.Context(), s.store, keys.Crashes()); err != nil {
			return err.Error()
		}
		return await.Unless(len(all) == n, "%d, want %d: %+v", len(all), n, all)
	})
	return all
}

// printed returns the output stored with a crash, which is written in the same revision.
func (s *site) printed(c reports.Crash) []string {
	s.t.Helper()
	tail, err := store.Get(s.t.Context(), s.store, keys.CrashTail(c.ID))
	if err != nil || tail.ModRev != c.ModRev {
		s.t.Fatalf("tail at %d of a crash at %d: %v", tail.ModRev, c.ModRev, err)
	}
	lines, err := tail.Lines()
	if err != nil {
		s.t.Fatal(err)
	}
	return lines
}

func TestCrashIsRecordedWithLastOutput(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(`seq 600; echo "panic: out of luck"; exit 2`)
	plan.GroupRevision, plan.OnCrash = 7, fleet.CrashStop
	s.place("aaaaaa", 1, plan, 0)
	s.awaitState("aaaaaa", 1, fleet.Crashed)
	c := s.crashes(1)[0]
	if c.ID != "aaaaaa-1-1" || c.Instance != "aaaaaa" || c.Name != "lobby-1" || c.Group != "lobby" || c.GroupRevision != 7 || c.Node != node ||
		c.Reason != fleet.ReasonExited || c.Exit.Code != 2 || c.Category != reports.CrashUnknown || c.Cause != "panic: out of luck" || len(c.Fingerprint) != 16 ||
		c.At.IsZero() || c.StartedAt.IsZero() || len(c.Last) != reports.MaxLastLines || c.Last[0] != "582" || c.Last[19] != "panic: out of luck" {
		t.Errorf("%+v", c)
	}
	if lines := s.printed(c); len(lines) != 500 || lines[0] != "102" || lines[499] != "panic: out of luck" {
		t.Errorf("%d lines, from %q to %q", len(lines), lines[0], lines[len(lines)-1])
	}
	await.That(t, "nothing waiting", func() string {
		left, err := filepath.Glob(filepath.Join(s.dir, "crashes", "*"))
		return await.Unless(err == nil && len(left) == 0, "%v %v", left, err)
	})
}

func TestCrashCauseIsLastOutput(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(`echo "java.lang.IllegalStateException: a plugin is not there"; sleep 3; echo "ERROR: cannot write the world"; exit 3`)
	plan.OnCrash = fleet.CrashRestart
	s.place("aaaaaa", 1, plan, 0)
	// On a busy machine a second may pass before the end of one run, but not of all.
	await.That(t, "a crash that names its last words", func() string {
		all, _, err := store.List(t.Context(), s.store, keys.Crashes())
		told := slices.ContainsFunc(all, func(c reports.Crash) bool { return c.Cause == "cannot write the world" })
		return await.Unless(err == nil && told, "%+v, %v", all, err)
	})
}

func TestSIGKILLCrashGivesAdvice(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(`echo "WARN: failed to load a plugin"; sleep 1000`)
	plan.OnCrash = fleet.CrashStop
	i := s.online("aaaaaa", plan)
	if err := syscall.Kill(i.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	st := s.awaitState("aaaaaa", 1, fleet.Crashed)
	const want = "killed by the kernel or another program; see journalctl -k on its node"
	if !strings.Contains(st.Message, want) {
		t.Errorf("the status says %q", st.Message)
	}
	if c := s.crashes(1)[0]; c.Category != reports.CrashKilled || c.Cause != want {
		t.Errorf("%+v", c)
	}
}

func TestRestartsInPlaceAreRecordedSeparately(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(`if [ -e second ]; then echo "panic: two"; exit 3; fi; touch second; echo "java.lang.OutOfMemoryError: one"; exit 1`)
	plan.OnCrash = fleet.CrashRestart
	s.place("aaaaaa", 1, plan, 0)
	s.awaitState("aaaaaa", 1, fleet.Crashed)
	all := s.crashes(3)
	if all[0].Category != reports.CrashOutOfMemory || all[1].Category != reports.CrashUnknown || all[1].Fingerprint != all[2].Fingerprint ||
		all[0].Fingerprint == all[1].Fingerprint {
		t.Errorf("%+v", all)
	}
	if got := s.printed(all[1]); !slices.Equal(got, []string{"panic: two"}) {
		t.Errorf("the second run printed %q", got)
	}
}

func TestStopIsNotACrash(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	s.online("aaaaaa", basic(`sleep 1000`))
	s.order("aaaaaa", 1, fleet.OrderKill)
	s.awaitState("aaaaaa", 1, fleet.Stopped)
	plan := basic(`exit 9`)
	plan.OnCrash = fleet.CrashStop
	s.place("bbbbbb", 1, plan, 0)
	if c := s.crashes(1)[0]; c.Instance != "bbbbbb" {
		t.Errorf("%+v", c)
	}
}

func TestStartTimeoutIsRecorded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	plan := basic(`sleep 1000`)
	plan.Readiness.Type, plan.StartupTimeoutSeconds = fleet.CheckPort, 1
	s.place("aaaaaa", 1, plan, freePort(t))
	s.awaitState("aaaaaa", 1, fleet.Failed)
	if c := s.crashes(1)[0]; c.Category != reports.CrashStartTimeout || c.Reason != fleet.ReasonStartTimeout {
		t.Errorf("%+v", c)
	}
}

func TestCrashesDuringOutageAreRecordedOnceAfterIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kill := s.spawn()
	gate := filepath.Join(t.TempDir(), "gate")
	id := s.id(1)
	before := s.online(id, basic(`echo "run begins"; while [ ! -e `+gate+` ]; do read -t 0.02 x; done; echo "panic: away"; exit 5`))
	s.etcd.Stop()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.awaitLocal(id, "a second run", func(now client.Instance) bool { return now.Restarts >= 1 && now.PID != before.PID })
	kill() // and the agent that saw it as well
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
	s.etcd.Restart(t)
	s.start(taking)
	var all []reports.Crash
	await.That(t, "the crash", func() string {
		all, _, _ = store.List(t.Context(), s.store, keys.Crashes())
		return await.Unless(len(all) > 0, "none")
	})
	seen := map[string]bool{}
	for _, c := range all {
		if seen[c.ID] || c.Instance != id || c.Cause != "panic: away" || c.Exit.Code != 5 {
			t.Errorf("%+v", c)
		}
		seen[c.ID] = true
	}
	if got := s.printed(all[0]); !slices.Equal(got, []string{"run begins", "panic: away"}) {
		t.Errorf("it printed %q", got)
	}
}

func TestUnrunnableCommandIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(taking)
	for n, c := range []struct {
		command, names string
		reason         fleet.Reason
	}{
		{"nosuchcommand --port 1", `"nosuchcommand"`, fleet.ReasonCommandMissing},
		{"exec /nowhere/at/all", `"/nowhere/at/all"`, fleet.ReasonCommandMissing},
		{"touch file; ./file", `"./file"`, fleet.ReasonNotExecutable},
		{"/tmp", `"/tmp"`, fleet.ReasonNotExecutable},
		{"  ", "empty", fleet.ReasonCommandMissing},
	} {
		id := s.id(n)
		plan := basic(c.command)
		plan.Readiness.Type, plan.StartupTimeoutSeconds = fleet.CheckPort, 60
		s.place(id, 1, plan, freePort(t))
		st := s.awaitState(id, 1, fleet.Failed)
		if st.Reason != c.reason || !strings.Contains(st.Message, c.names) || st.PID != 0 {
			t.Errorf("%s: %s %q", c.command, st.Reason, st.Message)
		}
	}
}
