// Package cgroup puts each instance into a control group of its own, so that all
// it starts is known and can be killed at once, however often it forks.
//
// Only the version 2 tree is used, and only its core files (cgroup.procs,
// cgroup.events, cgroup.kill): they work without any controller.
package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// Tree is an agent's part of the version 2 hierarchy. A nil Tree has no groups:
// whoever uses it falls back to other means.
type Tree struct{ dir string }

// Open finds the hierarchy and makes the agent's part of it, named by owner. The
// error says why there is none; it is not fatal.
func Open(owner string) (*Tree, error) {
	mount, err := mountPoint()
	if err != nil {
		return nil, err
	}
	own, err := ownPath()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(mount, own, groupPrefix+owner)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, errs.As(errs.Denied, "cgroup.Open", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		return nil, errs.As(errs.Unavailable, "cgroup.Open", fmt.Errorf("the kernel has no cgroup.kill: %w", err))
	}
	return &Tree{dir: dir}, nil
}

// At is the part of the hierarchy in a directory that an agent has opened before;
// nil for an empty one.
func At(dir string) *Tree {
	if dir == "" {
		return nil
	}
	return &Tree{dir: dir}
}

// Dir is where the tree is, for At; empty for a nil one.
func (t *Tree) Dir() string {
	if t == nil {
		return ""
	}
	return t.dir
}

func mountPoint() (string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", errs.As(errs.Unavailable, "cgroup.Open", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		if fields := strings.Fields(before); strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 {
			return fields[4], nil
		}
	}
	return "", errs.New(errs.Unavailable, "no cgroup version 2 hierarchy is mounted")
}

// groupPrefix begins the name of an agent's part of the hierarchy.
const groupPrefix = "orrery-"

// OwnerOf is the owner of the agent's part a process lives in; empty when it lives in none.
func OwnerOf(pid int) string {
	path, err := pathOf(strconv.Itoa(pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(path, "/"+groupPrefix)
	owner, _, _ := strings.Cut(rest, "/")
	return owner
}

// ownPath is where the agent itself lives in the version 2 tree.
func ownPath() (string, error) {
	path, err := pathOf("self")
	// An agent that was started inside an older agent's group must not nest.
	path, _, _ = strings.Cut(path, "/"+groupPrefix)
	return path, err
}

// pathOf is where a process lives in the version 2 tree.
func pathOf(pid string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	if err != nil {
		return "", errs.As(errs.Unavailable, "cgroup.pathOf", err)
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path, nil
		}
	}
	return "", errs.New(errs.Unavailable, "process %s is in no version 2 control group", pid)
}

// Close removes the agent's part of the hierarchy if no instance lives in it.
func (t *Tree) Close() {
	if t != nil {
		_ = os.Remove(t.dir)
	}
}

// Group is one instance's control group.
type Group struct{ dir string }

// Group names an instance's group; it need not exist.
func (t *Tree) Group(instance string) *Group {
	if t == nil {
		return nil
	}
	return &Group{dir: filepath.Join(t.dir, instance)}
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
func (g *Group) Discard() { _ = os.Remove(g.dir) }

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
		b, err := os.ReadFile(filepath.Join(t.dir, g.Name(), "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // gone meanwhile, or of a kind that is told by its environment
		}
		if err != nil {
			return nil, errs.As(errs.Unavailable, "cgroup.Members", err)
		}
		for _, field := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil {
				members[g.Name()] = append(members[g.Name()], pid)
			}
		}
	}
	return members, nil
}

// Exists reports whether the group is there, as far as can be told.
func (g *Group) Exists() bool {
	if g == nil {
		return false
	}
	_, err := os.Stat(g.dir)
	return !errors.Is(err, fs.ErrNotExist)
}

// Kill kills every process of the group and removes it when it is empty, or
// gives up when ctx ends.
func (g *Group) Kill(ctx context.Context) error {
	events, err := os.Open(filepath.Join(g.dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.As(errs.Unavailable, "cgroup.Kill", err)
	}
	defer events.Close()
	for ctx.Err() == nil {
		populated, err := isPopulated(events)
		if errors.Is(err, unix.ENODEV) { // somebody else has just removed it
			return nil
		}
		if err != nil {
			return errs.As(errs.Unavailable, "cgroup.Kill", err)
		}
		if !populated {
			return g.remove(ctx)
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

// remove removes the empty group; the kernel may need a moment to let the last
// process go after it stopped counting.
func (g *Group) remove(ctx context.Context) error {
	for {
		err := os.Remove(g.dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return errs.As(errs.Unavailable, "cgroup.remove", err)
		}
		select {
		case <-ctx.Done():
			return errs.Wrap("cgroup.remove", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}
