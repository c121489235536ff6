package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/libs/proctest"
)

// needs returns there. If it is false, the test fails under ORRERY_CI.
func needs(t *testing.T, there bool, otherwise string) bool {
	t.Helper()
	if there {
		return true
	}
	if os.Getenv("ORRERY_CI") != "" {
		t.Fatal(otherwise)
	}
	t.Log(otherwise)
	return false
}

func TestSystemdUnitIsNotAnAgentsSubtree(t *testing.T) {
	for _, c := range []struct{ path, parent, owner string }{
		{"/", "/", ""},
		{"/system.slice/orrery-nodeagent.service", "/system.slice/orrery-nodeagent.service", ""},
		{"/system.slice/orrery-nodeagent.service/agent.orrery", "/system.slice/orrery-nodeagent.service/agent.orrery", ""},
		{"/system.slice/orrery-nodeagent.service/orrery-A1/lobby", "/system.slice/orrery-nodeagent.service", "A1"},
		{"/orrery-games.slice/orrery-games-eu.slice/orrery-node.service/orrery-A1", "/orrery-games.slice/orrery-games-eu.slice/orrery-node.service", "A1"},
		{"/docker/abc/orrery-A1/lobby", "/docker/abc", "A1"},
		{"/orrery-A1/lobby/orrery-B2/nested", "", "A1"},
	} {
		if parent, owner := splitAgentGroup(c.path); parent != c.parent || owner != c.owner {
			t.Errorf("%s: parent %q, owner %q; want %q, %q", c.path, parent, owner, c.parent, c.owner)
		}
	}
}

// resident starts a process in a group. The test's cleanup kills it.
func resident(t *testing.T, dir string) int {
	t.Helper()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = c.Wait(); close(ended) }()
	t.Cleanup(func() { _ = c.Process.Kill(); <-ended })
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(c.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	return c.Process.Pid
}

func TestKillRemovesGroupAndSubgroups(t *testing.T) {
	tree, err := Open("nested-" + strconv.Itoa(os.Getpid()))
	if !needs(t, err == nil, "no version 2 hierarchy here") {
		return
	}
	t.Cleanup(tree.Close)
	g := tree.Group("aaaaaa")
	inner := filepath.Join(g.dir, "a", "b")
	for _, dir := range []string{inner, filepath.Join(g.dir, "c")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	outer, nested := resident(t, g.dir), resident(t, inner)
	members, err := tree.Members()
	if err != nil || !slices.Contains(members["aaaaaa"], outer) || !slices.Contains(members["aaaaaa"], nested) {
		t.Errorf("members %v without %d or %d: %v", members, outer, nested, err)
	}
	if err := g.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g.Exists() || proctest.Lives(outer) || proctest.Lives(nested) {
		t.Error("something of it is left")
	}
}

func TestRemovalOfBusyGroupGivesUp(t *testing.T) {
	own, err := ownDirs()
	if !needs(t, err == nil && own["pids"] != "", "no version 1 controller here") {
		return
	}
	dir := filepath.Join(own["pids"], groupPrefix+"busy-"+strconv.Itoa(os.Getpid()))
	inner := filepath.Join(dir, "a")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	pid := resident(t, inner)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var r removal
	if done, err := r.try(ctx, dir); done || err != nil {
		t.Errorf("done %v, %v, though a process is in it", done, err)
	}
	r.began = r.began.Add(-2 * removeTimeout)
	if done, err := r.try(ctx, dir); !done || err != nil {
		t.Errorf("tried on: %v", err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for r, done := (removal{}), false; !done; {
		if done, err = r.try(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
}
