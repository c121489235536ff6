package e2e_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
)

// instanceBackup is a backup in an answer.
type instanceBackup struct {
	ID, State, By, Message, Path, RestoredAt string
	Files, SizeBytes                         int
}

// savingGroup is a static group whose server counts its starts, and says that it has saved.
func savingGroup() map[string]any {
	return map[string]any{
		"name": "world", "static": true, "minInstances": 1, "maxInstances": 1, "memoryMb": 32, "stopCommand": "",
		"command": `echo start >>starts; while read -r line; do echo "$line" >>told; [ "$line" = save-all ] && echo "Saved the game"; done`,
	}
}

// ended waits until a backup has ended or was restored.
func ended(admin *cluster.Client, b instanceBackup) instanceBackup {
	for b.State == "RUNNING" || b.State == "RESTORING" {
		admin.Do("GET", "/api/v1/instances/world-1/backups/"+b.ID+"?waitSeconds=8", nil).OK(200, &b)
	}
	return b
}

func TestAWorldIsBackedUpByAScheduleAndRestored(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, savingGroup())
	admin.AwaitRunning("world", 1)
	server := admin.AwaitState("world-1", "RUNNING")
	dir, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(server.PID), "cwd"))
	if err != nil {
		t.Fatal(err)
	}
	admin.Do("PUT", "/api/v1/schedules/nightly", map[string]any{
		"group": "world", "action": "backup", "cron": "0 0 29 2 *",
		"backup": map[string]any{"keep": 2, "before": []string{"save-off", "save-all"}, "until": "Saved the game", "after": []string{"save-on"}},
	}).OK(201)
	var list struct{ Backups []instanceBackup }
	for n := range 3 {
		admin.Do("POST", "/api/v1/schedules/nightly/run", nil).OK(202)
		var history struct{ Data []scheduleRun }
		await.That(t, "the run ends", func() string {
			admin.Do("GET", "/api/v1/schedules/nightly/history", nil).OK(200, &history)
			return await.Unless(len(history.Data) == n+1, "%d runs have ended", len(history.Data))
		})
		if run := history.Data[0]; run.Result != "COMPLETED" || !strings.HasPrefix(run.Steps[0].Instances[0].Message, "backup ") {
			t.Fatalf("the run is %+v", run)
		}
	}
	admin.Do("GET", "/api/v1/services/world-1/backups", nil).OK(200, &list)
	if len(list.Backups) != 2 || list.Backups[0].By != "schedule nightly" || list.Backups[0].State != "COMPLETE" {
		t.Fatalf("the backups are %+v", list.Backups)
	}
	last := list.Backups[0]
	restore := "/api/v1/instances/world-1/backups/" + last.ID + "/restore"
	admin.Do("POST", restore, nil).OK(409)
	admin.Do("POST", "/api/v1/instances/world-1/freeze", nil).OK(200)
	admin.Do("POST", "/api/v1/instances/world-1/stop", nil).OK(200)
	admin.AwaitState("world-1", "STOPPED")
	if err := os.WriteFile(filepath.Join(dir, "starts"), []byte("griefed"), 0o600); err != nil {
		t.Fatal(err)
	}
	admin.Do("POST", restore+"?dryRun=true", nil).OK(200)
	var b instanceBackup
	admin.Do("POST", restore, nil).OK(202, &b)
	if b = ended(admin, b); b.State != "COMPLETE" || b.RestoredAt == "" || b.Message != "" {
		t.Fatalf("the backup is %+v", b)
	}
	admin.Do("POST", "/api/v1/instances/world-1/unfreeze", nil).OK(200)
	admin.AwaitState("world-1", "RUNNING")
	await.That(t, "the restored world", func() string {
		text, err := os.ReadFile(filepath.Join(dir, "starts"))
		return await.Unless(err == nil && string(text) == "start\nstart\n", "%q %v", text, err)
	})
	var audit struct {
		Data []struct{ Username, Action string }
	}
	admin.Do("GET", "/api/v1/audit?action=instance.backup.create", nil).OK(200, &audit)
	if len(audit.Data) != 3 || audit.Data[0].Username != "schedule nightly" {
		t.Errorf("the audit has %+v", audit.Data)
	}
	admin.Do("DELETE", "/api/v1/instances/world-1/backups/"+last.ID, nil).OK(200)
	admin.Do("GET", "/api/v1/instances/world-1/backups/"+last.ID, nil).OK(404)
	for _, action := range []string{"restore", "delete"} {
		admin.Do("GET", "/api/v1/audit?action=instance.backup."+action, nil).OK(200, &audit)
		if len(audit.Data) != 1 || audit.Data[0].Username != "admin" {
			t.Errorf("the audit of %s has %+v", action, audit.Data)
		}
	}
}

// TestABackupOutlivesItsGateway kills the gateway of a schedule while the server is paused.
func TestABackupOutlivesItsGateway(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, savingGroup())
	admin.AwaitRunning("world", 1)
	server := admin.AwaitState("world-1", "RUNNING")
	told := filepath.Join("/proc", strconv.Itoa(server.PID), "cwd", "told")
	admin.Do("PUT", "/api/v1/schedules/nightly", map[string]any{
		"instance": "world-1", "action": "backup", "cron": "0 0 29 2 *",
		"backup": map[string]any{"before": []string{"save-off"}, "until": "Saved the game", "after": []string{"save-on"}},
	}).OK(201)
	admin.Do("POST", "/api/v1/schedules/nightly/run", nil).OK(202)
	lines := func(want string) {
		t.Helper()
		await.That(t, "the lines of the server", func() string {
			text, err := os.ReadFile(told)
			return await.Unless(err == nil && string(text) == want, "%q %v", text, err)
		})
	}
	lines("save-off\n")
	if gateway := cluster.Service(c, "apigateway-1"); gateway != nil {
		gateway.Kill()
		if err := gateway.Start(); err != nil {
			t.Fatal(err)
		}
		await.That(t, "the run ends", func() string {
			r, err := admin.Try(t.Context(), "GET", "/api/v1/schedules/nightly/history", nil)
			if err != nil || r.Status != 200 {
				return "no answer"
			}
			var history struct{ Data []scheduleRun }
			r.OK(200, &history)
			return await.Unless(len(history.Data) == 1 && history.Data[0].Result == "INTERRUPTED", "%+v", history.Data)
		})
	}
	admin.Do("POST", "/api/v1/instances/world-1/command", map[string]string{"command": "save-all"}).OK(200)
	lines("save-off\nsave-all\nsave-on\n")
	var list struct{ Backups []instanceBackup }
	admin.Do("GET", "/api/v1/instances/world-1/backups", nil).OK(200, &list)
	if len(list.Backups) != 1 || ended(admin, list.Backups[0]).State != "COMPLETE" {
		t.Errorf("the backups are %+v", list.Backups)
	}
}
