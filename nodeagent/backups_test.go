package nodeagent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// saving is a static server that records its console lines, and prints that it has saved.
func saving() fleet.Plan {
	plan := basic(`echo ready; while read -r line; do echo "$line" >>told; [ "$line" = "save-all flush" ] && echo "Saved the game"; done`)
	plan.Readiness = fleet.Check{Type: fleet.CheckLog, Pattern: "^ready$"}
	plan.Static = true
	return plan
}

// told waits until the server has these console lines.
func (s *site) told(id fleet.InstanceID, want ...string) {
	s.t.Helper()
	await.That(s.t, "the lines of the server", func() string {
		c, err := s.api().File(s.t.Context(), id, "told", 1000, false)
		return await.Unless(err == nil && c.Text == strings.Join(want, "\n")+"\n", "%s %v", c.Text, err)
	})
}

// backup waits for the end of a backup or a restore.
func (s *site) backup(id fleet.InstanceID, b client.Backup, err error) client.Backup {
	s.t.Helper()
	for err == nil && !b.Ends() {
		b, err = s.api().Backup(s.t.Context(), id, b.ID, 10*time.Second)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

func TestAStaticInstanceIsBackedUpAndRestored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	id := s.id(1)
	s.online(id, saving())
	api := s.api()
	b, err := api.CreateBackup(t.Context(), id, client.NewBackup{By: "admin", Before: []string{"save-off", "save-all flush"}, Until: "Saved the game", After: []string{"save-on"}})
	if b = s.backup(id, b, err); b.State != client.BackupComplete || b.By != "admin" || b.Files == 0 {
		t.Fatalf("%+v", b)
	}
	s.told(id, "save-off", "save-all flush", "save-on")
	if all, err := api.Backups(t.Context(), id); err != nil || len(all.Backups) != 1 || all.Backups[0] != b {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := api.RestoreBackup(t.Context(), id, b.ID, false); !errs.Is(err, errs.Conflict) {
		t.Errorf("a restore while it runs: %v", err)
	}
	if _, err := api.CreateBackup(t.Context(), "zzzzzz", client.NewBackup{}); !errs.Is(err, errs.NotFound) {
		t.Errorf("an instance that is not here: %v", err)
	}
	s.order(id, 1, fleet.OrderStop)
	s.awaitState(id, 1, fleet.Stopped)
	restoring, err := api.RestoreBackup(t.Context(), id, b.ID, false)
	if restored := s.backup(id, restoring, err); restored.Restored.IsZero() || restored.Message != "" {
		t.Errorf("%+v", restored)
	}
	s.told(id, "save-off", "save-all flush") // as the archive has it
	s.place(id, 2, saving(), 0)
	s.awaitState(id, 2, fleet.Online) // the lock file allows the next generation
	if gone, err := api.DeleteBackup(t.Context(), id, b.ID, false); err != nil || gone.ID != b.ID {
		t.Errorf("%+v, %v", gone, err)
	}
	if _, err := os.Stat(b.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the archive: %v", err)
	}
	s.order(id, 2, fleet.OrderStop)
	s.awaitState(id, 2, fleet.Stopped)
}

func TestDynamicInstancesAreNotBackedUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	id := s.id(1)
	s.online(id, basic("sleep 1000"))
	if _, err := s.api().CreateBackup(t.Context(), id, client.NewBackup{}); !errs.Is(err, errs.Conflict) || !strings.Contains(errs.MessageOf(err), "not static") {
		t.Error(err)
	}
	s.order(id, 1, fleet.OrderStop)
	s.awaitState(id, 1, fleet.Stopped)
}

// TestBackupsOfAnInstanceThatIsNotPrepared lists the backups of an instance whose plan the agent does not know,
// and restores one.
func TestBackupsOfAnInstanceThatIsNotPrepared(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	id := s.id(1)
	s.online(id, saving())
	api := s.api()
	b, err := api.CreateBackup(t.Context(), id, client.NewBackup{})
	b = s.backup(id, b, err)
	s.order(id, 1, fleet.OrderStop)
	s.awaitState(id, 1, fleet.Stopped)

	port, other := freePort(t), s.id(2)
	plan := holder("tcp")
	plan.Ports = fleet.PortRange{Start: port, End: port + 1}
	s.place(other, 1, plan, port)
	s.awaitState(other, 1, fleet.Online)
	plan = saving()
	plan.Ports = fleet.PortRange{Start: port, End: port + 1}
	s.place(id, 2, plan, port)
	s.await(id, "that it waits for the port", func(st fleet.Status) bool { return st.Reason == fleet.ReasonPortReleasing })
	if all, err := api.Backups(t.Context(), id); err != nil || len(all.Backups) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := api.CreateBackup(t.Context(), id, client.NewBackup{}); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a backup of a directory that is being prepared: %v", err)
	}
	if _, err := api.RestoreBackup(t.Context(), id, b.ID, false); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a restore while the directory is being prepared: %v", err)
	}
	s.order(id, 2, fleet.OrderStop)
	s.awaitState(id, 2, fleet.Stopped)

	plan = saving()
	plan.Runtime = "none"
	s.place(id, 3, plan, 0)
	s.awaitState(id, 3, fleet.Failed)
	restoring, err := api.RestoreBackup(t.Context(), id, b.ID, false)
	if restored := s.backup(id, restoring, err); restored.Restored.IsZero() || restored.Message != "" {
		t.Errorf("a restore after a failed preparation: %+v", restored)
	}
	s.order(other, 1, fleet.OrderStop)
	s.awaitState(other, 1, fleet.Stopped)
}

// TestAKilledAgentLeavesNoServerPaused kills an agent while it waits until a server has saved.
func TestAKilledAgentLeavesNoServerPaused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kill := s.spawn()
	id := s.id(1)
	s.online(id, saving())
	if _, err := s.api().CreateBackup(t.Context(), id, client.NewBackup{Before: []string{"save-off"}, Until: "never printed", After: []string{"save-on"}}); err != nil {
		t.Fatal(err)
	}
	s.told(id, "save-off")
	kill()
	s.start(nil)
	s.told(id, "save-off", "save-on")
	if all, err := s.api().Backups(t.Context(), id); err != nil || len(all.Backups) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "backups", "*", "*", "*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	s.order(id, 1, fleet.OrderStop)
	s.awaitState(id, 1, fleet.Stopped)
}
