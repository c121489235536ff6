package source

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// recall reads, once, what this replica told of the directory before it was started, and
// takes over what others told that are no more and were in the very same place: a replica
// that is started under another name is one of those.
func (d *Directory) recall(ctx context.Context) error {
	if d.id == "" {
		return nil
	}
	told, _, err := store.List(ctx, d.store, store.DirectoryMemoriesOf(d.id))
	if err != nil {
		return errs.Wrap("source.recall", err)
	}
	own := fleet.DirectoryMemory{ID: d.id}
	for _, m := range told {
		if m.Replica == d.replica {
			own = m
			own.Removed = d.seenNow(m.Removed)
		}
	}
	if d.memory.ID != d.id {
		d.memory, d.holding = own, own.Held
	}
	place := placeOf(d.dir)
	for _, m := range told {
		if m.Replica == d.replica || m.Place != place || place == "" {
			continue
		}
		if own.ModRev, err = d.takeOver(ctx, m, own.ModRev); err != nil {
			return errs.Wrap("source.recall", err)
		}
	}
	return nil
}

// takeOver adds what a replica remembered to what this one does, and has it removed,
// unless that replica lives. rev is where this one's own memory was written last.
func (d *Directory) takeOver(ctx context.Context, m fleet.DirectoryMemory, rev int64) (int64, error) {
	session := store.SessionKey("templatesvc", m.Replica)
	if _, err := store.Get(ctx, d.store, session); !errs.Is(err, errs.NotFound) {
		return rev, err
	}
	next := d.memory
	next.Templates = slices.Concat(next.Templates, m.Templates)
	slices.Sort(next.Templates)
	next.Templates = slices.Compact(next.Templates)
	next.Removed = d.seenNow(m.Removed)
	maps.Copy(next.Removed, d.memory.Removed)
	next.Held = next.Held || m.Held
	at, err := d.store.Commit(ctx, store.Txn{
		Guards: []store.Guard{store.Missing(session)},
		Writes: []store.Write{
			store.Remove(store.DirectoryMemoryKey(m.ID, m.Replica), m.ModRev),
			store.Replace(store.DirectoryMemoryKey(m.ID, d.replica), d.written(next, next.Held), rev),
		},
	})
	switch {
	case errs.Is(err, errs.Conflict), errs.Is(err, errs.AlreadyExists): // it lives, or another one was faster
		return rev, nil
	case err != nil:
		return rev, err
	}
	d.memory, d.holding = next, d.holding || m.Held
	return at, nil
}

// seenNow are removals that count from now on. The process that stored them may have had
// another clock.
func (d *Directory) seenNow(removed map[string]time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	for name := range removed {
		out[name] = d.now().UTC()
	}
	return out
}

// written is a memory as it is told.
func (d *Directory) written(m fleet.DirectoryMemory, held bool) fleet.DirectoryMemory {
	m = bounded(m)
	m.Replica, m.Place, m.Held, m.Away = d.replica, placeOf(d.dir), held, time.Time{}
	return m
}

// tellMemory is the write of what is remembered, when that has changed.
func (d *Directory) tellMemory(ctx context.Context, held bool) ([]store.Write, error) {
	if d.memory.ID == "" || d.memory.ID != d.id {
		return nil, nil
	}
	key := store.DirectoryMemoryKey(d.memory.ID, d.replica)
	before, err := store.Get(ctx, d.store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return nil, errs.Wrap("source.tellMemory", err)
	}
	next := d.written(d.memory, held)
	if before.ModRev != 0 && sameMemory(before, next) {
		return nil, nil
	}
	return []store.Write{store.Replace(key, next, before.ModRev)}, nil
}

// had reports whether a template was seen in this directory, maybe before the start.
func (d *Directory) had(name string) bool {
	_, found := slices.BinarySearch(d.memory.Templates, name)
	return d.memory.ID == d.id && found
}

// remember notes which of the templates that have a head were seen in this directory. Of
// a place where nothing is, there is nothing to note.
func (d *Directory) remember(heads []fleet.TemplateHead) {
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

// bounded is as much of a memory as is told.
func bounded(m fleet.DirectoryMemory) fleet.DirectoryMemory {
	m.Templates = m.Templates[:min(len(m.Templates), fleet.MaxRemembered)]
	if m.Removed = maps.Clone(m.Removed); len(m.Removed) > fleet.MaxRemembered {
		for _, name := range slices.Sorted(maps.Keys(m.Removed))[fleet.MaxRemembered:] {
			delete(m.Removed, name)
		}
	}
	return m
}

func sameMemory(a, b fleet.DirectoryMemory) bool {
	return a.ID == b.ID && a.Place == b.Place && a.Held == b.Held && a.Away.Equal(b.Away) && slices.Equal(a.Templates, b.Templates) && maps.EqualFunc(a.Removed, b.Removed, time.Time.Equal)
}
