package declaring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/command"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/manifest"
	"github.com/orreryhq/orrery/cli/internal/manifest/objects"
	orrery "github.com/orreryhq/orrery/sdk"
)

// confirmPrune returns the objects that were applied and are in no document. It shows what their
// deletion does and asks.
func (r *applier) confirmPrune(ctx context.Context) ([]*result, error) {
	var kindsOfInput []*kinds.Kind
	keep := map[string]bool{}
	for _, d := range r.documents {
		keep[d.Key()] = true
		if !d.Object().Joins && !slices.Contains(kindsOfInput, d.Object()) {
			kindsOfInput = append(kindsOfInput, d.Object())
		}
	}
	var plurals []string
	var stale []*result
	for _, kind := range kindsOfInput {
		plurals = append(plurals, kind.Plural)
		found, err := r.staleOf(ctx, kind, keep)
		if err != nil {
			return nil, err
		}
		stale = append(found, stale...) // what refers to others is deleted first
	}
	if len(plurals) == 0 {
		r.app.Notef("nothing to prune: the input has only objects that join by themselves")
		return nil, nil
	}
	if len(stale) == 0 {
		r.app.Notef("nothing to prune among the kinds in the input: %s", strings.Join(plurals, ", "))
		return nil, nil
	}
	r.app.Notef("prune deletes %s that anybody applied and that are not in the input, also those of other files", strings.Join(plurals, ", "))
	if err := r.preview(stale); err != nil || r.dryRun || r.yes {
		return stale, err
	}
	return stale, r.app.Confirm("delete "+pruned(stale)+"?", "--yes")
}

// pruned names the objects for the question.
func pruned(stale []*result) string {
	var names []string
	for _, res := range stale {
		names = append(names, res.String())
	}
	if len(stale) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%d objects (%s)", len(stale), command.FirstNames(names))
}

// preview shows what deletions do. It is part of the output of a dry run, and otherwise of the question.
func (r *applier) preview(stale []*result) error {
	if !r.printer.Format.ForPeople() || r.yes && !r.dryRun {
		return nil
	}
	to := *r.app
	if !r.dryRun {
		to.Out, to.Width = r.app.Err, 0
	}
	for _, res := range stale {
		if err := describe(&to, res); err != nil {
			return err
		}
	}
	return nil
}

// staleOf returns the objects of a kind to prune, with what the server says about their deletion.
func (r *applier) staleOf(ctx context.Context, kind *kinds.Kind, keep map[string]bool) ([]*result, error) {
	applied, err := r.Remembered(ctx, kind)
	if err != nil {
		return nil, err
	}
	var out []*result
	parents := map[string]string{}
	preview := objects.Remote{Client: r.Client, DryRun: true}
	for _, name := range slices.Sorted(maps.Keys(applied)) {
		if keep[manifest.Key(kind, name)] {
			continue
		}
		live, err := r.Get(ctx, objects.Ref{Kind: kind, Name: name})
		if err != nil {
			return nil, err
		}
		if live == nil {
			continue
		}
		labels, _ := live.Fields["labels"].(objects.Fields) // kinds without labels match an empty selector only
		if len(r.selector) > 0 && (live.Fields["labels"] == nil || !r.selector.Matches(labels)) {
			continue
		}
		parents[name], _ = live.Fields["parent"].(string)
		answer, err := preview.Delete(ctx, objects.Ref{Kind: kind, Name: name})
		by := applied[name]
		res := &result{Kind: kind.Name, Name: name, Action: deleted, Notes: []string{fmt.Sprintf("%s applied it, last at %s", by.By, kinds.Moment(by.At))}}
		switch {
		case errors.Is(err, orrery.ErrConflict), errors.Is(err, orrery.ErrInvalid): // what refers to it may be deleted before
			res.Notes = append(res.Notes, err.Error())
		case err != nil:
			return nil, fmt.Errorf("%s %s: %w", kind.Name, name, err)
		default:
			res.effects(kind, &objects.Object{}, answer)
			res.Action, res.Changes = deleted, nil
		}
		out = append(out, res)
	}
	// Children are deleted before their parents.
	slices.SortStableFunc(out, func(a, b *result) int { return depth(parents, b.Name) - depth(parents, a.Name) })
	return out, nil
}

// depth returns how many groups to be pruned are above one.
func depth(parents map[string]string, name string) int {
	n := 0
	for parent, ok := parents[name]; ok && parent != "" && n <= len(parents); parent, ok = parents[parent] {
		n++
	}
	return n
}

// deleteAll deletes objects, unless something before has failed.
func (r *applier) deleteAll(ctx context.Context, stale []*result, before error) error {
	if before != nil {
		r.app.Notef("nothing was pruned, because not everything was applied")
		return before
	}
	for _, res := range stale {
		_, err := r.Delete(ctx, objects.Ref{Kind: kinds.Get(res.Kind), Name: res.Name})
		if errors.Is(err, orrery.ErrNotFound) {
			err = nil
		}
		if res.err = err; err != nil {
			res.Action, res.Error = failed, err.Error()
		}
		r.results = append(r.results, res)
		r.failures.Add(r.app, res.String(), err)
		if !r.printer.Format.ForPeople() {
			continue
		}
		if err := r.app.Linef("%s %s", res, res.Action); err != nil {
			return err
		}
	}
	return r.failures.Err()
}
