package declare

import (
	"context"
	"maps"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// forget removes the records of sources that are no more, and those of what was removed
// by an earlier commit of its source. They order nothing any more: what the former made
// stays, the latter is gone.
func (a *Applier) forget(ctx context.Context, k kind, declared []object, told map[string]fleet.DeclaredStatus, sources map[string]fleet.TemplateSource) error {
	orphans := maps.Clone(told)
	for _, d := range declared {
		name := d.Source + "/" + d.name
		st := told[name]
		delete(orphans, name)
		guard := store.Missing(store.TemplateSourceKey(d.Source))
		if s, ok := sources[d.Source]; ok {
			over, err := a.over(ctx, d, st)
			if err != nil {
				return err
			}
			if !over {
				continue
			}
			guard = store.Unchanged(store.TemplateSourceKey(d.Source), s.ModRev)
		}
		writes := []store.Write{d.remove}
		if st.ModRev != 0 {
			writes = append(writes, store.Remove(k.key(d.Source, d.name), st.ModRev))
		}
		if err := a.drop(ctx, guard, writes); err != nil {
			return err
		}
	}
	for _, st := range orphans {
		guard := k.missing(st.Source, st.Name())
		if err := a.drop(ctx, guard, []store.Write{store.Remove(k.key(st.Source, st.Name()), st.ModRev)}); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether a removal was carried out, and its source has come further since.
func (a *Applier) over(ctx context.Context, d object, st fleet.DeclaredStatus) (bool, error) {
	if !d.Removed || st.State != fleet.DeclaredRemoved || st.Observed != d.rev {
		return false, nil
	}
	source, err := store.Get(ctx, a.cfg.Store, store.TemplateSourceStatusKey(d.Source))
	if errs.Is(err, errs.NotFound) {
		return false, nil
	}
	return err == nil && source.State == fleet.SourceInSync && source.Revision != d.Commit, err
}

// drop removes records, unless something of it has changed: then the next look decides.
func (a *Applier) drop(ctx context.Context, guard store.Guard, writes []store.Write) error {
	_, err := a.cfg.Store.Commit(ctx, store.Txn{Guards: []store.Guard{guard}, Writes: writes})
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.AlreadyExists) || errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}
