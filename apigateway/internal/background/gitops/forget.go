package gitops

import (
	"context"
	"maps"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// forget removes the declarations of deleted sources, whose objects stay, and those of objects
// that were removed by an earlier commit of their source.
func (a *Applier) forget(ctx context.Context, k kind, declared []object, statuses map[string]compose.DeclaredStatus, sources map[string]content.TemplateSource) error {
	orphans := maps.Clone(statuses)
	for _, d := range declared {
		name := d.Source + "/" + d.name
		st := statuses[name]
		delete(orphans, name)
		guard := store.Missing(keys.TemplateSource(d.Source))
		if s, ok := sources[d.Source]; ok {
			done, err := a.removalDone(ctx, d, st)
			if err != nil {
				return err
			}
			if !done {
				continue
			}
			guard = store.Unchanged(keys.TemplateSource(d.Source), s.ModRev)
		}
		writes := []store.Write{d.remove}
		if st.ModRev != 0 {
			writes = append(writes, store.Remove(k.key(d.Source, d.name), st.ModRev))
		}
		if err := a.removeRecords(ctx, guard, writes); err != nil {
			return err
		}
	}
	for _, st := range orphans {
		guard := k.missing(st.Source, st.Name())
		if err := a.removeRecords(ctx, guard, []store.Write{store.Remove(k.key(st.Source, st.Name()), st.ModRev)}); err != nil {
			return err
		}
	}
	return nil
}

// removalDone reports whether a removal was carried out and its source has synced a later commit.
func (a *Applier) removalDone(ctx context.Context, d object, st compose.DeclaredStatus) (bool, error) {
	if !d.Removed || st.State != compose.DeclaredRemoved || st.Observed != d.rev {
		return false, nil
	}
	source, err := store.Get(ctx, a.cfg.Store, keys.TemplateSourceStatus(d.Source))
	if errs.Is(err, errs.NotFound) {
		return false, nil
	}
	return err == nil && source.State == content.SourceInSync && source.Revision != d.Commit, err
}

// removeRecords removes records unless one has changed. In that case the next run decides.
func (a *Applier) removeRecords(ctx context.Context, guard store.Guard, writes []store.Write) error {
	_, err := a.cfg.Store.Commit(ctx, store.Txn{Guards: []store.Guard{guard}, Writes: writes})
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.AlreadyExists) || errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}
