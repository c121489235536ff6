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

// recall reads, once, what this replica told before it was started.
func (d *Directory) recall(ctx context.Context) error {
	if d.recalled {
		return nil
	}
	told, err := store.Get(ctx, d.store, store.TemplateDirectoryKey(d.replica))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return errs.Wrap("source.recall", err)
	}
	d.memory, d.holding, d.recalled = told.Memory, told.State == fleet.SourceHeld, true
	return nil
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
	if d.memory.Templates = names; d.memory.ID != d.id {
		d.memory.ID, d.memory.Removed = d.id, map[string]time.Time{}
	}
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
	return a.ID == b.ID && slices.Equal(a.Templates, b.Templates) && maps.EqualFunc(a.Removed, b.Removed, time.Time.Equal)
}
