package nodeagent_test

import (
	"bytes"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent"
)

// stranger is a user of most hosts that runs no agent.
const stranger = "nobody"

// strictly starts an agent with a policy, which stops its instances at its end.
func (s *site) strictly(p policy.Policy) {
	s.t.Helper()
	s.start(func(c *nodeagent.Config) { c.StopInstancesOnExit, c.Policy = true, p })
}

func TestAnAgentStartsNothingThatItsPolicyRefuses(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "none")) // the refusal comes first
	s := newSite(t)
	s.dir = shortDir(t)
	s.strictly(policy.Policy{Images: []string{"ghcr.io/team/*"}, Volumes: []string{s.dir + "/maps"}, Networks: []string{"games"}})
	if err := os.MkdirAll(s.dir+"/maps", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", s.dir+"/maps/out"); err != nil {
		t.Fatal(err)
	}
	boxed := func(c isolation.Container) fleet.Plan {
		plan := basic("echo started >>" + filepath.Join(s.dir, "started"))
		plan.Runtime, plan.Container = fleet.RuntimeDocker, c
		return plan
	}
	as := basic("echo started >>" + filepath.Join(s.dir, "started"))
	as.Confine.User = stranger
	custom := boxed(isolation.Container{Image: "ghcr.io/team/server"})
	custom.Env = map[string]string{"CUSTOM_IMAGE": "ghcr.io/other/server"}
	hidden := boxed(isolation.Container{Image: "ghcr.io/%TEAM%/server"})
	hidden.Variables = map[string]string{"TEAM": "other"}
	for n, c := range []struct {
		plan fleet.Plan
		says string
	}{
		{as, "policy.users of node-1 does not admit nobody: add nobody"},
		{boxed(isolation.Container{Image: "debian"}), "policy.images of node-1 does not admit debian"},
		{custom, "policy.images of node-1 does not admit ghcr.io/other/server"},
		{hidden, "policy.images of node-1 does not admit ghcr.io/other/server"},
		{boxed(isolation.Container{Image: "ghcr.io/team/server", Network: "host"}), "policy.networks of node-1 does not admit host"},
		{boxed(isolation.Container{Image: "ghcr.io/team/server", User: "0:5"}), "policy.container-users of node-1 does not admit 0:5"},
		{boxed(isolation.Container{Image: "ghcr.io/team/server", Volumes: []string{"/etc:/e"}}), "policy.volumes of node-1 does not admit /etc"},
		{boxed(isolation.Container{Image: "ghcr.io/team/server", Volumes: []string{s.dir + "/maps/out:/e"}}), "policy.volumes of node-1 does not admit /etc"},
	} {
		s.place(s.id(n), 1, c.plan, 0)
		if st := s.awaitState(s.id(n), 1, fleet.Failed); st.Reason != fleet.ReasonNodePolicy || !strings.Contains(st.Message, c.says) {
			t.Errorf("status %+v, want %q", st, c.says)
		}
	}
	admitted := boxed(isolation.Container{Image: "ghcr.io/team/server", Network: "games", Volumes: []string{s.dir + "/maps:/m"}})
	s.place(s.id(90), 1, admitted, 0)
	if st := s.awaitState(s.id(90), 1, fleet.Failed); st.Reason != fleet.ReasonRuntimeMissing {
		t.Errorf("what the policy admits: %+v", st)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "started")); !os.IsNotExist(err) {
		t.Errorf("something was started: %v", err)
	}
}

func TestARunThatThePolicyNoLongerAdmitsIsAdoptedAndNamedInTheLog(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only an agent that is root runs instances as others")
		return
	}
	s := newSite(t)
	open(t, s.dir)
	s.start(nil)
	plan := basic("exec cat")
	plan.Confine.User = stranger
	before := s.online(s.id(1), plan)
	s.stop()
	var said bytes.Buffer
	s.start(func(c *nodeagent.Config) {
		c.StopInstancesOnExit, c.Policy = true, policy.Policy{}
		c.Log = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	if st := s.awaitState(s.id(1), 1, fleet.Online); st.PID != before.PID {
		t.Errorf("%+v, was %+v", st, before)
	}
	s.place(s.id(1), 2, plan, 0)
	if st := s.awaitState(s.id(1), 2, fleet.Failed); st.Reason != fleet.ReasonNodePolicy {
		t.Errorf("its next start: %+v", st)
	}
	s.stop()
	if !strings.Contains(said.String(), "will refuse the next start") || !strings.Contains(said.String(), "add nobody to this setting") {
		t.Errorf("the log says:\n%s", said.String())
	}
}

func TestARestartInPlaceAsksThePolicyAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only an agent that is root runs instances as others")
		return
	}
	s := newSite(t)
	open(t, s.dir)
	s.start(nil)
	plan := basic("exec cat")
	plan.Confine.User, plan.OnCrash = stranger, fleet.CrashRestart
	pid := s.online(s.id(1), plan).PID
	s.stop()
	s.strictly(policy.Policy{})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.await(s.id(1), "the refusal", func(st fleet.Status) bool {
		return st.State == fleet.Failed && st.Reason == fleet.ReasonNodePolicy
	})
}

func TestTheNodesRecordHasItsPolicyWithItsOwnUser(t *testing.T) {
	s := newSite(t)
	s.strictly(policy.Policy{Users: []string{"games"}, Networks: []string{"host"}})
	n, err := store.Get(t.Context(), s.store, keys.Node(node))
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"games", me.Username, me.Uid}
	if n.Policy == nil || !slices.Equal(n.Policy.Users, want) || !slices.Equal(n.Policy.Networks, []string{"host"}) {
		t.Errorf("%+v, want the users %v", n.Policy, want)
	}
	plan := basic("exec cat")
	plan.Confine.User = strconv.Itoa(os.Geteuid())
	s.online(s.id(1), plan)
}

func TestAWrongPolicyIsRefusedWithItsSetting(t *testing.T) {
	c := newSite(t).config()
	c.Policy = policy.Policy{Volumes: []string{"maps/../.."}}
	if _, err := nodeagent.New(c); errs.FieldOf(err) != policy.SettingVolumes || !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
}
