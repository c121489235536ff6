package nodeagent_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/enginetest"
)

// contained is a plan that runs in a container.
func contained(command string) fleet.Plan {
	plan := basic(command)
	plan.Runtime = fleet.RuntimeDocker
	plan.Container = isolation.Container{Image: enginetest.Image, Network: "host", Volumes: enginetest.Volumes()}
	return plan
}

func TestContainerIsRunAdoptedWrittenToAndStopped(t *testing.T) {
	enginetest.Start(t)
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(nil)
	plan := contained(`env >seen; while read line; do echo "$line" >>got; [ "$line" = stop ] && exit 0; done`)
	plan.Static, plan.Stop.Command, plan.Container.Image = true, "stop", enginetest.Dressed
	before := s.online("aaaaaa", plan)
	dir := filepath.Join(s.dir, "static", "lobby", "lobby-1")
	says := func(want string) {
		t.Helper()
		await.That(t, "what was typed", func() string {
			b, _ := os.ReadFile(filepath.Join(dir, "got"))
			return await.Unless(string(b) == want, "%q", b)
		})
	}
	if err := s.api().WriteLine(t.Context(), "aaaaaa", `say "hi" $HOME ; Enter`); err != nil {
		t.Fatal(err)
	}
	says("say \"hi\" $HOME ; Enter\n")
	s.stop()
	s.start(nil)
	await.That(t, "the adopted server taking a line", func() string {
		err := s.api().WriteLine(t.Context(), "aaaaaa", "still here")
		return await.Unless(err == nil, "%v", err)
	})
	if i, err := s.api().Instance(t.Context(), "aaaaaa"); err != nil || i.PID != before.PID {
		t.Errorf("%+v, %v", i, err)
	}
	s.stop()
	s.loseEntry("aaaaaa")
	s.start(nil)
	if st := s.awaitState("aaaaaa", 1, fleet.Online); st.PID != before.PID {
		t.Errorf("without its journal entry: %+v, was %+v", st, before)
	}
	s.order("aaaaaa", 1, fleet.OrderStop)
	st := s.awaitState("aaaaaa", 1, fleet.Stopped)
	if st.Exit == nil || st.Exit.Code != 0 || !st.Exit.Known {
		t.Errorf("status %+v, exit %+v", st, st.Exit)
	}
	seen, err := os.ReadFile(filepath.Join(dir, "seen"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"HOME=/data\n", enginetest.ImageVariable + "\n", "ORRERY_INSTANCE_ID=aaaaaa\n"} {
		if !strings.Contains("\n"+string(seen), "\n"+want) {
			t.Errorf("%q is missing in %s", want, seen)
		}
	}
}

func TestMissingImageIsNamed(t *testing.T) {
	enginetest.Start(t)
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(taking)
	host := enginetest.Registry(t, http.StatusNotFound)
	plan := contained("true")
	plan.Container.Image = host + "/%FLAVOUR%:9"
	plan.Variables = map[string]string{"FLAVOUR": "vanilla"}
	s.place("aaaaaa", 1, plan, 0)
	if st := s.awaitState("aaaaaa", 1, fleet.Failed); st.Reason != fleet.ReasonImageMissing || !strings.Contains(st.Message, host+"/vanilla:9") {
		t.Errorf("status %+v", st)
	}
	plan.Env = map[string]string{"CUSTOM_IMAGE": "127.0.0.1:1/custom:1"}
	s.place("aaaaab", 1, plan, 0)
	s.await("aaaaab", "another try", func(st fleet.Status) bool { return strings.Contains(st.Message, "attempt 2 of 3") })
	if st := s.awaitState("aaaaab", 1, fleet.Failed); st.Reason != fleet.ReasonImageFetch || !strings.Contains(st.Message, "127.0.0.1:1/custom:1") {
		t.Errorf("status %+v", st)
	}
}

func TestImageFromEnvironmentAlone(t *testing.T) {
	enginetest.Start(t)
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(taking)
	plan := contained("exec sleep 1000")
	plan.Container.Image, plan.Env = "", map[string]string{"CUSTOM_IMAGE": enginetest.Image}
	s.online("aaaaaa", plan)
}

func TestContainerOutOfMemoryIsReported(t *testing.T) {
	enginetest.Start(t)
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(taking)
	plan := contained("exec tail /dev/zero")
	plan.Resources.MemoryMiB = 96 // the agent's own program needs some, more with the race detector
	s.place("aaaaaa", 1, plan, 0)
	if st := s.awaitState("aaaaaa", 1, fleet.Crashed); st.Reason != fleet.ReasonOutOfMemory || st.Exit == nil || st.Exit.LimitMiB != 96 {
		t.Errorf("status %+v, exit %+v", st, st.Exit)
	}
}

func TestNodeWithoutEngineSaysWhyAndKnowsContainers(t *testing.T) {
	enginetest.Start(t)
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(nil)
	pid := s.online("aaaaaa", contained("exec cat >got")).PID
	s.stop()
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "none"))
	s.start(taking)
	n, err := store.Get(t.Context(), s.store, keys.Node(node))
	if err != nil {
		t.Fatal(err)
	}
	s.place("aaaaab", 1, contained("true"), 0)
	if st := s.awaitState("aaaaab", 1, fleet.Failed); n.Offers(fleet.RuntimeDocker) || st.Reason != fleet.ReasonRuntimeMissing || !strings.Contains(st.Message, "no container engine answers") {
		t.Errorf("offered %v, status %+v", n.Offers(fleet.RuntimeDocker), st)
	}
	if err := s.api().WriteLine(t.Context(), "aaaaaa", "typed all the same"); err != nil {
		t.Error(err)
	}
	s.order("aaaaaa", 1, fleet.OrderKill)
	if s.awaitState("aaaaaa", 1, fleet.Stopped); proctest.Lives(pid) {
		t.Error("it lives on")
	}
}

// offers waits until the node's record offers containers, or no longer offers them.
func (s *site) offers(want bool) {
	s.t.Helper()
	await.That(s.t, "what the node offers", func() string {
		n, err := store.Get(s.t.Context(), s.store, keys.Node(node))
		return await.Unless(err == nil && n.Offers(fleet.RuntimeDocker) == want, "%+v, %v", n.Runtimes, err)
	})
}

func TestLateEngineIsOffered(t *testing.T) {
	e := enginetest.Start(t)
	show, err := e.Hide()
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(taking)
	s.offers(false)
	if err := show(); err != nil {
		t.Fatal(err)
	}
	s.offers(true)
	s.online("aaaaaa", contained("sleep 1000"))
}

func TestHangingEngineDoesNotBlockAgentStart(t *testing.T) {
	e := enginetest.Start(t)
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(nil)
	s.online("aaaaaa", contained("sleep 1000"))
	s.online("bbbbbb", basic("sleep 1000"))
	s.stop()
	goOn, err := e.Hang()
	if err != nil {
		t.Fatal(err)
	}
	defer goOn()
	s.start(taking)
	for _, id := range []fleet.InstanceID{"aaaaaa", "bbbbbb"} {
		s.order(id, 1, fleet.OrderKill)
		s.awaitState(id, 1, fleet.Stopped)
	}
}

func TestShortEngineOutageFailsNoStart(t *testing.T) {
	e := enginetest.Start(t)
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(taking)
	show, err := e.Hide()
	if err != nil {
		t.Fatal(err)
	}
	s.place("aaaaaa", 1, contained("sleep 1000"), 0)
	s.awaitState("aaaaaa", 1, fleet.Preparing)
	if err := show(); err != nil {
		t.Fatal(err)
	}
	s.awaitState("aaaaaa", 1, fleet.Online)
	if show, err = e.Hide(); err != nil {
		t.Fatal(err)
	}
	s.place("bbbbbb", 1, contained("sleep 1000"), 0)
	if st := s.awaitState("bbbbbb", 1, fleet.Failed); st.Reason != fleet.ReasonRuntimeMissing || !strings.Contains(st.Message, "container engine") {
		t.Errorf("one that stays away: %+v", st)
	}
	if err := show(); err != nil {
		t.Fatal(err)
	}
}

func TestForgetRemovesContainer(t *testing.T) {
	e := enginetest.Start(t)
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(taking)
	n, err := store.Get(t.Context(), s.store, keys.Node(node))
	if err != nil {
		t.Fatal(err)
	}
	s.online("aaaaaa", basic("true; sleep 1000"))
	_, err = e.Docker("create", "--name", "left", "--label", "orrery.agent="+n.DataUUID, "--label", "orrery.instance=aaaaaa",
		"--label", "orrery.directory="+filepath.Join(s.dir, "running/aaaaaa"), enginetest.Image, "true")
	if err != nil {
		t.Fatal(err)
	}
	s.order("aaaaaa", 1, fleet.OrderKill)
	s.awaitState("aaaaaa", 1, fleet.Stopped)
	if _, err := e.Docker("inspect", "left"); err != nil {
		t.Errorf("it may be of use as long as its instance is known: %v", err)
	}
	s.remove(keys.Order(node, "aaaaaa"))
	s.remove(keys.Placement(node, "aaaaaa"))
	s.remove(keys.Status("aaaaaa"))
	await.That(t, "its removal", func() string {
		left, err := e.Docker("ps", "--all", "--quiet")
		return await.Unless(err == nil && left == "", "%s %v", left, err)
	})
}

func TestContainerRootFilesGiveNoRights(t *testing.T) {
	enginetest.Start(t)
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(taking)
	open(t, s.dir)
	plan := contained(`cp /usr/bin/id gain && chmod 6755 gain && chmod 777 . && touch made; exec cat`)
	s.online("aaaaaa", plan)
	plan.Static = true
	s.online("bbbbbb", plan)
	var gains []string
	for _, dir := range []string{"containers/aaaaaa", "static/lobby/lobby-1"} {
		gain := filepath.Join(s.dir, dir, "gain")
		await.That(t, gain, func() string {
			_, err := os.Stat(filepath.Join(s.dir, dir, "made"))
			return await.Unless(err == nil, "%v", err)
		})
		if fi, err := os.Stat(gain); err != nil || fi.Mode()&os.ModeSetuid == 0 {
			t.Fatalf("%v, %v", fi, err)
		}
		gains = append(gains, gain)
	}
	// A confined neighbour makes the parent directories accessible to all confined instances.
	neighbour := basic("for f in " + strings.Join(gains, " ") + `; do "$f" -u >>got 2>/dev/null || echo refused >>got; done; echo all >>got; exec cat`)
	neighbour.Group, neighbour.Confine.User = "other", "61234"
	s.online("cccccc", neighbour)
	await.That(t, "what the neighbour gains", func() string {
		got := s.running("cccccc", "got")
		return await.Unless(got == "refused\nrefused\nall\n", "%q", got)
	})
}

func TestAdoptedContainerKeepsDirectory(t *testing.T) {
	enginetest.Start(t)
	s := newSite(t)
	s.dir = shortDir(t)
	s.start(nil)
	before := s.online("aaaaaa", contained(`while read line; do echo "$line" >>got; done`))
	s.stop()
	now, old := filepath.Join(s.dir, "containers", "aaaaaa"), filepath.Join(s.dir, "running", "aaaaaa")
	for _, err := range []error{os.MkdirAll(filepath.Dir(old), 0o755), os.Rename(now, old), os.Chmod(old, 0o755), os.Remove(filepath.Dir(now))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.start(taking)
	await.That(t, "the adopted server taking a line", func() string {
		err := s.api().WriteLine(t.Context(), "aaaaaa", "still here")
		return await.Unless(err == nil, "%v", err)
	})
	await.That(t, "its file at the new place", func() string {
		b, err := os.ReadFile(filepath.Join(now, "got"))
		return await.Unless(strings.HasSuffix(string(b), "still here\n"), "%q, %v", b, err)
	})
	if i, err := s.api().Instance(t.Context(), "aaaaaa"); err != nil || i.PID != before.PID {
		t.Errorf("%+v, %v, was %+v", i, err, before)
	}
	if fi, err := os.Stat(now); err != nil || fi.Mode().Perm()&0o007 != 0 || exists(old) {
		t.Errorf("%v, %v, the old place is left: %v", fi, err, exists(old))
	}
}
