// Package declare makes groups and entries of the catalog as the sources of templates
// declare them.
//
//	declared-groups/  ─┬─changed, or every minute──▶ compare ──▶ write or delete what is declared
//	declared-catalog/ ─┘                                └──────▶ declared-status/, declared-catalog-status/
//
// What these wait for is followed too: sources and how they stand, and what goes of the
// groups and the catalog. The minute is for what is lost, and what others changed.
//
// Invariants: every write compares the record that declares it, so that every gateway
// may work on all of them, and one that is late changes nothing; what a source did not
// make is never touched by it; something goes only by a record that says so, never by
// one that is missing.
package declare

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config is what an Applier needs; all of it is required.
type Config struct {
	Store      *store.Client
	Operations *operate.Operations
	// ReadGroup and ReadVersion understand a group, and a version of the catalog, in the
	// words of /api/v1; ReadConfiguration a group in those of the older dialect.
	ReadGroup         func(name fleet.GroupName, body []byte) (operate.GroupWrite, error)
	ReadConfiguration func(name fleet.GroupName, body []byte) (operate.GroupWrite, error)
	ReadVersion       func(version string, body []byte) (fleet.CatalogVersion, error)
	// Every is between two looks though nothing changed: what somebody else changed is
	// put back.
	Every time.Duration
	Log   *slog.Logger
}

// Applier makes groups and entries of the catalog as they are declared.
type Applier struct {
	cfg  Config
	wake chan struct{}
}

// New makes an applier; its Hear is to be subscribed to the view of its operations.
func New(cfg Config) *Applier { return &Applier{cfg: cfg, wake: make(chan struct{}, 1)} }

// Reset implements store.Handler.
func (a *Applier) Reset([]store.KeyValue, int64) { a.ring() }

// Apply implements store.Handler.
func (a *Applier) Apply([]store.Change, int64) { a.ring() }

// Hear wakes the applier when something goes that something else may wait for. Other
// changes wait for the minute: gateways of two versions that understand a file otherwise
// would put back what the other made without a pause.
func (a *Applier) Hear(b view.Batch) {
	if slices.ContainsFunc(b.Changes, frees) {
		a.ring()
	}
}

// frees reports whether a name, or a version of the catalog, is free by a change.
func frees(c view.Change) bool {
	switch before := c.Before.(type) {
	case *fleet.Group:
		after, _ := c.After.(*fleet.Group)
		return after == nil || after.Deleting != before.Deleting || runs(after) != runs(before)
	case *fleet.CatalogPlatform:
		after, _ := c.After.(*fleet.CatalogPlatform)
		return after == nil || len(after.Versions) < len(before.Versions)
	}
	return false
}

// runs is which entry of the catalog a group asks for.
func runs(g *fleet.Group) string {
	return g.Spec.Software.Platform + "/" + g.Spec.Software.PlatformVersion
}

func (a *Applier) ring() {
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
		store.DeclaredGroups().String(), store.DeclaredCatalog().String(), store.TemplateSources().String(), store.TemplateSourceStatuses().String(),
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
		if err := a.round(ctx); err != nil && ctx.Err() == nil {
			a.cfg.Log.Warn("what sources declare could not be looked at, trying again", "error", err)
		}
	}
}

// round looks at everything declared once.
func (a *Applier) round(ctx context.Context) error {
	kinds := []kind{a.catalog(), a.groups()} // what groups run is there before them, and goes after them
	declared, told := make([][]object, len(kinds)), make([]map[string]fleet.DeclaredStatus, len(kinds))
	records := 0
	for i, k := range slices.Backward(kinds) { // a source writes in their order: what comes first is listed when what needs it is
		var err error
		if declared[i], err = k.list(ctx); err != nil {
			return err
		}
		statuses, _, err := store.List(ctx, a.cfg.Store, k.told)
		if err != nil {
			return err
		}
		told[i] = map[string]fleet.DeclaredStatus{}
		for _, st := range statuses {
			told[i][st.Source+"/"+st.Name()] = st
		}
		records += len(declared[i]) + len(statuses)
	}
	if records == 0 {
		return nil
	}
	all, _, err := store.List(ctx, a.cfg.Store, store.TemplateSources())
	if err != nil {
		return err
	}
	sources := map[string]fleet.TemplateSource{}
	for _, s := range all {
		sources[s.Name] = s
	}
	for i, k := range kinds {
		if err := a.forget(ctx, k, declared[i], told[i], sources); err != nil {
			return err
		}
	}
	for i, k := range kinds {
		if err := a.each(ctx, k, declared[i], false, told[i], sources); err != nil {
			return err
		}
	}
	for i, k := range slices.Backward(kinds) { // what goes is not relied on any more
		if err := a.each(ctx, k, declared[i], true, told[i], sources); err != nil {
			return err
		}
	}
	return nil
}

// each makes everything of one kind, or removes it.
func (a *Applier) each(ctx context.Context, k kind, declared []object, removed bool, told map[string]fleet.DeclaredStatus, sources map[string]fleet.TemplateSource) error {
	for _, d := range declared {
		if s, ok := sources[d.Source]; d.Removed != removed || !ok || s.Paused || !s.Declares {
			continue // what a source made that is no more stays, as its templates do
		}
		if err := a.one(ctx, k, d, told[d.Source+"/"+d.name], sources); err != nil {
			return err
		}
	}
	return nil
}

// one makes one thing as it is declared and tells what came of it.
func (a *Applier) one(ctx context.Context, k kind, d object, before fleet.DeclaredStatus, sources map[string]fleet.TemplateSource) error {
	next := k.status(d.name)
	next.Rev, next.Source, next.Observed = before.Rev, d.Source, d.rev
	state, err := k.make(ctx, d, sources)
	switch {
	case ctx.Err() != nil, errs.Is(err, errs.Unavailable):
		return err
	case lostRace(err):
		return nil // whoever won tells, and the next look sees what came of it
	case err != nil && state == "":
		state = fleet.DeclaredFailed
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
		return nil // another gateway told it, or the record changed and is looked at again
	}
	return err
}

// lostRace reports whether something was made or changed by somebody else since it was looked at.
func lostRace(err error) bool {
	var moved *operate.MovedError
	return errors.As(err, &moved) || errs.Is(err, errs.AlreadyExists)
}

// mine refuses what is not the source's. What a source made that is no more may be taken
// over.
func mine(noun, managedBy, source string, sources map[string]fleet.TemplateSource) error {
	_, owned := sources[managedBy]
	switch {
	case managedBy == source:
		return nil
	case managedBy == "":
		return errs.New(errs.Conflict, "the %s was made through the API: delete it, or take it out of the repository", noun)
	case owned:
		return errs.New(errs.Conflict, "the %s is declared by source %s too: keep one of the files", noun, managedBy)
	}
	return nil
}

// sentence is an error's message with the field it blames, which some begin with.
func sentence(err error) string {
	field, message := errs.FieldOf(err), errs.MessageOf(err)
	if field == "" || strings.HasPrefix(message, field+" ") {
		return message
	}
	return field + " " + message
}
