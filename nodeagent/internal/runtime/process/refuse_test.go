package process_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/cgroup"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/process"
)

func TestDyingWrapperDoesNotBlockStart(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "sh"), []byte("#!/bin/sh\nkill -KILL $$\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	r, err := process.New(process.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if e := exited(t, start(t, r, spec(t, "sleep 1000"))); e.Signal != "KILL" {
		t.Errorf("exit %+v", e)
	}
}

func TestFailedStartLeavesNoGroup(t *testing.T) {
	tree := groups(t, fmt.Sprintf("unstarted-%d", os.Getpid()))
	if tree == nil {
		return
	}
	r, err := process.New(process.Config{Tree: tree})
	if err != nil {
		t.Fatal(err)
	}
	s := spec(t, "true")
	s.LogPath = s.Dir                              // cannot be opened for writing
	made, err := tree.Group(s.InstanceID).Create() // as for version 2 limits
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	if p, err := r.Start(t.Context(), s); err == nil {
		t.Errorf("started as %+v", p.Identity())
	}
	if tree.Group(s.InstanceID).Exists() {
		t.Error("its group remains")
	}
}

// groups opens a tree of control groups for the test; nil if the machine has none, which fails
// under ORRERY_CI.
func groups(t *testing.T, owner string) *cgroup.Tree {
	t.Helper()
	tree, err := cgroup.Open(owner)
	if err != nil {
		if os.Getenv("ORRERY_CI") != "" {
			t.Fatal(err)
		}
		t.Logf("no control groups here: %v", err)
		return nil
	}
	t.Cleanup(tree.Close)
	return tree
}

func TestInstancesRunWithoutControlGroups(t *testing.T) {
	t.Run("no tree", func(t *testing.T) { runsWithoutGroups(t, nil, 0) })
	for n, c := range []struct{ name, file, refusal string }{
		{"the group", "cgroup.max.descendants", "0"},
		{"start in the group fails", "cgroup.type", "threaded"}, // leaves children invalid
	} {
		tree := groups(t, fmt.Sprintf("refused-%d-%d", n, os.Getpid()))
		if tree == nil {
			return
		}
		t.Run(c.name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(tree.Dir(), c.file), []byte(c.refusal), 0); err != nil {
				t.Fatal(err)
			}
			runsWithoutGroups(t, tree, 1)
		})
	}
}

// runsWithoutGroups runs and kills two instances, and checks how often a refusal is logged.
func runsWithoutGroups(t *testing.T, tree *cgroup.Tree, told int) {
	t.Helper()
	var log bytes.Buffer
	r, err := process.New(process.Config{Tree: tree, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p := start(t, r, spec(t, "sleep 1000 & exec sleep 1000"))
		if err := p.Kill(t.Context()); err != nil || proctest.Lives(p.Identity().Server.PID) {
			t.Errorf("killing: %v", err)
		}
	}
	if n := strings.Count(log.String(), "the host refuses control groups"); n != told {
		t.Errorf("said %d times, want %d:\n%s", n, told, &log)
	}
}
