package e2e_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/proctest"
)

func TestAStaticInstanceKeepsItsDataAndNeverRunsTwice(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	lock := filepath.Join(cluster.OpenDir(t), "lock")
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

func TestInstancesOfAStaticGroupHaveTheirNames(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, arenaGroup(t, c, "world", map[string]any{"static": true, "minInstances": 2, "staticInstanceNames": []string{"hub", "arena"}}))
	admin.AwaitRunning("world", 2)
	hub, arena := admin.AwaitState("hub", "RUNNING"), admin.AwaitState("arena", "RUNNING")
	if hub.ID != "hub" || arena.ID != "arena" {
		t.Fatalf("the instances are %+v and %+v", hub, arena)
	}
	cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: "node-2"})
	dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(hub.PID), "cwd"))
	if err != nil || !strings.HasSuffix(dir, filepath.Join("static", "world", "hub")) {
		t.Errorf("hub runs in %s: %v", dir, err)
	}
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(hub.PID), "environ"))
	if err != nil || !strings.Contains(string(env), "CLOUD_INSTANCE_ID=hub\x00") {
		t.Errorf("the environment of hub is %q: %v", env, err)
	}
	note := filepath.Join(dir, "note.txt")
	if err := os.WriteFile(note, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(hub.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.That(t, "another process of hub", func() string {
		again := admin.Instance("hub")
		if again.State == "RUNNING" && again.PID != hub.PID && again.UID == hub.UID && again.Node == hub.Node {
			return ""
		}
		return again.State + " " + again.Message
	})
	if b, err := os.ReadFile(note); err != nil || string(b) != "kept" {
		t.Errorf("the data of hub is %q: %v", b, err)
	}
	admin.Do("GET", "/api/instances/hub", nil).OK(200)
	admin.Do("GET", "/api/v1/services/hub/explain", nil).OK(200)

	for _, other := range []map[string]any{
		{"name": "other", "command": "x", "static": true, "staticInstanceNames": []string{"Hub"}},
		{"name": "other", "command": "x", "static": true, "staticInstanceNames": []string{"world-1"}},
	} {
		if r := admin.Do("POST", "/api/v1/groups", other).OK(422); !strings.Contains(string(r.Body), "staticInstanceNames[0]") || !strings.Contains(string(r.Body), "group world") {
			t.Errorf("the refusal says %s", r.Body)
		}
	}

	admin.Do("PATCH", "/api/v1/groups/world", map[string]any{"staticInstanceNames": []string{"arena", "lake"}}).OK(200)
	admin.AwaitState("hub", "STOPPED")
	admin.AwaitRunning("world", 2)
	admin.AwaitState("lake", "RUNNING")
	admin.Do("POST", "/api/v1/services/hub/start", nil).OK(409)
	admin.Do("PATCH", "/api/v1/groups/world", map[string]any{"staticInstanceNames": []string{"arena", "lake", "hub"}, "minInstances": 3}).OK(200)
	if again := admin.AwaitState("hub", "RUNNING"); again.UID != hub.UID || again.Node != hub.Node {
		t.Errorf("hub came back as %+v", again)
	}
	if b, err := os.ReadFile(note); err != nil || string(b) != "kept" {
		t.Errorf("the data of hub is %q: %v", b, err)
	}
}
