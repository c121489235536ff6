package nodeagent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/nodeagent"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
)

// end ends a run of a secretive instance once its agent has its console.
func (s *site) end(id fleet.InstanceID) {
	s.t.Helper()
	await.That(s.t, "its console", func() string {
		if err := s.api().WriteLine(s.t.Context(), id, "end"); err != nil {
			return err.Error()
		}
		return ""
	})
}

// crashed ends a run of a secretive instance and waits for its n-th crash.
func (s *site) crashed(id fleet.InstanceID, n int) reports.Crash {
	s.t.Helper()
	s.end(id)
	s.await(id, "started again after its crash", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == n })
	return s.crashes(n)[n-1]
}

func TestRestartInPlaceKeepsBuiltSecrets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	secretsDir := t.TempDir()
	give := func(value string) {
		t.Helper()
		s.keepSecret(t, "db", value+"-file")
		if err := os.WriteFile(filepath.Join(secretsDir, "env"), []byte(value+"-env"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	change := func(c *nodeagent.Config) { c.SecretsDir = secretsDir }
	last := func(c *nodeagent.Config) { change(c); taking(c) }
	const old, rotated = recognisable + "-old", recognisable + "-new"
	give(old)
	s.start(change)
	id := s.id(1)
	plan := s.secretive(t, map[string]string{"FILE": "secret:db", "ENV": "file:env", "COMMAND": "secret:db"})
	plan.OnCrash = fleet.CrashRestart
	plan.Command = "echo added=yes >>db.properties; " + plan.Command
	s.online(id, plan)
	want := old + "-env " + old + "-file\n"
	printed := func(c reports.Crash) {
		t.Helper()
		if said := strings.Join(s.printed(c), "\n"); !strings.Contains(said, "console has ***") {
			t.Errorf("kept of %s: %q", c.ID, said)
		}
		await.That(t, "what it was given", func() string {
			got := s.running(id, "got")
			return await.Unless(got == want, "%q, want %q", got, want)
		})
		if places := s.leaks(t, recognisable, "running", "logs"); len(places) > 0 {
			t.Errorf("a value stands in %v", places)
		}
	}
	saved := func() {
		t.Helper()
		files, _, err := exported(s.api().Export(t.Context(), id, "db.properties"))
		if err != nil {
			t.Fatal(err)
		}
		if got := files["db.properties"]; !strings.HasPrefix(got, "password=%FILE%\nregion=%REGION%\nadded=yes\n") || strings.Contains(got, recognisable) {
			t.Errorf("saved is %q", got)
		}
	}

	give(rotated)
	printed(s.crashed(id, 1))
	saved()

	// The same happens when another agent has the instance.
	s.stop()
	s.start(last)
	s.await(id, "adopted", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
	saved()
	printed(s.crashed(id, 2))
	saved()
	s.order(id, 1, fleet.OrderStop)
	s.await(id, "ended", func(st fleet.Status) bool { return st.State.Terminal() })

	// The next start uses the new values.
	s.online(s.id(2), plan)
	want = rotated + "-env " + rotated + "-file\n"
	await.That(t, "the new values", func() string {
		got := s.running(s.id(2), "got")
		return await.Unless(got == want, "%q", got)
	})
}

func TestCrashOfEarlierAgentIsMasked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keepSecret(t, "db", recognisable)
	s.start(nil)
	id := s.id(1)
	s.online(id, s.secretive(t, map[string]string{"FILE": "secret:db", "ENV": "secret:db", "COMMAND": "secret:db"}))
	await.That(t, "what it prints", func() string {
		b, _ := os.ReadFile(filepath.Join(s.dir, "logs", string(id)+".log"))
		return await.Unless(strings.Contains(string(b), "console has "), "%q", b)
	})
	s.stop()
	s.rejournal(id, func(e *journal.Entry) {
		e.Machine.Unrecorded = append(e.Machine.Unrecorded, reports.Crash{
			ID: string(id) + "-1-1", Instance: id, Name: "lobby-1", Group: "lobby", Node: node, Reason: fleet.ReasonExited, At: time.Now(), StartedAt: time.Now(),
		})
	})
	s.start(taking)
	c := s.crashes(1)[0]
	if said := strings.Join(s.printed(c), "\n"); !strings.Contains(said, "console has ***") {
		t.Errorf("kept is %q", said)
	}
	if places := s.leaks(t, recognisable, "running", "logs"); len(places) > 0 {
		t.Errorf("a value stands in %v", places)
	}
}

// rejournal changes an instance's journal entry while no agent runs.
func (s *site) rejournal(id fleet.InstanceID, change func(*journal.Entry)) {
	s.t.Helper()
	path := filepath.Join(s.dir, "journal", string(id)+".json")
	b, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	var e journal.Entry
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &e); err != nil {
		s.t.Fatal(err)
	}
	change(&e)
	line, err := json.Marshal(e)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, append(line, '\n'), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func TestUnknownSecretsKeepNoOutput(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keepSecret(t, "db", recognisable)
	s.start(nil)
	id := s.id(1)
	plan := s.secretive(t, map[string]string{"FILE": "secret:db", "ENV": "secret:db", "COMMAND": "secret:db"})
	plan.OnCrash = fleet.CrashRestart
	s.online(id, plan)
	s.stop()
	if err := os.Remove(filepath.Join(s.dir, "secrets", string(id)+".json")); err != nil {
		t.Fatal(err)
	}
	s.keepSecret(t, "db", "another value")
	s.start(taking)
	s.await(id, "adopted", func(st fleet.Status) bool { return st.State == fleet.Online })
	for n := range 2 {
		if _, err := s.api().Export(t.Context(), id, ""); !errs.Is(err, errs.Conflict) {
			t.Errorf("after %d crashes it is saved: %v", n, err)
		}
		if c := s.crashed(id, n+1); len(c.Last) > 0 {
			t.Errorf("kept is %q", c.Last)
		}
	}
	if places := s.leaks(t, recognisable, "running", "logs"); len(places) > 0 {
		t.Errorf("a value stands in %v", places)
	}
}

func TestSecretCutByTailIsNotKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const value = "abcdefghijKLMNOPQRST"
	s.keepSecret(t, "db", value)
	s.start(taking)
	// The agent reads the last 128 KiB, which begin within the first line.
	plan := basic(`printf "$DB%.0s" $(seq 100); echo; for n in 1 2; do head -c 65000 /dev/zero | tr '\0' x; echo; done; echo "and $DB"; exit 3`)
	plan.OnCrash = fleet.CrashStop
	plan.Env, plan.Secrets = map[string]string{"DB": "%DB%"}, map[string]string{"DB": "secret:db"}
	s.place(s.id(1), 1, plan, 0)
	lines := s.printed(s.crashes(1)[0])
	said := strings.Join(lines, "\n")
	if len(lines) < 3 || lines[len(lines)-1] != "and ***" || strings.Contains(said, "ST") {
		t.Errorf("kept are %d lines, the first %.100q, the last %q", len(lines), lines[:1], lines[max(0, len(lines)-1):])
	}
}
