// Package gitops applies the groups and catalog entries that template sources declare.
//
//	declared-groups/  ─┬─changed, or every minute──▶ compare ──▶ write or delete the object
//	declared-catalog/ ─┘                                └──────▶ declared-status/, declared-catalog-status/
//
// Changes of sources and their statuses also start a run, and so do removed groups and catalog
// versions. The run every minute covers missed notifications and undoes changes made elsewhere.
//
// Invariants: every write is conditional on the declaration's record, so all gateways may work on
// the same objects and a late one changes nothing. A source never changes objects that it did not
// create. An object is removed only because of a record that says so, never because one is missing.
package gitops

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config has what an Applier needs. All fields are required.
type Config struct {
	Store      *store.Client
	Operations *ops.Operations
	// ReadGroup and ReadVersion parse a group and a catalog version in the format of /api/v1.
	// ReadConfiguration parses a group in the Universe format.
	ReadGroup         func(name fleet.GroupName, body []byte) (groupops.GroupWrite, error)
	ReadConfiguration func(name fleet.GroupName, body []byte) (groupops.GroupWrite, error)
	ReadVersion       func(version string, body []byte) (content.CatalogVersion, error)
	// Every is the period of runs without a trigger. They undo changes that others made to
	// declared objects.
	Every time.Duration
	Log   *slog.Logger
}

// Applier creates, updates and removes declared groups and catalog entries.
type Applier struct {
	cfg  Config
	wake chan struct{}
}

// New returns an Applier. Subscribe its OnBatch to the view of Operations.
func New(cfg Config) *Applier { return &Applier{cfg: cfg, wake: make(chan struct{}, 1)} }

// Reset implements store.Handler.
func (a *Applier) Reset([]store.KeyValue, int64) { a.wakeUp() }

// Apply implements store.Handler.
func (a *Applier) Apply([]store.Change, int64) { a.wakeUp() }

// OnBatch starts a run when a change may unblock another object. Other changes wait for the
// periodic run: two gateways of different versions that parse a file differently would
// otherwise undo each other's writes without a pause.
func (a *Applier) OnBatch(b view.Batch) {
	if slices.ContainsFunc(b.Changes, unblocks) {
		a.wakeUp()
	}
}

// unblocks reports whether a change unblocks a group name or a catalog version.
func unblocks(c view.Change) bool {
	switch before := c.Before.(type) {
	case *fleet.Group:
		after, _ := c.After.(*fleet.Group)
		return after == nil || after.Deleting != before.Deleting || software(after) != software(before)
	case *content.CatalogPlatform:
		after, _ := c.After.(*content.CatalogPlatform)
		return after == nil || len(after.Versions) < len(before.Versions)
	}
	return false
}

// software returns the catalog entry that a group uses.
func software(g *fleet.Group) string {
	return g.Spec.Software.Platform + "/" + g.Spec.Software.PlatformVersion
}

func (a *Applier) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (a *Applier) Run(ctx context.Context) {
	var following sync.WaitGroup
	defer following.Wait()
	for _, prefix := range []string{
		keys.DeclaredGroups().String(), keys.DeclaredCatalog().String(), keys.TemplateSources().String(), keys.TemplateSourceStatuses().String(),
	} {
		following.Go(func() { _ = a.cfg.Store.Follow(ctx, prefix, a) }) // ends with ctx
	}
	tick := time.NewTicker(a.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-tick.C:
		}
		if err := a.applyAll(ctx); err != nil && ctx.Err() == nil {
			a.cfg.Log.Warn("cannot apply declared objects; retrying", "error", err)
		}
	}
}

// applyAll applies all declared objects once.
func (a *Applier) applyAll(ctx context.Context) error {
	kinds := []kind{a.catalog(), a.groups()} // groups need catalog entries: create those first, remove them last
	declared, statuses := make([][]object, len(kinds)), make([]map[string]compose.DeclaredStatus, len(kinds))
	records := 0
	for i, k := range slices.Backward(kinds) { // a source writes the catalog first: if a group is listed, so is its catalog entry
		var err error
		if declared[i], err = k.list(ctx); err != nil {
			return err
		}
		stored, _, err := store.List(ctx, a.cfg.Store, k.statuses)
		if err != nil {
			return err
		}
		statuses[i] = map[string]compose.DeclaredStatus{}
		for _, st := range stored {
			statuses[i][st.Source+"/"+st.Name()] = st
		}
		records += len(declared[i]) + len(stored)
	}
	if records == 0 {
		return nil
	}
	all, _, err := store.List(ctx, a.cfg.Store, keys.TemplateSources())
	if err != nil {
		return err
	}
	sources := map[string]content.TemplateSource{}
	for _, s := range all {
		sources[s.Name] = s
	}
	for i, k := range kinds {
		if err := a.forget(ctx, k, declared[i], statuses[i], sources); err != nil {
			return err
		}
	}
	for i, k := range kinds {
		if err := a.applyKind(ctx, k, declared[i], false, statuses[i], sources); err != nil {
			return err
		}
	}
	for i, k := range slices.Backward(kinds) { // removed groups no longer use the catalog entries
		if err := a.applyKind(ctx, k, declared[i], true, statuses[i], sources); err != nil {
			return err
		}
	}
	return nil
}

// applyKind applies all objects of one kind, or removes them.
func (a *Applier) applyKind(ctx context.Context, k kind, declared []object, removed bool, statuses map[string]compose.DeclaredStatus, sources map[string]content.TemplateSource) error {
	for _, d := range declared {
		if s, ok := sources[d.Source]; d.Removed != removed || !ok || s.Paused || !s.Declares {
			continue // objects of a deleted source stay, like its templates
		}
		if err := a.apply(ctx, k, d, statuses[d.Source+"/"+d.name], sources); err != nil {
			return err
		}
	}
	return nil
}

// apply applies one declared object and stores its status.
func (a *Applier) apply(ctx context.Context, k kind, d object, before compose.DeclaredStatus, sources map[string]content.TemplateSource) error {
	next := k.status(d.name)
	next.Rev, next.Source, next.Observed = before.Rev, d.Source, d.rev
	state, err := k.make(ctx, d, sources)
	switch {
	case ctx.Err() != nil, errs.Is(err, errs.Unavailable):
		return err
	case lostRace(err):
		return nil // the other gateway stores the status, and the next run sees it
	case err != nil && state == "":
		state = compose.DeclaredFailed
	}
	if next.State = state; err != nil {
		next.Message = errs.MessageOf(err)
	}
	if next == before {
		return nil
	}
	_, err = a.cfg.Store.Commit(ctx, store.Txn{
		Guards: []store.Guard{d.unchanged},
		Writes: []store.Write{store.Replace(k.key(d.Source, d.name), next, before.ModRev)},
	})
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.AlreadyExists) {
		return nil // another gateway stored it, or the record changed and the next run handles it
	}
	return err
}

// lostRace reports whether the object was created or changed by another writer since it was read.
func lostRace(err error) bool {
	var moved *txn.MovedError
	return errors.As(err, &moved) || errs.Is(err, errs.AlreadyExists)
}

// checkOwner returns Conflict if the object belongs to the API or to another existing source. Objects
// of a deleted source may be taken over.
func checkOwner(noun, managedBy, source string, sources map[string]content.TemplateSource) error {
	_, owned := sources[managedBy]
	switch {
	case managedBy == source:
		return nil
	case managedBy == "":
		return errs.New(errs.Conflict, "the %s was created through the API: delete it, or remove it from the repository", noun)
	case owned:
		return errs.New(errs.Conflict, "the %s is declared by source %s too: keep only one of the files", noun, managedBy)
	}
	return nil
}

// sentence returns an error's message, prefixed with its field unless the message starts with it.
func sentence(err error) string {
	field, message := errs.FieldOf(err), errs.MessageOf(err)
	if field == "" || strings.HasPrefix(message, field+" ") {
		return message
	}
	return field + " " + message
}
