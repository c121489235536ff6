package source

import (
	"bytes"
	"context"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/internal/origin"
)

// declarable is a kind of things that a source may declare.
type declarable[T any] struct {
	noun string // their plural
	list store.Prefix[T]
	key  func(name string) store.Key[T]
	open func(*T) (d *fleet.Declaration, name string)
	rev  func(T) int64
	// told are what came of all that sources declare; made are the names of what the source
	// made, and there is.
	told store.Prefix[fleet.DeclaredStatus]
	made func(context.Context, *store.Client) (map[string]bool, error)
}

func groupsOf(source string) declarable[fleet.DeclaredGroup] {
	return declarable[fleet.DeclaredGroup]{
		noun: "groups", list: store.DeclaredGroupsOf(source),
		key: func(name string) store.Key[fleet.DeclaredGroup] {
			return store.DeclaredGroupKey(source, fleet.GroupName(name))
		},
		open: func(g *fleet.DeclaredGroup) (*fleet.Declaration, string) { return &g.Declaration, string(g.Group) },
		rev:  func(g fleet.DeclaredGroup) int64 { return g.ModRev },
		told: store.DeclaredStatuses(),
		made: func(ctx context.Context, c *store.Client) (map[string]bool, error) {
			all, _, err := store.List(ctx, c, store.Groups())
			made := map[string]bool{}
			for i := range all {
				made[string(all[i].Name)] = all[i].ManagedBy == source
			}
			return made, err
		},
	}
}

func catalogOf(source string) declarable[fleet.DeclaredCatalog] {
	return declarable[fleet.DeclaredCatalog]{
		noun: "catalog entries", list: store.DeclaredCatalogOf(source),
		key:  func(name string) store.Key[fleet.DeclaredCatalog] { return store.DeclaredCatalogKey(source, name) },
		open: func(e *fleet.DeclaredCatalog) (*fleet.Declaration, string) { return &e.Declaration, e.Name() },
		rev:  func(e fleet.DeclaredCatalog) int64 { return e.ModRev },
		told: store.DeclaredCatalogStatuses(),
		made: func(ctx context.Context, c *store.Client) (map[string]bool, error) {
			all, _, err := store.List(ctx, c, store.Catalog())
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

// declaration is what is to be written of what a source declares, and what is to go.
type declaration struct {
	noun    string
	writes  []store.Write
	removal fleet.Removal
	// vain are the names of what is there no more, and never was made: nothing goes with them.
	vain  []string
	order func(name string) store.Write // to remove something
	since map[string]int64              // the mod-revisions of what was declared before
}

// declare compares what a source declares with what it declared before. Nothing is
// written yet.
func declare[T any](ctx context.Context, c *store.Client, kind declarable[T], s fleet.TemplateSource, h *origin.Holding, wanted []T, confirmed bool) (declaration, error) {
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
	d.vain = slices.DeleteFunc(never, func(name string) bool {
		_, stays := next[name]
		_, declared := known[name]
		return stays || !declared
	})
	for _, name := range d.vain { // they are not counted
		delete(known, name)
	}
	d.removal = fleet.DecideRemoval(known, func(name string) bool { _, ok := next[name]; return ok }, confirmed)
	d.order = func(name string) store.Write {
		old := before[name]
		said, _ := kind.open(&old)
		said.Removed, said.Commit = true, h.Revision
		return store.Replace(kind.key(name), old, kind.rev(old))
	}
	return d, nil
}

// neverMade are the names of what a source declares in vain, in order: it was told of the
// latest record, whose mod-revision is in latest, that it failed or is another's, and
// nothing there is the source's.
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
		vain := st.State == fleet.DeclaredFailed || st.State == fleet.DeclaredConflict
		if name := st.Name(); st.Source == source && vain && st.Observed == latest[name] && !made[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// record writes declarations, and then the orders to remove.
func (r *Runner) record(ctx context.Context, s fleet.TemplateSource, declared []declaration, fence store.Fence) error {
	exists := []store.Guard{store.Exists(store.TemplateSourceKey(s.Name))} // nobody removes what a deleted source declares
	var writes, orders []store.Write
	for _, d := range declared {
		writes = append(writes, d.writes...)
		for _, name := range slices.Concat(d.vain, d.removal.Go) {
			orders = append(orders, d.order(name))
		}
	}
	for part := range slices.Chunk(append(writes, orders...), 2) { // two specs of the largest size fit one transaction
		if _, err := r.cfg.Store.Commit(ctx, store.Txn{Fences: []store.Fence{fence}, Guards: exists, Writes: part}); err != nil {
			return errs.Wrap("source.declare", err)
		}
	}
	return nil
}
