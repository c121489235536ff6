package source

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/internal/origin"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

// look brings a source's templates up to date once, and tells what came of it. The
// error is why it is to be tried again.
func (r *Runner) look(ctx context.Context, s fleet.TemplateSource) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	fence, owned := r.fence(s.Name)
	if !owned {
		return nil
	}
	before, err := store.Get(ctx, r.cfg.Store, store.TemplateSourceStatusKey(s.Name))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return errs.Wrap("source.look", err)
	}
	after, failure := r.bring(ctx, s, before, fence)
	if errs.Is(failure, errs.Fenced) || errs.Is(failure, errs.Canceled) {
		return failure // another replica goes on, or this one ends: nothing to tell
	}
	if err := r.tell(ctx, before, after, fence); err != nil {
		return err
	}
	return failure
}

// bring is the source's next status; the error is what kept it from being in sync.
func (r *Runner) bring(ctx context.Context, s fleet.TemplateSource, before fleet.SourceStatus, fence store.Fence) (fleet.SourceStatus, error) {
	next := before
	next.Name, next.Observed, next.Message = s.Name, s.ModRev, ""
	if next.State = fleet.SourceInSync; s.Paused {
		next.State = fleet.SourcePaused
		return next, nil
	}
	fail := func(err error) (fleet.SourceStatus, error) {
		next.State, next.Message = fleet.SourceFailed, errs.MessageOf(err)
		return next, err
	}
	request, err := r.request(ctx, s, before)
	if err != nil {
		return fail(err)
	}
	fetch, ok := r.cfg.Kinds[s.Kind]
	if !ok {
		return fail(errs.New(errs.Invalid, "sources of kind %s are not known to this version of templatesvc: bring all replicas to one version", s.Kind))
	}
	holding, err := fetch(ctx, request)
	if err != nil || holding == nil {
		if err != nil {
			return fail(err)
		}
		return next, nil
	}
	if holding.Close != nil {
		defer holding.Close()
	}
	if err := origin.CheckCount(len(holding.Templates)); err != nil {
		return fail(err)
	}
	if next.Items, err = r.publish(ctx, s, holding, fence); err == nil && s.Declares {
		err = r.declare(ctx, s, holding, fence)
	}
	if err != nil {
		next.Revision = "" // all of it is brought again
		return fail(err)
	}
	next.Revision = holding.Revision
	return next, nil
}

// request asks for all of a source, or for what changed since it was last in sync.
func (r *Runner) request(ctx context.Context, s fleet.TemplateSource, before fleet.SourceStatus) (origin.Request, error) {
	request := origin.Request{Source: s, Spool: r.cfg.Spool}
	if s.Sealed != nil {
		plain, err := r.box.Open(s.Sealed)
		if err != nil {
			return request, err
		}
		if err := json.Unmarshal(plain, &request.Credentials); err != nil {
			return request, errs.New(errs.Invalid, "the source's credentials cannot be read: give them anew")
		}
	}
	if before.Observed != s.ModRev || before.State != fleet.SourceInSync {
		return request, nil
	}
	for _, item := range before.Items { // a head that somebody else removed is brought again
		head, err := r.cfg.Service.Head(ctx, item.Template)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return request, err
		}
		if err != nil || head.SourceDigest != item.Digest || !template.PublishedBy(head, s.Name) {
			return request, nil
		}
	}
	request.Seen = before.Revision
	return request, nil
}

// publish makes each template of a holding the head, and removes those that the
// source had before. One that cannot be published keeps no other.
func (r *Runner) publish(ctx context.Context, s fleet.TemplateSource, h *origin.Holding, fence store.Fence) ([]fleet.SourceItem, error) {
	published, err := r.cfg.Service.Published(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	if len(h.Templates)+len(h.Groups) == 0 {
		return nil, errs.New(errs.Invalid, "the source holds no template where it is looked for: look at its path; what was published stays")
	}
	var items []fleet.SourceItem
	var failure error
	held := map[fleet.TemplateRef]bool{}
	for _, t := range h.Templates {
		held[t.Ref] = true
		item := fleet.SourceItem{Template: t.Ref}
		head, err := r.one(ctx, s, h.Revision, t, fence)
		switch {
		case err == nil:
			item.Digest = head.SourceDigest
		case errs.Is(err, errs.Fenced), ctx.Err() != nil:
			return nil, err
		default:
			item.Message, failure = errs.MessageOf(err), err
		}
		items = append(items, item)
	}
	for _, ref := range published {
		if held[ref] {
			continue
		}
		if err := r.cfg.Service.Retract(ctx, ref, s.Name, fence); err != nil {
			return nil, err
		}
	}
	if failure != nil {
		failed := slices.DeleteFunc(slices.Clone(items), func(i fleet.SourceItem) bool { return i.Message == "" })
		failure = &errs.Error{Op: "source.publish", Kind: errs.KindOf(failure), Err: failure, Message: fmt.Sprintf(
			"%d of %d templates are not published, the first is %s: %s", len(failed), len(items), failed[0].Template, failed[0].Message)}
	}
	return items, failure
}

// one publishes one template.
func (r *Runner) one(ctx context.Context, s fleet.TemplateSource, revision string, t origin.Template, fence store.Fence) (fleet.TemplateHead, error) {
	p, err := r.cfg.Service.Begin(ctx, "source "+s.Name)
	if err != nil {
		return fleet.TemplateHead{}, err
	}
	defer p.Close(context.WithoutCancel(ctx))
	m, err := t.Manifest(ctx, func(content io.Reader, limit int64) (fleet.Content, error) { return p.Add(ctx, content, limit) })
	if err != nil {
		return fleet.TemplateHead{}, err
	}
	head, _, err := r.cfg.Service.PublishSource(ctx, p, t.Ref, m, template.Provenance{
		Origin: s.Name, Author: "source " + s.Name, Message: string(s.Kind) + " " + revision, Fences: []store.Fence{fence},
	})
	return head, err
}

// tell writes a status that differs from the one before.
func (r *Runner) tell(ctx context.Context, before, after fleet.SourceStatus, fence store.Fence) error {
	same := before.ModRev != 0 && before.Observed == after.Observed && before.State == after.State && before.Message == after.Message &&
		before.Revision == after.Revision && slices.Equal(before.Items, after.Items)
	if same {
		return nil
	}
	after.At = r.cfg.Now().UTC()
	_, err := r.cfg.Store.Commit(ctx, store.Txn{
		Fences: []store.Fence{fence},
		Guards: []store.Guard{store.Exists(store.TemplateSourceKey(after.Name))},
		Writes: []store.Write{store.Replace(store.TemplateSourceStatusKey(after.Name), after, before.ModRev)},
	})
	return errs.Wrap("source.tell", err)
}
