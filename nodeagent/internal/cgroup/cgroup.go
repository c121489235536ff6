// Package cgroup puts each instance into control groups of its own: to know and to
// kill all it starts, however often it forks, and to hold it to its limits.
//
// A Tree is for the former. Only the version 2 hierarchy is used for it, and only its
// core files (cgroup.procs, cgroup.events, cgroup.kill): they work without any
// controller.
//
// A Limiter is for the latter. It takes each controller from where the host has it:
//
//	version 2   the limits are files of the group the Tree has made
//	version 1   a group in each controller's hierarchy that a limit needs
//	neither     the limit is not held, which the node's record says
//
// Invariants:
//   - A process is in all of its groups before it runs its first command.
//   - A run's groups are new, so that what they count is of this run alone.
//   - A host that refuses a limit runs the instance without it, and says so.
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

// Tree is an agent's part of the version 2 hierarchy. A nil Tree has no groups:
// whoever uses it falls back to other means.
type Tree struct {
	dir string
	// lent is true for one that somebody else has opened, who removes its groups.
	lent bool
}

// Open finds the hierarchy and makes the agent's part of it, named by owner. The
// error says why there is none; it is not fatal.
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
		return nil, errs.As(errs.Denied, "cgroup.Open", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		return nil, errs.As(errs.Unavailable, "cgroup.Open", fmt.Errorf("the kernel has no cgroup.kill: %w", err))
	}
	return &Tree{dir: dir}, nil
}

// At is the part of the hierarchy in a directory that an agent has opened; nil for an
// empty one. Its groups are left to that agent when they are empty, since they tell it
// what the kernel did to their processes.
func At(dir string) *Tree {
	if dir == "" {
		return nil
	}
	return &Tree{dir: dir, lent: true}
}

// Dir is where the tree is, for At; empty for a nil one.
func (t *Tree) Dir() string {
	if t == nil {
		return ""
	}
	return t.dir
}

// groupPrefix begins the name of an agent's part of the hierarchy.
const groupPrefix = "orrery-"

// OwnerOf is the owner of the agent's part a process lives in; empty when it lives in none.
func OwnerOf(pid int) string {
	paths, err := pathsOf(strconv.Itoa(pid))
	if err != nil {
		return ""
	}
	_, owner := partOf(paths[unified])
	return owner
}

// partOf finds an agent's part in a path: the group that the part is in and the part's owner.
// Without a part it returns the path and no owner. A unit of systemd, such as
// orrery-nodeagent.service, begins like a part; unlike an owner its name has a dot.
func partOf(path string) (parent, owner string) {
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

// Close removes the agent's part of the hierarchy if no instance lives in it.
func (t *Tree) Close() {
	if t != nil {
		_ = os.Remove(t.dir)
	}
}

// Group is one instance's control group.
type Group struct {
	dir  string
	lent bool
}

// Group names an instance's group; it need not exist.
func (t *Tree) Group(instance string) *Group {
	if t == nil {
		return nil
	}
	return &Group{dir: filepath.Join(t.dir, instance), lent: t.lent}
}

// Create makes the group and opens it for clone(2). The caller closes the file.
func (g *Group) Create() (*os.File, error) {
	if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, errs.As(errs.Unavailable, "cgroup.Create", err)
	}
	f, err := os.Open(g.dir)
	return f, errs.As(errs.Unavailable, "cgroup.Create", err)
}

// Join makes the group and puts a process into it.
func (g *Group) Join(pid int) error {
	f, err := g.Create()
	if err != nil {
		return err
	}
	_ = f.Close()
	err = os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
	return errs.As(errs.Unavailable, "cgroup.Join", err)
}

// Discard removes the group if nothing is in it.
func (g *Group) Discard() {
	if g != nil {
		_ = os.Remove(g.dir)
	}
}

// Members are the processes of every instance that has any, by its id. Unavailable
// when they cannot all be read.
func (t *Tree) Members() (map[string][]int, error) {
	if t == nil {
		return nil, nil
	}
	members := map[string][]int{}
	groups, err := os.ReadDir(t.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errs.As(errs.Unavailable, "cgroup.Members", err)
	}
	for _, g := range groups {
		if !g.IsDir() {
			continue
		}
		pids, err := processesBelow(filepath.Join(t.dir, g.Name()))
		if err != nil {
			return nil, errs.As(errs.Unavailable, "cgroup.Members", err)
		}
		if len(pids) > 0 {
			members[g.Name()] = pids
		}
	}
	return members, nil
}

// processesBelow are the processes of a group and of the groups below it.
func processesBelow(dir string) (pids []int, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV): // gone meanwhile
			return nil
		case err != nil || !d.IsDir():
			return err
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil // or of a kind that is told by its environment
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

// Exists reports whether the group is there, as far as can be told.
func (g *Group) Exists() bool {
	if g == nil {
		return false
	}
	_, err := os.Stat(g.dir)
	return !errors.Is(err, fs.ErrNotExist)
}

// Kill kills every process of the group and of those below it, and removes them when they
// are empty, unless the tree is lent. It gives up when ctx ends. Empty groups that the
// kernel does not let go of for removePatience are left to the next run.
func (g *Group) Kill(ctx context.Context) error {
	events, err := os.Open(filepath.Join(g.dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.As(errs.Unavailable, "cgroup.Kill", err)
	}
	defer events.Close()
	var r removal
	for ctx.Err() == nil {
		populated, err := isPopulated(events)
		if errors.Is(err, unix.ENODEV) { // somebody else has just removed it
			return nil
		}
		if err != nil {
			return errs.As(errs.Unavailable, "cgroup.Kill", err)
		}
		if !populated && g.lent {
			return nil
		}
		if !populated {
			if done, err := r.try(ctx, g.dir); done || err != nil {
				return errs.As(errs.Unavailable, "cgroup.Kill", err)
			}
			continue
		}
		err = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return errs.As(errs.Unavailable, "cgroup.Kill", err)
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

// awaitChange waits until the events file changes, a fifth of a second at most.
func awaitChange(events *os.File) {
	fds := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}
	_, _ = unix.Poll(fds, 200)
}
