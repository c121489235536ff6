package operate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// reloadPatience is how long all sources together may take to be looked at.
	reloadPatience = 25 * time.Second
	// maxTold bounds what is told of sources that are not as they should be.
	maxTold = 100
)

// Reloaded is what came of looking at all sources anew.
type Reloaded struct {
	// Sources is how many were looked at.
	Sources int
	// Templates and Groups are those that are other than they were, made or gone, in order.
	Templates, Groups []string
	// Problems say what of the sources is not as they want it, or is not known yet.
	Problems []string
}

// Message says it in a sentence.
func (r Reloaded) Message() string {
	if r.Sources == 0 {
		return "there is no directory of templates and no source to look at"
	}
	problems := ""
	if len(r.Problems) > 0 {
		problems = fmt.Sprintf(", %s", counted(len(r.Problems), "problem"))
	}
	return fmt.Sprintf("looked at %s: %s and %s changed%s", counted(r.Sources, "source"), counted(len(r.Templates), "template"), counted(len(r.Groups), "configuration"), problems)
}

// Reload has the directory of templates and all sources that are not paused looked at, and
// waits until they have been and what they declare is made so, for reloadPatience at most.
func (s *Sources) Reload(ctx context.Context, by Actor) (out Reloaded, err error) {
	o := s.operations
	before := o.Snapshot()
	all, err := s.List(ctx)
	if err != nil {
		return out, err
	}
	asked := map[string]bool{}
	for _, one := range all {
		if one.Paused {
			continue
		}
		switch err := s.Sync(ctx, by, one.Name, ""); {
		case errs.Is(err, errs.NotFound): // it was deleted meanwhile
		case err != nil:
			return out, err
		default:
			asked[one.Name] = true
		}
	}
	out.Sources = len(asked)
	waiting, err := s.await(ctx, asked)
	if err != nil {
		return out, err
	}
	for _, what := range waiting {
		out.Problems = append(out.Problems, what+" has not been looked at yet: it goes on by itself")
	}
	if err := s.problems(ctx, asked, &out); err != nil {
		return out, err
	}
	rev, err := o.cfg.Store.Revision(ctx)
	if err != nil {
		return out, errs.Wrap("operate.Reload", err)
	}
	after, err := o.cfg.View.WaitRev(ctx, rev)
	if err != nil {
		return out, err
	}
	out.Templates, out.Groups = changedTemplates(before, after), changedGroups(before, after)
	return out, nil
}

// bell rings when something under a prefix is not as it was.
type bell chan struct{}

// Reset implements store.Handler.
func (b bell) Reset([]store.KeyValue, int64) { b.ring() }

// Apply implements store.Handler.
func (b bell) Apply([]store.Change, int64) { b.ring() }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default: // it rings already
	}
}

// await waits until sources have been looked at, and returns those that were not in time.
func (s *Sources) await(ctx context.Context, asked map[string]bool) (waiting []string, err error) {
	bounded, cancel := context.WithTimeout(ctx, reloadPatience)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	changed := make(bell, 1)
	for _, prefix := range []string{
		store.TemplateSourceStatuses().String(), store.TemplateDirectories().String(), store.DeclaredStatuses().String(), store.DeclaredCatalogStatuses().String(),
	} {
		following.Go(func() { _ = s.operations.cfg.Store.Follow(bounded, prefix, changed) }) // ends with bounded
	}
	for {
		waiting, err = s.unsettled(ctx, asked)
		if err != nil || len(waiting) == 0 {
			return waiting, err
		}
		select {
		case <-changed:
		case <-bounded.Done():
			return waiting, errs.Wrap("operate.Reload", ctx.Err())
		}
	}
}

// unsettled are sources that were not looked at since they were asked for, and what they
// declare that nobody has looked at.
func (s *Sources) unsettled(ctx context.Context, asked map[string]bool) (out []string, err error) {
	all, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	sources := map[string]bool{}
	for _, one := range all {
		sources[one.Name] = true
		if asked[one.Name] && one.Name != fleet.DirectoryOrigin && one.Status.Observed != one.ModRev {
			out = append(out, "source "+one.Name)
		}
	}
	if asked[fleet.DirectoryOrigin] {
		behind, err := s.directoriesBehind(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, behind...)
	}
	declared, err := s.Declared(ctx)
	if err != nil {
		return nil, err
	}
	snap := s.operations.Snapshot()
	for source, list := range declared {
		for _, d := range list {
			if asked[source] && (d.Status.State == "" || overtaken(snap, d, sources)) {
				out = append(out, fmt.Sprintf("%s %s of source %s", d.Kind, d.Name, source))
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// overtaken reports whether a declared group is told to be in conflict with one of a source that has
// just gone, which is taken over, or was already.
func overtaken(s *view.Snapshot, d Declared, sources map[string]bool) bool {
	if d.Status.State != fleet.DeclaredConflict || d.Kind != "group" {
		return false
	}
	g, ok := s.Groups.Get(fleet.GroupName(d.Name))
	return ok && g.ManagedBy != "" && (g.ManagedBy == d.Source || !sources[g.ManagedBy])
}

// directoriesBehind are the replicas that live and have not looked at their directory of
// templates since it was asked for.
func (s *Sources) directoriesBehind(ctx context.Context) (out []string, err error) {
	c := s.operations.cfg.Store
	wanted, err := optional(ctx, c, store.DirectorySyncKey())
	if err != nil {
		return nil, err
	}
	all, _, err := store.List(ctx, c, store.TemplateDirectories())
	if err != nil {
		return nil, errs.Wrap("operate.Reload", err)
	}
	living := s.operations.Snapshot().ServiceSessions("templatesvc")
	for _, d := range all {
		alive := slices.ContainsFunc(living, func(r *fleet.Session) bool { return r.Replica == d.Replica })
		if alive && d.ModRev < wanted.ModRev {
			out = append(out, "the directory of templates of "+d.Replica)
		}
	}
	return out, nil
}

// problems adds what is not as the sources want it.
func (s *Sources) problems(ctx context.Context, asked map[string]bool, out *Reloaded) error {
	all, err := s.List(ctx)
	if err != nil {
		return err
	}
	add := func(format string, values ...any) {
		if len(out.Problems) < maxTold {
			out.Problems = append(out.Problems, fmt.Sprintf(format, values...))
		}
	}
	for _, one := range all {
		if !asked[one.Name] {
			continue
		}
		if st := one.Status; st.State == fleet.SourceFailed || st.State == fleet.SourceHeld {
			add("source %s is %s: %s", one.Name, st.State, st.Message)
		}
		for _, i := range one.Status.Items {
			if i.Message != "" {
				add("template %s of source %s: %s", i.Template, one.Name, i.Message)
			}
		}
	}
	declared, err := s.Declared(ctx)
	if err != nil {
		return err
	}
	for source, list := range declared {
		for _, d := range list {
			if st := d.Status.State; asked[source] && (st == fleet.DeclaredFailed || st == fleet.DeclaredConflict) {
				add("%s %s of source %s is %s: %s", d.Kind, d.Name, source, st, d.Status.Message)
			}
		}
	}
	slices.Sort(out.Problems)
	return nil
}

// changedTemplates are the templates with another version in one of two snapshots.
func changedTemplates(before, after *view.Snapshot) []string {
	out := []string{}
	for name, h := range after.TemplateHeads.All() {
		if old, ok := before.TemplateHeads.Get(name); !ok || old.Digest != h.Digest {
			out = append(out, name)
		}
	}
	for name := range before.TemplateHeads.All() {
		if _, ok := after.TemplateHeads.Get(name); !ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// changedGroups are the groups with another revision in one of two snapshots.
func changedGroups(before, after *view.Snapshot) []string {
	out := []string{}
	for name, g := range after.Groups.All() {
		if old, ok := before.Groups.Get(name); !ok || old.Revision != g.Revision || old.Deleting != g.Deleting {
			out = append(out, string(name))
		}
	}
	for name := range before.Groups.All() {
		if _, ok := after.Groups.Get(name); !ok {
			out = append(out, string(name))
		}
	}
	slices.Sort(out)
	return out
}
