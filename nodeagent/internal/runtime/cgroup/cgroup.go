// Package cgroup puts each instance into its own control groups, to find and kill all its
// processes and to enforce its limits.
//
// A Tree finds and kills processes. It uses only the version 2 hierarchy and its core files
// (cgroup.procs, cgroup.events, cgroup.kill), which work without any controller.
//
// A Limiter enforces limits. It takes each controller from the hierarchy that has it:
//
//	version 2   the limits are files of the Tree's group
//	version 1   a group in the hierarchy of each controller that a limit needs
//	neither     the limit is not enforced, which the node's record says
//
// Invariants:
//   - A process is in all of its groups before it executes its first command.
//   - A run gets new groups, so that their counters belong to this run.
//   - If the host refuses a limit, the instance runs without it, and the error is reported.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// Tree is an agent's subtree of the version 2 hierarchy. A nil Tree has no groups; callers
// then use other means.
type Tree struct {
	dir string
	// borrowed is true if another process opened the tree and removes its groups.
	borrowed bool
}

// Open creates the agent's subtree of the hierarchy, named by owner. An error is not fatal;
// it says why the host has no usable hierarchy.
func Open(owner string) (*Tree, error) {
	own, err := ownDirs()
	if err != nil {
		return nil, err
	}
	parent, ok := own[unified]
	if !ok {
		return nil, errs.New(errs.Unavailable, "no cgroup version 2 hierarchy is mounted")
	}
	dir := filepath.Join(parent, groupPrefix+owner)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, errs.WrapAs(errs.Denied, "cgroup.Open", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "cgroup.Open", fmt.Errorf("the kernel has no cgroup.kill: %w", err))
	}
	return &Tree{dir: dir}, nil
}

// At returns the tree in a directory that an agent opened; nil for an empty dir. It leaves
// empty groups to that agent, which reads from them how the processes ended.
func At(dir string) *Tree {
	if dir == "" {
		return nil
	}
	return &Tree{dir: dir, borrowed: true}
}

// Dir returns the tree's directory, for At; empty for a nil tree.
func (t *Tree) Dir() string {
	if t == nil {
		return ""
	}
	return t.dir
}

// groupPrefix starts the name of an agent's subtree.
const groupPrefix = "orrery-"

// OwnerOf returns the owner of the agent's subtree in which a process is; empty if it is in none.
func OwnerOf(pid int) string {
	paths, err := pathsOf(strconv.Itoa(pid))
	if err != nil {
		return ""
	}
	_, owner := splitAgentGroup(paths[unified])
	return owner
}

// splitAgentGroup finds an agent's subtree in a path. It returns the parent of the subtree and
// its owner, or the path and no owner. A systemd unit, such as orrery-nodeagent.service, has
// the same prefix, but its name has a dot, which owners do not have.
func splitAgentGroup(path string) (parent, owner string) {
	for at := 0; ; {
		i := strings.Index(path[at:], "/"+groupPrefix)
		if i < 0 {
			return path, ""
		}
		at += i
		name, _, _ := strings.Cut(path[at+1:], "/")
		if !strings.Contains(name, ".") {
			return path[:at], strings.TrimPrefix(name, groupPrefix)
		}
		at += len("/") + len(name)
	}
}

// Close removes the agent's subtree if no instance is in it.
func (t *Tree) Close() {
	if t != nil {
		_ = os.Remove(t.dir)
	}
}

// Group is one instance's control group.
type Group struct {
	dir      string
	borrowed bool
}

// Group returns an instance's group, whether it exists or not.
func (t *Tree) Group(instance string) *Group {
	if t == nil {
		return nil
	}
	return &Group{dir: filepath.Join(t.dir, instance), borrowed: t.borrowed}
}

// Create creates the group and opens it for clone(2). The caller closes the file.
func (g *Group) Create() (*os.File, error) {
	if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, errs.WrapAs(errs.Unavailable, "cgroup.Create", err)
	}
	f, err := os.Open(g.dir)
	return f, errs.WrapAs(errs.Unavailable, "cgroup.Create", err)
}

// Join creates the group and moves a process into it.
func (g *Group) Join(pid int) error {
	f, err := g.Create()
	if err != nil {
		return err
	}
	_ = f.Close()
	err = os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	return errs.WrapAs(errs.Unavailable, "cgroup.Join", err)
}

// Discard removes the group if it is empty.
func (g *Group) Discard() {
	if g != nil {
		_ = os.Remove(g.dir)
	}
}

// Members returns the processes of all instances, by instance id. It returns Unavailable if not
// all can be read.
func (t *Tree) Members() (map[string][]int, error) {
	if t == nil {
		return nil, nil
	}
	members := map[string][]int{}
	groups, err := os.ReadDir(t.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.WrapAs(errs.Unavailable, "cgroup.Members", err)
	}
	for _, g := range groups {
		if !g.IsDir() {
			continue
		}
		pids, err := processesBelow(filepath.Join(t.dir, g.Name()))
		if err != nil {
			return nil, errs.WrapAs(errs.Unavailable, "cgroup.Members", err)
		}
		if len(pids) > 0 {
			members[g.Name()] = pids
		}
	}
	return members, nil
}

// processesBelow returns the processes of a group and its subgroups.
func processesBelow(dir string) (pids []int, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV): // removed meanwhile
			return nil
		case err != nil || !d.IsDir():
			return err
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil // removed, or a threaded group; its processes are found by their environment
		}
		for _, field := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		return err
	})
	return pids, err
}

// Exists reports whether the group may exist.
func (g *Group) Exists() bool {
	if g == nil {
		return false
	}
	_, err := os.Stat(g.dir)
	return !errors.Is(err, fs.ErrNotExist)
}

// Kill kills all processes of the group and its subgroups, and removes the empty groups unless
// the tree is borrowed. It gives up when ctx ends. It leaves empty groups that the kernel does
// not remove within removeTimeout; the next run recreates them.
func (g *Group) Kill(ctx context.Context) error {
	events, err := os.Open(filepath.Join(g.dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "cgroup.Kill", err)
	}
	defer events.Close()
	var r removal
	for ctx.Err() == nil {
		populated, err := isPopulated(events)
		if errors.Is(err, unix.ENODEV) { // another process has just removed it
			return nil
		}
		if err != nil {
			return errs.WrapAs(errs.Unavailable, "cgroup.Kill", err)
		}
		if !populated && g.borrowed {
			return nil
		}
		if !populated {
			if done, err := r.try(ctx, g.dir); done || err != nil {
				return errs.WrapAs(errs.Unavailable, "cgroup.Kill", err)
			}
			continue
		}
		err = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return errs.WrapAs(errs.Unavailable, "cgroup.Kill", err)
		}
		awaitChange(events)
	}
	return errs.Wrap("cgroup.Kill", ctx.Err())
}

func isPopulated(events *os.File) (bool, error) {
	buf := make([]byte, 128)
	n, err := events.ReadAt(buf, 0)
	if n == 0 {
		return false, err
	}
	return strings.Contains(string(buf[:n]), "populated 1"), nil
}

// awaitChange waits until the events file changes, at most 200 ms.
func awaitChange(events *os.File) {
	fds := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}
	_, _ = unix.Poll(fds, 200)
}
