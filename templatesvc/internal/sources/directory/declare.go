package directory

import (
	"bytes"
	"context"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
)

// declarable describes a kind of object that a source can declare.
type declarable[T any] struct {
	noun string // the plural noun in messages
	list keys.Prefix[T]
	key  func(name string) keys.Key[T]
	open func(*T) (d *compose.Declaration, name string)
	rev  func(T) int64
	// told is where the results of all declarations are stored. made returns the names of
	// the existing objects; the value is true for those that the source manages.
	told keys.Prefix[compose.DeclaredStatus]
	made func(context.Context, *store.Client) (map[string]bool, error)
}

func groupsOf(source string) declarable[compose.DeclaredGroup] {
	return declarable[compose.DeclaredGroup]{
		noun: "groups", list: keys.DeclaredGroupsOf(source),
		key: func(name string) keys.Key[compose.DeclaredGroup] {
			return keys.DeclaredGroup(source, fleet.GroupName(name))
		},
		open: func(g *compose.DeclaredGroup) (*compose.Declaration, string) { return &g.Declaration, string(g.Group) },
		rev:  func(g compose.DeclaredGroup) int64 { return g.ModRev },
		told: keys.DeclaredStatuses(),
		made: func(ctx context.Context, c *store.Client) (map[string]bool, error) {
			all, _, err := store.List(ctx, c, keys.Groups())
			made := map[string]bool{}
			for i := range all {
				made[string(all[i].Name)] = all[i].ManagedBy == source
			}
			return made, err
		},
	}
}

func catalogOf(source string) declarable[compose.DeclaredCatalog] {
	return declarable[compose.DeclaredCatalog]{
		noun: "catalog entries", list: keys.DeclaredCatalogOf(source),
		key:  func(name string) keys.Key[compose.DeclaredCatalog] { return keys.DeclaredCatalogEntry(source, name) },
		open: func(e *compose.DeclaredCatalog) (*compose.Declaration, string) { return &e.Declaration, e.Name() },
		rev:  func(e compose.DeclaredCatalog) int64 { return e.ModRev },
		told: keys.DeclaredCatalogStatuses(),
		made: func(ctx context.Context, c *store.Client) (map[string]bool, error) {
			all, _, err := store.List(ctx, c, keys.Catalog())
			made := map[string]bool{}
			for _, p := range all {
				made[p.Platform] = p.ManagedBy == source
				for _, v := range p.Versions {
					made[p.Platform+"/"+v.Version] = v.ManagedBy == source
				}
			}
			return made, err
		},
	}
}

// declaration is the difference between the current and the previous declarations of a
// source.
type declaration struct {
	noun    string
	writes  []store.Write
	removal cluster.Removal
	// neverCreated lists names that are no longer declared and that were never created. Removing
	// them deletes nothing.
	neverCreated []string
	order        func(name string) store.Write // returns the write that requests a removal
	since        map[string]int64              // mod-revisions of the previous declarations
}

// declare compares the declarations of a source with its previous ones. It writes nothing.
func declare[T any](ctx context.Context, c *store.Client, kind declarable[T], s content.TemplateSource, h *sources.Holding, wanted []T, confirmed bool) (declaration, error) {
	d := declaration{noun: kind.noun, since: map[string]int64{}}
	present, _, err := store.List(ctx, c, kind.list)
	if err != nil {
		return d, errs.Wrap("source.declare", err)
	}
	next, place := map[string]T{}, h.PlaceOf(s)
	for _, one := range wanted {
		said, name := kind.open(&one)
		said.Source, said.Commit, said.Place = s.Name, h.Revision, place
		next[name] = one
	}
	before, known := map[string]T{}, map[string]bool{}
	for _, one := range present {
		said, name := kind.open(&one)
		before[name], d.since[name] = one, kind.rev(one)
		if !said.Removed {
			known[name] = said.Place == place
		}
	}
	for name, one := range next {
		old := before[name]
		was, _ := kind.open(&old)
		is, _ := kind.open(&one)
		if kind.rev(old) != 0 && !was.Removed && was.File == is.File && was.Place == is.Place && bytes.Equal(was.Spec, is.Spec) {
			continue
		}
		d.writes = append(d.writes, store.Replace(kind.key(name), one, kind.rev(old)))
	}
	never, err := neverMade(ctx, c, kind, s.Name, d.since)
	if err != nil {
		return d, err
	}
	d.neverCreated = slices.DeleteFunc(never, func(name string) bool {
		_, stays := next[name]
		_, declared := known[name]
		return stays || !declared
	})
	for _, name := range d.neverCreated { // names that were never created do not count for the removal limit
		delete(known, name)
	}
	d.removal = cluster.DecideRemoval(known, func(name string) bool { _, ok := next[name]; return ok }, confirmed)
	d.order = func(name string) store.Write {
		old := before[name]
		said, _ := kind.open(&old)
		said.Removed, said.Commit = true, h.Revision
		return store.Replace(kind.key(name), old, kind.rev(old))
	}
	return d, nil
}

// neverMade returns, sorted, the names that a source declares without effect: the latest
// declaration, whose mod-revision is in latest, failed or is in conflict, and no object of
// that name belongs to the source.
func neverMade[T any](ctx context.Context, c *store.Client, kind declarable[T], source string, latest map[string]int64) (names []string, err error) {
	told, _, err := store.List(ctx, c, kind.told)
	if err != nil {
		return nil, errs.Wrap("source.declare", err)
	}
	made, err := kind.made(ctx, c)
	if err != nil {
		return nil, errs.Wrap("source.declare", err)
	}
	for _, st := range told {
		vain := st.State == compose.DeclaredFailed || st.State == compose.DeclaredConflict
		if name := st.Name(); st.Source == source && vain && st.Observed == latest[name] && !made[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// record writes the declarations, and then the removal requests.
func (r *Runner) record(ctx context.Context, s content.TemplateSource, declared []declaration, fence store.Fence) error {
	exists := []store.Guard{store.Exists(keys.TemplateSource(s.Name))} // a source that is deleted meanwhile must not declare anything: nothing would remove it
	var writes, orders []store.Write
	for _, d := range declared {
		writes = append(writes, d.writes...)
		for _, name := range slices.Concat(d.neverCreated, d.removal.Go) {
			orders = append(orders, d.order(name))
		}
	}
	for part := range slices.Chunk(append(writes, orders...), 2) { // two specs of the maximum size fit in one transaction
		if _, err := r.cfg.Store.Commit(ctx, store.Txn{Fences: []store.Fence{fence}, Guards: exists, Writes: part}); err != nil {
			return errs.Wrap("source.declare", err)
		}
	}
	return nil
}
