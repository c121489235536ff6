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

// fewRemoved is how many groups a source may always remove at once; more only when
// they are at most half of what it declares.
const fewRemoved = 4

// declare records the groups that a source wants, and orders the removal of those whose
// files are gone. Conflict when that would be most of many, until it is confirmed.
func (r *Runner) declare(ctx context.Context, s fleet.TemplateSource, h *origin.Holding, fence store.Fence) error {
	present, _, err := store.List(ctx, r.cfg.Store, store.DeclaredGroupsOf(s.Name))
	if err != nil {
		return errs.Wrap("source.declare", err)
	}
	wanted := map[fleet.GroupName]fleet.DeclaredGroup{}
	for _, g := range h.Groups {
		g.Source, g.Commit = s.Name, h.Revision
		wanted[g.Group] = g
	}
	var writes []store.Write
	removed, declared := 0, 0
	for _, old := range present {
		if !old.Removed {
			declared++
		}
		next, ok := wanted[old.Group]
		delete(wanted, old.Group)
		switch {
		case ok && !old.Removed && old.File == next.File && bytes.Equal(old.Spec, next.Spec), !ok && old.Removed:
			continue
		case !ok:
			removed++
			next = old
			next.Removed, next.Commit = true, h.Revision
		}
		writes = append(writes, store.Replace(store.DeclaredGroupKey(s.Name, old.Group), next, old.ModRev))
	}
	if removed > fewRemoved && removed > declared/2 && s.Confirmed != h.Revision {
		return errs.New(errs.Conflict, "held: %d of %d groups would be removed; if that is meant, ask for a sync with {\"confirm\": \"%s\"}", removed, declared, h.Revision)
	}
	for _, next := range wanted {
		writes = append(writes, store.Create(store.DeclaredGroupKey(s.Name, next.Group), next))
	}
	for part := range slices.Chunk(writes, 2) { // two specs of the largest size fit one transaction
		if _, err := r.cfg.Store.Commit(ctx, store.Txn{Fences: []store.Fence{fence}, Writes: part}); err != nil {
			return errs.Wrap("source.declare", err)
		}
	}
	return nil
}
