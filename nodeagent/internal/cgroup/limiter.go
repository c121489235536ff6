package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// Limiter holds an agent's instances to their limits. A nil one holds none. It is safe
// for concurrent use.
type Limiter struct {
	tree *Tree
	// parts are the agent's parts of the hierarchies that hold limits.
	parts []part
	offer fleet.NodeLimits
	seen  sightings
}

// part is where an agent holds one limit.
type part struct {
	controller
	// dir is the agent's part of the controller's own hierarchy; empty where the
	// controller belongs to version 2 and its files are in the tree's groups.
	dir string
}

// NewLimiter finds out which limits the host holds and prepares the agent's parts.
// owner and tree are those of Open; the tree may be nil. It never fails: Offer says
// what is missing and why.
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

// newLimiter makes a limiter of the controllers that find finds.
func newLimiter(tree *Tree, find func(controller) (part, error)) *Limiter {
	l := &Limiter{tree: tree}
	var why []string                // in order of the controllers
	limits := map[string][]string{} // that are not held, by why
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
	by := slices.Sorted(func(yield func(string) bool) {
		for v := range versions {
			if !yield(v) {
				return
			}
		}
	})
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

// Offer is which limits are held, and why the others are not.
func (l *Limiter) Offer() fleet.NodeLimits {
	if l == nil {
		return fleet.NodeLimits{By: "none"}
	}
	return l.offer
}

// Close removes the agent's parts that hold nobody.
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

// group is an instance's group in the part.
func (l *Limiter) group(p part, instance string) string {
	if p.dir == "" {
		return l.tree.Group(instance).dir
	}
	return filepath.Join(p.dir, instance)
}

// Prepare makes the groups that hold a run to its limits. The run's first process is
// held by all of them once it has written 0 into each of the files, and is in its group
// of the tree. Unavailable when the host refuses something; the rest is held all the same.
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
			if err := renew(dir); err != nil {
				refused = append(refused, err)
				continue
			}
			made[dir] = true
		}
		if err := set(dir, values); err != nil {
			refused = append(refused, err)
		}
		if p.dir != "" {
			// For one thread that moves itself the kernel waits for nobody, which it does for
			// cgroup.procs; see cgroup_procs_write_start.
			join = append(join, filepath.Join(dir, "tasks"))
		}
	}
	return join, errs.As(errs.Unavailable, "cgroup.Prepare", errors.Join(refused...))
}

// set writes values into the files of a group, as many as the host takes.
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

// renew makes a group, in place of one that an earlier run has left.
func renew(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := prune(dir); err != nil {
		return nil // processes are in it, which were started into the tree's group
	}
	return os.Mkdir(dir, 0o755)
}

// Release removes a run's groups beside the tree's. All of the run is gone; where the
// kernel needs a moment to see that, it gets one until ctx ends.
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
				break // the next run renews it
			}
		}
	}
}
