package e2e_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
)

func TestAStaticInstanceKeepsItsDataAndNeverRunsTwice(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	lock := filepath.Join(t.TempDir(), "lock")
	spec := arenaGroup(t, c, "world", map[string]any{"static": true})
	spec["command"] = spec["command"].(string) + " --lock " + lock
	createGroup(t, admin, spec)
	admin.Do("POST", "/api/v1/groups/world/start", nil).OK(200)
	before := admin.AwaitState("world-1", "RUNNING")
	for range 3 {
		admin.Do("PATCH", "/api/instances/world-1/lifecycle?target=restart", nil).OK(200)
		var again cluster.Instance
		await.That(t, "another process of the same instance", func() string {
			again = admin.Instance("world-1")
			if again.State == "RUNNING" && again.PID != before.PID && again.Generation == before.Generation+1 {
				return ""
			}
			return again.State + " " + again.Message
		})
		if again.UID != before.UID || again.Port != before.Port || proctest.Lives(before.PID) {
			t.Errorf("before %+v, after %+v", before, again)
		}
		before = again
	}
	dir := filepath.Join("/proc", strconv.Itoa(before.PID), "cwd", "world")
	saves, err := os.ReadDir(dir)
	if err != nil || len(saves) == 0 {
		t.Errorf("nothing of the earlier runs is left in %s: %v", dir, err)
	}
	b, err := os.ReadFile(lock)
	if err != nil || strings.Contains(string(b), "refused") || strings.Count(string(b), "acquired") != 4 {
		t.Errorf("two copies met, or the log is wrong: %v\n%s", err, b)
	}
	var deletion struct{ Stop, Notes []string }
	admin.Do("DELETE", "/api/v1/groups/world?dryRun=true", nil).OK(200, &deletion)
	if len(deletion.Notes) != 1 || !strings.Contains(deletion.Notes[0], "keep their data on their nodes") || !strings.Contains(deletion.Notes[0], "world-1 ("+before.Node+")") {
		t.Errorf("the dry run of the deletion says %+v", deletion)
	}
}
