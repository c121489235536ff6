package nodeagent_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/nodeagent"
)

// sealing is a box of the site's cluster secret.
func sealing(t *testing.T, about string) seal.Box {
	t.Helper()
	return seal.NewBox(secret, content.SecretsKind).About(about)
}

// keepSecret stores a secret as the gateway does.
func (s *site) keepSecret(t *testing.T, name, value string) {
	t.Helper()
	b, err := json.Marshal(map[string]string{"": value})
	if err != nil {
		t.Fatal(err)
	}
	s.write(keys.Secret(name), content.Secret{Name: name, Keys: []string{""}, Sealed: sealing(t, compose.AboutStored(name)).Seal(b)})
}

// secretive is a plan whose secrets go to a file, the environment and the command.
func (s *site) secretive(t *testing.T, refs map[string]string) fleet.Plan {
	t.Helper()
	plan := basic(`printf '%s %s\n' "$DB" '%COMMAND%' >got; echo "console has $DB"; read line; exit 3`)
	plan.Layers = []fleet.PlanLayer{s.library.add("lobby", map[string]string{"db.properties": "password=%FILE%\nregion=%REGION%\n"})}
	plan.FileModifications = []string{"*.properties"}
	plan.Env = map[string]string{"DB": "%ENV%"}
	plan.Secrets = refs
	return plan
}

// leaks lists the places, except but, where a text is stored in clear: in etcd with its history,
// and below the agent's data directory.
func (s *site) leaks(t *testing.T, text string, but ...string) (places []string) {
	t.Helper()
	places = storetest.Holding(t, s.etcd.Endpoint, text)
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		for _, b := range but {
			if strings.HasPrefix(path, filepath.Join(s.dir, b)) {
				return nil
			}
		}
		if err != nil || !d.Type().IsRegular() {
			return nil // deleted meanwhile
		}
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), text) {
			places = append(places, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return places
}

const recognisable = "xK9-recognisable-Value"

func TestSecretsAreResolvedAtStartAndNotStored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	secretsDir := t.TempDir()
	if err := os.WriteFile(filepath.Join(secretsDir, "env"), []byte(recognisable+"-env\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.keepSecret(t, "db", recognisable+"-file")
	s.start(func(c *nodeagent.Config) { c.SecretsDir = secretsDir })
	ofGroup := "sealed:" + base64.RawURLEncoding.EncodeToString(sealing(t, compose.AboutGroup("lobby", "COMMAND")).Seal([]byte(recognisable+"-command")))
	id := s.id(1)
	plan := s.secretive(t, map[string]string{"FILE": "secret:db", "ENV": "file:env", "COMMAND": ofGroup})
	plan.OnCrash = fleet.CrashRestart
	s.online(id, plan)

	if got, want := s.running(id, "db.properties"), "password="+recognisable+"-file\nregion=north\n"; got != want {
		t.Errorf("the file is %q", got)
	}
	want := recognisable + "-env " + recognisable + "-command\n"
	got := func() string { return s.running(id, "got") }
	await.That(t, "the environment and the command have them", func() string { return await.Unless(got() == want, "%q", got()) })
	if places := s.leaks(t, recognisable, "running", "logs"); len(places) > 0 {
		t.Errorf("a value stands in %v", places)
	}

	// After a crash the output is kept without the values.
	if err := s.api().WriteLine(t.Context(), id, "end"); err != nil {
		t.Fatal(err)
	}
	s.await(id, "started again after its crash", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
	await.That(t, "the crash is recorded", func() string {
		all, _, err := store.List(t.Context(), s.store, keys.Crashes())
		if err != nil {
			t.Fatal(err)
		}
		return await.Unless(len(all) == 1 && strings.Contains(strings.Join(all[0].Last, "\n"), "console has ***"), "%+v", all)
	})
	if places := s.leaks(t, recognisable, "running", "logs"); len(places) > 0 {
		t.Errorf("after a crash a value stands in %v", places)
	}

	// The next agent finds the instance and its values, and hides them too.
	s.stop()
	s.start(func(c *nodeagent.Config) { c.SecretsDir = secretsDir })
	s.await(id, "adopted", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
	s.end(id)
	s.await(id, "started again after its next crash", func(st fleet.Status) bool { return st.Restarts == 2 })
	if all := s.crashes(2); !strings.Contains(strings.Join(all[1].Last, "\n"), "console has ***") {
		t.Errorf("its next crash is %+v", all[1])
	}
	s.order(id, 1, fleet.OrderStop)
	s.await(id, "ended", func(st fleet.Status) bool { return st.State.Terminal() })
	if places := s.leaks(t, recognisable, "running", "logs"); len(places) > 0 {
		t.Errorf("after another agent a value stands in %v", places)
	}
}

func TestMissingSecretFailsStart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	for n, c := range []struct{ ref, says string }{
		{"secret:none", "FILE is secret:none: no such secret"},
		{"file:db", "FILE is file:db: this node has no directory of secrets"},
		{"env:PATH", "FILE is env:PATH: only variables"},
		{"sealed:eA", "FILE is its stored value: it cannot be decrypted"},
	} {
		plan := s.secretive(t, map[string]string{"FILE": c.ref})
		id := s.id(n + 1)
		s.place(id, 1, plan, 0)
		st := s.awaitState(id, 1, fleet.Failed)
		if st.Reason != fleet.ReasonSecretMissing || !strings.Contains(st.Message, c.says) {
			t.Errorf("%s: %s, %q", c.ref, st.Reason, st.Message)
		}
		if exists(filepath.Join(s.dir, "running", string(id))) {
			t.Errorf("%s: a directory was made", c.ref)
		}
	}
}

func TestOutageRestartsInstanceWithSecrets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keepSecret(t, "db", recognisable)
	s.start(taking)
	plan := basic(`printf '%s' "$DB" >>got; read line`)
	plan.OnCrash = fleet.CrashRestart
	plan.Env, plan.Secrets = map[string]string{"DB": "%DB%"}, map[string]string{"DB": "secret:db"}
	id := s.id(1)
	before := s.online(id, plan)
	await.That(t, "its first run has the value", func() string { return await.Unless(s.running(id, "got") == recognisable, "%q", s.running(id, "got")) })
	s.etcd.Stop()
	killed(t, before.PID)
	want := recognisable + recognisable
	await.That(t, "its second run has the value", func() string { return await.Unless(s.running(id, "got") == want, "%q", s.running(id, "got")) })
	s.etcd.Restart(t)
	s.await(id, "the second run reported", func(st fleet.Status) bool { return st.State == fleet.Online && st.Restarts == 1 })
}

func TestSealedSecretsOfForgottenInstancesAreRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.keepSecret(t, "db", recognisable)
	s.start(nil)
	plan := basic(`read line`)
	plan.Env, plan.Secrets = map[string]string{"DB": "%DB%"}, map[string]string{"DB": "secret:db"}
	lives, lost := s.id(1), s.id(2)
	s.online(lives, plan)
	s.online(lost, plan)
	s.stop()
	kept := func(name string) string { return filepath.Join(s.dir, "secrets", name) }
	content, err := os.ReadFile(kept(string(lives) + ".json"))
	if err != nil {
		t.Fatal(err)
	}
	forgotten, built, unread := string(s.id(3)), string(s.id(4)), string(s.id(5))
	for _, name := range []string{forgotten + ".json", built + ".json", unread + ".json", string(lives) + ".json.tmp"} {
		if err := os.WriteFile(kept(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.Mkdir(filepath.Join(s.dir, "running", built), 0o755),
		os.WriteFile(filepath.Join(s.dir, "journal", unread+".json"), []byte("damaged"), 0o600),
		os.Remove(filepath.Join(s.dir, "journal", string(lost)+".json")), // still in the store
	); err != nil {
		t.Fatal(err)
	}
	s.start(taking)
	await.That(t, "what belongs to nobody is gone", func() string {
		return await.Unless(!exists(kept(forgotten+".json")) && !exists(kept(string(lives)+".json.tmp")), "it is there")
	})
	s.stop() // after this, all was processed
	for _, id := range []string{string(lives), string(lost), built, unread} {
		if !exists(kept(id + ".json")) {
			t.Errorf("what is kept of %s is gone", id)
		}
	}
}
