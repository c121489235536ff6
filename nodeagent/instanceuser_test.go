package nodeagent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent"
)

func TestInstanceUserCannotReadAgentSecret(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("only an agent that is root runs instances as others")
		return
	}
	s := newSite(t)
	open(t, s.dir)
	file := filepath.Join(s.dir, "cluster-secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start(func(c *nodeagent.Config) { c.StopInstancesOnExit, c.InstanceUser = true, "61234" })
	command := `{ id -u; echo "$USER"; cat ` + file + ` 2>/dev/null || echo denied; echo x >mine && echo wrote; } >who; exec cat`
	for n, c := range []struct {
		runtime      fleet.RuntimeName
		group, wants string
	}{
		{runtime: fleet.RuntimeProcess, wants: "61234\n61234\ndenied\nwrote\n"},
		{runtime: fleet.RuntimeTmux, wants: "61234\n61234\ndenied\nwrote\n"},
		{runtime: fleet.RuntimeProcess, group: "nobody", wants: "65534\nnobody\ndenied\nwrote\n"},
	} {
		plan, id := basic(command), s.id(n+1)
		plan.Runtime, plan.Confine.User = c.runtime, c.group
		plan.Layers = []fleet.PlanLayer{s.library.add("a", map[string]string{"mine": "content"})}
		s.online(id, plan)
		s.await(id, "who it is", func(fleet.Status) bool { return s.running(id, "who") == c.wants })
	}
}

func TestUnusableInstanceUserIsRefused(t *testing.T) {
	t.Parallel()
	c := newSite(t).config()
	c.InstanceUser = "no-such-user"
	if os.Geteuid() != 0 {
		c.InstanceUser = "root"
	}
	if _, err := nodeagent.New(c); errs.FieldOf(err) != "instance-user" || !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
}
