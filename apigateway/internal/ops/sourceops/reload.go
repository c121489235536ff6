package sourceops

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// reloadPatience limits how long Reload waits for all sources together.
	reloadPatience = 25 * time.Second
	// maxTold limits the reported problems.
	maxTold = 100
)

// Reloaded is the result of Reload.
type Reloaded struct {
	// Sources is how many sources were synced, including the template directory.
	Sources int
	// Templates and Groups are the changed ones, sorted, including new and deleted ones.
	Templates, Groups []string
	// Problems describe sources that failed or are not finished.
	Problems []string
}

// Message summarizes the result in a sentence.
func (r Reloaded) Message() string {
	if r.Sources == 0 {
		return "there is no directory of templates and no source to look at"
	}
	problems := ""
	if len(r.Problems) > 0 {
		problems = fmt.Sprintf(", %s", txn.Count(len(r.Problems), "problem"))
	}
	return fmt.Sprintf("looked at %s: %s and %s changed%s", txn.Count(r.Sources, "source"), txn.Count(len(r.Templates), "template"), txn.Count(len(r.Groups), "configuration"), problems)
}

// Reload syncs the template directory and all sources that are not paused. It waits until their
// declarations are applied, for reloadPatience at most.
func (s *Sources) Reload(ctx context.Context, by txn.Actor) (out Reloaded, err error) {
	o := s.Committer
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
		case errs.Is(err, errs.NotFound): // deleted meanwhile
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
		out.Problems = append(out.Problems, what+" is not synced yet; the sync continues in the background")
	}
	if err := s.problems(ctx, asked, &out); err != nil {
		return out, err
	}
	rev, err := o.Store.Revision(ctx)
	if err != nil {
		return out, errs.Wrap("operate.Reload", err)
	}
	after, err := o.View.WaitRev(ctx, rev)
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
	default: // already signaled
	}
}

// await waits until the asked sources were synced, and returns those that were not in time.
func (s *Sources) await(ctx context.Context, asked map[string]bool) (waiting []string, err error) {
	bounded, cancel := context.WithTimeout(ctx, reloadPatience)
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	changed := make(bell, 1)
	for _, prefix := range []string{
		keys.TemplateSourceStatuses().String(), keys.TemplateDirectories().String(), keys.DeclaredStatuses().String(), keys.DeclaredCatalogStatuses().String(),
	} {
		following.Go(func() { _ = s.Store.Follow(bounded, prefix, changed) }) // returns when bounded ends
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

// unsettled returns the sources that were not synced since the request, and those with declarations
// that were not applied.
func (s *Sources) unsettled(ctx context.Context, asked map[string]bool) (out []string, err error) {
	all, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	sources := map[string]bool{}
	for _, one := range all {
		sources[one.Name] = true
		if asked[one.Name] && one.Name != content.DirectoryOrigin && one.Status.Observed != one.ModRev {
			out = append(out, "source "+one.Name)
		}
	}
	if asked[content.DirectoryOrigin] {
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
	snap := s.Snapshot()
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

// overtaken reports whether a declared group conflicts only with a source that was removed just
// now: the group is about to be taken over, or was already.
func overtaken(s *view.Snapshot, d Declared, sources map[string]bool) bool {
	if d.Status.State != compose.DeclaredConflict || d.Kind != "group" {
		return false
	}
	g, ok := s.Groups.Get(fleet.GroupName(d.Name))
	return ok && g.ManagedBy != "" && (g.ManagedBy == d.Source || !sources[g.ManagedBy])
}

// directoriesBehind returns the live replicas that have not synced their template directory since
// the request.
func (s *Sources) directoriesBehind(ctx context.Context) (out []string, err error) {
	c := s.Store
	wanted, err := txn.GetOptional(ctx, c, keys.DirectorySync())
	if err != nil {
		return nil, err
	}
	all, _, err := store.List(ctx, c, keys.TemplateDirectories())
	if err != nil {
		return nil, errs.Wrap("operate.Reload", err)
	}
	living := s.Snapshot().ServiceSessions("templatesvc")
	for _, d := range all {
		alive := slices.ContainsFunc(living, func(r *cluster.Session) bool { return r.Replica == d.Replica })
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
		if st := one.Status; st.State == content.SourceFailed || st.State == content.SourceHeld {
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
			if st := d.Status.State; asked[source] && (st == compose.DeclaredFailed || st == compose.DeclaredConflict) {
				add("%s %s of source %s is %s: %s", d.Kind, d.Name, source, st, d.Status.Message)
			}
		}
	}
	slices.Sort(out.Problems)
	return nil
}

// changedTemplates returns the templates whose version differs between two snapshots.
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

// changedGroups returns the groups whose revision differs between two snapshots.
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
