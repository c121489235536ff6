package compose_test

import (
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/e2e/compose"
)

func TestComposeUpInAFreshCloneBuildsAndStartsEverything(t *testing.T) {
	s, printed := compose.FromSources(t)
	admin := cluster.Login(t, s)
	create(admin, arenaGroup("lobby", 1))
	admin.AwaitRunning("lobby", 1)

	var diagnostics struct{ Version string }
	admin.Do("GET", "/api/v1/system/diagnostics", nil).OK(200, &diagnostics)
	if diagnostics.Version != compose.Version {
		t.Errorf("the gateway says version %q, want %s", diagnostics.Version, compose.Version)
	}

	s.Compose("up", "-d")
	if again := s.Printed("init"); strings.Count(again, "first password of the user admin:") != 1 {
		t.Errorf("the password is not printed once, but:\n%s\nbefore:\n%s", again, printed)
	}
	cluster.Login(t, s) // the password is unchanged
}
