// Package declare makes groups as the sources of templates declare them.
//
//	declared-groups/ ──changed, or every minute──▶ compare ──▶ write or delete the group
//	                                                  └──────▶ declared-status/
//
// Invariants: every write of a group compares the record that declares it, so that
// every gateway may work on all of them, and one that is late changes nothing; a group
// that a source did not make is never touched by it; a group goes only by a record that
// says so, never by one that is missing.
package declare

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// Config is what an Applier needs; all of it is required.
type Config struct {
	Store      *store.Client
	Operations *operate.Operations
	// Read understands a group in the words of /api/v1.
	Read func(name fleet.GroupName, body []byte) (operate.GroupWrite, error)
	// Every is between two looks though nothing changed: what somebody else changed of
	// a group is put back.
	Every time.Duration
	Log   *slog.Logger
}

// Applier makes groups as they are declared.
type Applier struct {
	cfg  Config
	wake chan struct{}
}

// New makes an applier.
func New(cfg Config) *Applier { return &Applier{cfg: cfg, wake: make(chan struct{}, 1)} }

// Reset implements store.Handler.
func (a *Applier) Reset([]store.KeyValue, int64) { a.ring() }

// Apply implements store.Handler.
func (a *Applier) Apply([]store.Change, int64) { a.ring() }

func (a *Applier) ring() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (a *Applier) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.cfg.Store.Follow(ctx, store.DeclaredGroups().String(), a) // ends with ctx
	}()
	defer func() { <-done }()
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
			a.cfg.Log.Warn("declared groups could not be looked at, trying again", "error", err)
		}
	}
}

// round looks at every declared group once.
func (a *Applier) round(ctx context.Context) error {
	declared, _, err := store.List(ctx, a.cfg.Store, store.DeclaredGroups())
	if err != nil {
		return err
	}
	statuses, _, err := store.List(ctx, a.cfg.Store, store.DeclaredStatuses())
	if err != nil || len(declared)+len(statuses) == 0 {
		return err
	}
	all, _, err := store.List(ctx, a.cfg.Store, store.TemplateSources())
	if err != nil {
		return err
	}
	sources := map[string]fleet.TemplateSource{}
	for _, s := range all {
		sources[s.Name] = s
	}
	before := map[string]fleet.DeclaredStatus{}
	for _, st := range statuses {
		before[st.Source+"/"+string(st.Group)] = st
	}
	if err := a.forget(ctx, declared, before, sources); err != nil {
		return err
	}
	for _, d := range declared {
		if s, ok := sources[d.Source]; !ok || s.Paused || !s.Declares {
			continue // the groups of a source that is no more stay, as its templates do
		}
		if err := a.one(ctx, d, before[d.Source+"/"+string(d.Group)], sources); err != nil {
			return err
		}
	}
	return nil
}

// one makes one group as it is declared and tells what came of it.
func (a *Applier) one(ctx context.Context, d fleet.DeclaredGroup, before fleet.DeclaredStatus, sources map[string]fleet.TemplateSource) error {
	next := before
	next.Source, next.Group, next.Observed, next.Message = d.Source, d.Group, d.ModRev, ""
	state, err := a.make(ctx, d, sources)
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
		Guards: []store.Guard{store.Unchanged(store.DeclaredGroupKey(d.Source, d.Group), d.ModRev)},
		Writes: []store.Write{store.Replace(store.DeclaredStatusKey(d.Source, d.Group), next, before.ModRev)},
	})
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.AlreadyExists) {
		return nil // another gateway told it, or the record changed and is looked at again
	}
	return err
}

func (a *Applier) make(ctx context.Context, d fleet.DeclaredGroup, sources map[string]fleet.TemplateSource) (fleet.DeclaredState, error) {
	by := operate.Actor{User: "gitops " + d.Source}
	group, exists := a.cfg.Operations.Snapshot().Groups.Get(d.Group)
	if exists {
		if err := mine(*group, d.Source, sources); err != nil {
			return fleet.DeclaredConflict, err
		}
	}
	declared := store.Unchanged(store.DeclaredGroupKey(d.Source, d.Group), d.ModRev)
	switch {
	case d.Removed && !exists:
		return fleet.DeclaredRemoved, nil
	case d.Removed && group.Deleting:
		return fleet.DeclaredRemoving, nil
	case d.Removed:
		source := store.Unchanged(store.TemplateSourceKey(d.Source), sources[d.Source].ModRev)
		if _, err := a.cfg.Operations.DeleteGroup(ctx, by, d.Group, group.ModRev, false, declared, source); err != nil {
			return "", err
		}
		return fleet.DeclaredRemoving, nil
	}
	w, err := a.cfg.Read(d.Group, d.Spec)
	if err != nil {
		return "", errs.New(errs.KindOf(err), "%s: %s", d.File, sentence(err))
	}
	w.Mode, w.ManagedBy, w.Guards = operate.Create, d.Source, []store.Guard{declared}
	w.Shown = fleet.VisibleToAdmins // whoever writes to the repository writes all of the group
	if exists {
		w.Mode, w.IfMatch = operate.Put, group.ModRev
	}
	if _, err := a.cfg.Operations.WriteGroup(ctx, by, w); lostRace(err) {
		return "", err
	} else if err != nil {
		return "", errs.New(errs.KindOf(err), "%s: %s", d.File, sentence(err))
	}
	return fleet.DeclaredInSync, nil
}

// lostRace reports whether a group was made or changed by somebody else since it was looked at.
func lostRace(err error) bool {
	var moved *operate.MovedError
	return errors.As(err, &moved) || errs.Is(err, errs.AlreadyExists)
}

// mine refuses a group that is not the source's. What a source made that is no more
// may be taken over.
func mine(g fleet.Group, source string, sources map[string]fleet.TemplateSource) error {
	_, owned := sources[g.ManagedBy]
	switch {
	case g.ManagedBy == source:
		return nil
	case g.ManagedBy == "":
		return errs.New(errs.Conflict, "the group was made through the API: delete it, or take its file out of the repository")
	case owned:
		return errs.New(errs.Conflict, "the group is declared by source %s too: keep one of the files", g.ManagedBy)
	}
	return nil
}

// sentence is an error's message with the field it blames.
func sentence(err error) string {
	if field := errs.FieldOf(err); field != "" {
		return field + " " + errs.MessageOf(err)
	}
	return errs.MessageOf(err)
}
