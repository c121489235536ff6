package nodeagent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

func TestFilesOfStaticInstancesAreChangedWhileTheyRunAndAfter(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	id := s.id(1)
	plan := basic("echo old >motd; echo ready; read line")
	plan.Readiness = fleet.Check{Type: fleet.CheckLog, Pattern: "^ready$"}
	plan.Static, plan.Override, plan.ProtectedPaths = true, true, []string{"world"}
	plan.Stop.Command = "stop"
	s.online(id, plan)
	api := s.api()
	change := func() {
		t.Helper()
		done, err := api.WriteFile(t.Context(), id, client.FileWrite{Path: "motd"}, strings.NewReader("new"))
		if err != nil || !done.Replaced {
			t.Errorf("%+v, %v", done, err)
		}
		c, err := api.File(t.Context(), id, "motd", 100, false)
		if err != nil || c.Text != "new" || c.ETag != done.ETag {
			t.Errorf("%+v, %v", c, err)
		}
		if _, err := api.WriteFile(t.Context(), id, client.FileWrite{Path: "motd", IfMatch: "old"}, strings.NewReader("x")); errs.FieldOf(err) != client.Stale {
			t.Errorf("a stale ETag: %v", err)
		}
		if done, err := api.WriteFile(t.Context(), id, client.FileWrite{Path: "world/level", IfMatch: ""}, strings.NewReader("w")); err != nil || done.Replaced {
			t.Errorf("%+v, %v", done, err)
		}
		gone, err := api.EditFile(t.Context(), id, client.FileEdit{Op: client.FileDelete, Path: "world"})
		if err != nil || gone.Version == "" {
			t.Fatal(gone, err)
		}
		v, err := api.FileVersions(t.Context(), id, "world")
		if err != nil || len(v.Versions) == 0 || v.Versions[0].ID != gone.Version {
			t.Errorf("%+v, %v", v, err)
		}
		if _, err := api.EditFile(t.Context(), id, client.FileEdit{Op: client.FileRestore, Version: gone.Version}); err != nil {
			t.Error(err)
		}
		for path, want := range map[string]errs.Kind{"../x": errs.Invalid, ".orrery-lock": errs.Malformed, "world": errs.Conflict} {
			if _, err := api.WriteFile(t.Context(), id, client.FileWrite{Path: path}, strings.NewReader("x")); !errs.Is(err, want) || errs.FieldOf(err) != "path" {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	change()
	s.order(id, 1, fleet.OrderStop)
	s.awaitState(id, 1, fleet.Stopped)
	change()
	if _, err := api.EditFile(t.Context(), "zzzzzz", client.FileEdit{Op: client.FileDelete, Path: "a"}); !errs.Is(err, errs.NotFound) {
		t.Errorf("an instance that is not here: %v", err)
	}
}

func TestFilesOfDynamicInstancesAreNotChanged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start(nil)
	id := s.id(1)
	s.online(id, basic("sleep 1000"))
	if _, err := s.api().WriteFile(t.Context(), id, client.FileWrite{Path: "a"}, strings.NewReader("x")); !errs.Is(err, errs.Conflict) || errs.FieldOf(err) != "" {
		t.Error(err)
	}
	if _, err := s.api().EditFile(t.Context(), id, client.FileEdit{Op: client.FileMkdir, Path: "a"}); !errs.Is(err, errs.Conflict) {
		t.Error(err)
	}
	s.order(id, 1, fleet.OrderStop)
	s.awaitState(id, 1, fleet.Stopped)
}

func TestAnUploadThatAKilledAgentLeftIsRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	left := filepath.Join(s.dir, "fileversions", ".staging", "HALF")
	if err := os.MkdirAll(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, []byte("half of it"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start(nil)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Error(err)
	}
}
