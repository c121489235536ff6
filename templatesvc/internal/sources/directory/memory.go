package directory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// recall reads, once, what this replica stored about the directory before it was started.
// It also takes over the memories of dead replicas that had a directory in the same place,
// for example this replica under a previous name.
func (d *Directory) recall(ctx context.Context) error {
	if d.id == "" {
		return nil
	}
	told, _, err := store.List(ctx, d.cfg.Store, keys.DirectoryMemoriesOf(d.id))
	if err != nil {
		return errs.Wrap("source.recall", err)
	}
	own := content.DirectoryMemory{ID: d.id}
	for _, m := range told {
		if m.Replica == d.cfg.Replica {
			own = m
			own.Removed = d.seenNow(m.Removed)
		}
	}
	if d.memory.ID != d.id {
		d.memory, d.holding = own, own.Held
	}
	place := placeOf(d.cfg.Dir)
	for _, m := range told {
		if m.Replica == d.cfg.Replica || m.Place != place || place == "" {
			continue
		}
		if own.ModRev, err = d.takeOver(ctx, m, own.ModRev); err != nil {
			return errs.Wrap("source.recall", err)
		}
	}
	return nil
}

// takeOver merges the memory of a dead replica into this one's and deletes it. rev is the
// mod-revision of this replica's own stored memory.
func (d *Directory) takeOver(ctx context.Context, m content.DirectoryMemory, rev int64) (int64, error) {
	session := keys.Session("templatesvc", m.Replica)
	if _, err := store.Get(ctx, d.cfg.Store, session); !errs.Is(err, errs.NotFound) {
		return rev, err
	}
	next := d.memory
	next.Templates = slices.Concat(next.Templates, m.Templates)
	slices.Sort(next.Templates)
	next.Templates = slices.Compact(next.Templates)
	next.Removed = d.seenNow(m.Removed)
	maps.Copy(next.Removed, d.memory.Removed)
	next.Held = next.Held || m.Held
	at, err := d.cfg.Store.Commit(ctx, store.Txn{
		Guards: []store.Guard{store.Missing(session)},
		Writes: []store.Write{
			store.Remove(keys.DirectoryMemory(m.ID, m.Replica), m.ModRev),
			store.Replace(keys.DirectoryMemory(m.ID, d.cfg.Replica), d.written(next, next.Held), rev),
		},
	})
	switch {
	case errs.Is(err, errs.Conflict), errs.Is(err, errs.AlreadyExists): // the replica lives, or another one was faster
		return rev, nil
	case err != nil:
		return rev, err
	}
	d.memory, d.holding = next, d.holding || m.Held
	return at, nil
}

// seenNow returns the removals with the current time, because the process that stored them
// may have had another clock.
func (d *Directory) seenNow(removed map[string]time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	for name := range removed {
		out[name] = d.cfg.Now().UTC()
	}
	return out
}

// written returns a memory in the form in which it is stored.
func (d *Directory) written(m content.DirectoryMemory, held bool) content.DirectoryMemory {
	m = bounded(m)
	m.Replica, m.Place, m.Held, m.Away = d.cfg.Replica, placeOf(d.cfg.Dir), held, time.Time{}
	return m
}

// tellMemory returns the write that stores the memory, if it has changed.
func (d *Directory) tellMemory(ctx context.Context, held bool) ([]store.Write, error) {
	if d.memory.ID == "" || d.memory.ID != d.id {
		return nil, nil
	}
	key := keys.DirectoryMemory(d.memory.ID, d.cfg.Replica)
	before, err := store.Get(ctx, d.cfg.Store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return nil, errs.Wrap("source.tellMemory", err)
	}
	next := d.written(d.memory, held)
	if before.ModRev != 0 && sameMemory(before, next) {
		return nil, nil
	}
	return []store.Write{store.Replace(key, next, before.ModRev)}, nil
}

// had reports whether a template was ever seen in this directory, also before the start.
func (d *Directory) had(name string) bool {
	_, found := slices.BinarySearch(d.memory.Templates, name)
	return d.memory.ID == d.id && found
}

// remember records which of the published templates were seen in this directory. It does
// nothing for an empty directory without an ID.
func (d *Directory) remember(heads []content.TemplateHead) {
	if d.memory.Removed == nil {
		d.memory.Removed = map[string]time.Time{}
	}
	if d.id == "" {
		return
	}
	var names []string
	for _, head := range heads {
		name := head.TemplateRef.String()
		if _, seen := d.held[head.TemplateRef]; seen || d.had(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	d.memory.Templates = names
}

// bounded returns a memory cut to content.MaxRemembered entries.
func bounded(m content.DirectoryMemory) content.DirectoryMemory {
	m.Templates = m.Templates[:min(len(m.Templates), content.MaxRemembered)]
	if m.Removed = maps.Clone(m.Removed); len(m.Removed) > content.MaxRemembered {
		for _, name := range slices.Sorted(maps.Keys(m.Removed))[content.MaxRemembered:] {
			delete(m.Removed, name)
		}
	}
	return m
}

func sameMemory(a, b content.DirectoryMemory) bool {
	return a.ID == b.ID && a.Place == b.Place && a.Held == b.Held && a.Away.Equal(b.Away) && slices.Equal(a.Templates, b.Templates) && maps.EqualFunc(a.Removed, b.Removed, time.Time.Equal)
}
