package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Limiter enforces the limits of an agent's instances. A nil Limiter enforces none. It is safe
// for concurrent use.
type Limiter struct {
	tree *Tree
	// parts are the controllers that enforce limits.
	parts []part
	offer fleet.NodeLimits
	seen  killHistory
}

// part is a controller and the agent's group for it.
type part struct {
	controller
	// dir is the agent's group in the controller's version 1 hierarchy; empty for version 2,
	// where the controller's files are in the tree's groups.
	dir string
}

// NewLimiter finds out which limits the host supports and creates the agent's groups. owner and
// tree are those of Open; tree may be nil. It never fails: Offer says what is missing and why.
func NewLimiter(owner string, tree *Tree) *Limiter {
	own, err := ownDirs()
	version := sync.OnceValue(systemdVersion)
	return newLimiter(tree, func(c controller) (part, error) {
		if err != nil {
			return part{}, err
		}
		return c.find(owner, tree, own, version)
	})
}

// newLimiter returns a limiter with the controllers that find returns.
func newLimiter(tree *Tree, find func(controller) (part, error)) *Limiter {
	l := &Limiter{tree: tree}
	var why []string                // in order of the controllers
	limits := map[string][]string{} // unsupported limits, by reason
	versions := map[string]bool{}
	for _, c := range controllers {
		p, refused := find(c)
		if refused != nil {
			reason := reasonOf(refused)
			if limits[reason] == nil {
				why = append(why, reason)
			}
			limits[reason] = append(limits[reason], c.limit)
			continue
		}
		l.parts = append(l.parts, p)
		l.offer.Held = append(l.offer.Held, c.limit)
		versions[p.version()] = true
	}
	by := slices.Sorted(maps.Keys(versions))
	slices.Reverse(by)
	if l.offer.By = strings.Join(by, "+"); l.offer.By == "" {
		l.offer.By = "none"
	}
	for n, reason := range why {
		why[n] = strings.Join(limits[reason], ", ") + ": " + reason
	}
	l.offer.Why = strings.Join(why, "; ")
	return l
}

func reasonOf(err error) string {
	if m := errs.MessageOf(err); m != errs.MessageOf(nil) {
		return m
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Sprintf("%s %s: %v", path.Op, path.Path, path.Err)
	}
	return err.Error()
}

// Offer returns which limits are enforced, and why others are not.
func (l *Limiter) Offer() fleet.NodeLimits {
	if l == nil {
		return fleet.NodeLimits{By: "none"}
	}
	return l.offer
}

// Close removes the agent's empty groups.
func (l *Limiter) Close() {
	if l == nil {
		return
	}
	for _, p := range l.parts {
		if p.dir != "" {
			_ = os.Remove(p.dir)
		}
	}
}

func (p part) version() string {
	if p.dir == "" {
		return "cgroup2"
	}
	return "cgroup1"
}

// group returns the directory of an instance's group.
func (l *Limiter) group(p part, instance string) string {
	if p.dir == "" {
		return l.tree.Group(instance).dir
	}
	return filepath.Join(p.dir, instance)
}

// Prepare creates the groups that enforce a run's limits. The run's first process must be in its
// group of the tree and in each of the returned groups: see JoinThread and JoinProcess. It returns
// Unavailable if the host refuses a limit; the others are enforced anyway.
func (l *Limiter) Prepare(instance string, want runtime.Limits) (join []string, err error) {
	if l == nil {
		return nil, nil
	}
	defer l.seen.forget(instance)
	var refused []error
	made := map[string]bool{}
	for _, p := range l.parts {
		values := p.values(p, want)
		if len(values) == 0 {
			continue
		}
		dir := l.group(p, instance)
		if !made[dir] {
			if err := recreate(dir); err != nil {
				refused = append(refused, err)
				continue
			}
			made[dir] = true
		}
		if err := set(dir, values); err != nil {
			refused = append(refused, err)
		}
		if p.dir != "" {
			join = append(join, dir)
		}
	}
	return join, errs.WrapAs(errs.Unavailable, "cgroup.Prepare", errors.Join(refused...))
}

// JoinThread moves the calling thread into the groups that Prepare returned. It does not have the delay
// of JoinProcess; see cgroup_procs_write_start in the kernel.
func JoinThread(groups []string) error { return join(groups, "tasks", 0) }

// JoinProcess moves a process with all its threads into the groups that Prepare returned. The kernel
// waits until no process of the host forks or ends, which takes milliseconds.
func JoinProcess(pid int, groups []string) error { return join(groups, "cgroup.procs", pid) }

func join(groups []string, file string, id int) error {
	var refused []error
	for _, dir := range groups {
		refused = append(refused, os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(id)), 0))
	}
	return errs.WrapAs(errs.Unavailable, "cgroup.join", errors.Join(refused...))
}

// set writes values to the files of a group, and continues after errors.
func set(dir string, values []value) error {
	var refused []error
	for _, v := range values {
		err := os.WriteFile(filepath.Join(dir, v.file), []byte(v.value), 0)
		if err != nil && !(v.optional && errors.Is(err, fs.ErrNotExist)) {
			refused = append(refused, err)
		}
	}
	return errors.Join(refused...)
}

// recreate creates a group, and replaces one left over from an earlier run.
func recreate(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := prune(dir); err != nil {
		return nil // it has processes, which were started into the tree's group
	}
	return os.Mkdir(dir, 0o755)
}

// Release removes a run's version 1 groups after its processes have ended. It retries until ctx
// ends, because the kernel may need a moment.
func (l *Limiter) Release(ctx context.Context, instance string) {
	if l == nil {
		return
	}
	l.seen.forget(instance)
	for _, p := range l.parts {
		if p.dir == "" {
			continue
		}
		var r removal
		for done := false; !done && ctx.Err() == nil; {
			var err error
			if done, err = r.try(ctx, filepath.Join(p.dir, instance)); err != nil {
				break // the next run recreates it
			}
		}
	}
}
