package directory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

// look brings a source's templates up to date once and writes the source's status. gone is
// what was missing at the previous looks; look updates it. If look returns an error, the
// caller tries again.
func (r *Runner) look(ctx context.Context, s content.TemplateSource, gone *absence) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	fence, owned := r.fence(s.Name)
	if !owned {
		return nil
	}
	before, err := store.Get(ctx, r.cfg.Store, keys.TemplateSourceStatus(s.Name))
	if err != nil && !errs.Is(err, errs.NotFound) {
		return errs.Wrap("source.look", err)
	}
	after, failure := r.bring(ctx, s, before, fence, gone)
	if errs.Is(failure, errs.Fenced) || errs.Is(failure, errs.Canceled) {
		return failure // another replica has taken over or this one is stopping, so there is nothing to report
	}
	if failure == nil && !s.Paused {
		after.Asked = s.Asked
	}
	if err := r.tell(ctx, before, after, fence); err != nil {
		return err
	}
	return failure
}

// bring returns the source's next status, and the error if the source is not in sync. It
// decides about removals before it publishes anything, and carries them out last.
func (r *Runner) bring(ctx context.Context, s content.TemplateSource, before content.SourceStatus, fence store.Fence, gone *absence) (content.SourceStatus, error) {
	next, last := before, *gone
	*gone = absence{} // kept only if the source is read completely
	next.Name, next.Observed, next.Message, next.Held = s.Name, s.ModRev, "", ""
	if next.State = content.SourceInSync; s.Paused {
		next.State = content.SourcePaused
		return next, nil
	}
	fail := func(err error) (content.SourceStatus, error) {
		next.State, next.Message = content.SourceFailed, errs.MessageOf(err)
		return next, err
	}
	request, err := r.request(ctx, s, before)
	if err != nil {
		return fail(err)
	}
	fetch, ok := r.cfg.Kinds[s.Kind]
	if !ok {
		return fail(errs.New(errs.Invalid, "this version of templatesvc does not support sources of kind %s: run the same version in all replicas", s.Kind))
	}
	holding, err := fetch(ctx, request)
	switch {
	case err != nil:
		return fail(err)
	case holding == nil:
		next.State, next.Message, next.Held = before.State, before.Message, before.Held
		return next, nil
	case holding.Close != nil:
		defer holding.Close()
	}
	p, err := r.plan(ctx, s, before, holding, last)
	if err != nil {
		return fail(err)
	}
	*gone = p.gone
	waiting := p.waiting(holding.Revision)
	if next.Message = p.tell(waiting); p.held() {
		next.State, next.Held = content.SourceHeld, waiting
		return next, nil
	}
	next.Place = p.place
	if next.Items, err = r.apply(ctx, s, holding, p, fence); err != nil {
		next.Revision = "" // the next look fetches everything again
		return fail(err)
	}
	if next.Revision = holding.Revision; next.Message != "" {
		next.State, next.Held = content.SourceHeld, waiting
	}
	return next, nil
}

// request asks for the whole source, or only for changes since the last successful look.
func (r *Runner) request(ctx context.Context, s content.TemplateSource, before content.SourceStatus) (sources.Request, error) {
	request := sources.Request{Source: s, Spool: r.cfg.Spool, At: before.Place, Attended: attended(s, before), Dialer: r.cfg.Dialer}
	if s.Sealed != nil {
		plain, err := r.box.Open(s.Sealed)
		if err != nil {
			return request, err
		}
		if err := json.Unmarshal(plain, &request.Credentials); err != nil {
			return request, errs.New(errs.Invalid, "the source's credentials cannot be read: enter them again")
		}
	}
	seen := before.Revision
	if before.State == content.SourceHeld {
		seen = before.Held[:max(0, strings.LastIndex(before.Held, "-"))]
	}
	if before.Observed != s.ModRev || before.State != content.SourceInSync && before.State != content.SourceHeld || !strings.HasPrefix(before.Place, s.Place()) && before.State == content.SourceInSync {
		return request, nil
	}
	if s.Kind == content.SourceConfigurations && before.State == content.SourceHeld {
		return request, nil // held removals may become due although nothing changes
	}
	for _, item := range before.Items { // publish again if somebody has removed a head
		head, err := r.cfg.Service.Head(ctx, item.Template)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return request, err
		}
		if err != nil || head.SourceDigest != item.Digest && !item.Kept || !versions.PublishedBy(head, s.Name) {
			return request, nil
		}
	}
	request.Seen = seen
	return request, nil
}

// attended reports whether a user requested this look at a directory, or it retries such a
// look.
func attended(s content.TemplateSource, before content.SourceStatus) bool {
	again := before.State == content.SourceFailed && before.Asked != s.Asked
	return s.Kind == content.SourceConfigurations && s.Attended && (before.Observed != s.ModRev || again)
}

// plan says what to do with everything that a source published and no longer holds.
type plan struct {
	templates cluster.Removal
	since     map[string]int64 // create-revisions of the templates' heads
	declared  []declaration
	place     string // where the source was found
	// gone is what a source that is read in place no longer declares.
	gone absence
}

// plan decides about removals and changes nothing. Held removals are carried out if the
// user has confirmed exactly those. last is what was missing at the previous look.
func (r *Runner) plan(ctx context.Context, s content.TemplateSource, before content.SourceStatus, h *sources.Holding, last absence) (plan, error) {
	p, err := r.decide(ctx, s, before, h, false)
	if err != nil {
		return p, err
	}
	switch {
	case attended(s, before):
		for i := range p.declared {
			p.declared[i].removal.Held = false
		}
	case h.Moment != "":
		p.settle(last, h.Moment, r.cfg.Settling, r.cfg.Now())
	}
	if waiting := p.waiting(h.Revision); waiting == "" || waiting != s.Confirmed {
		return p, nil
	}
	return r.decide(ctx, s, before, h, true)
}

// settle delays removals until the objects have been missing for quiet without other
// changes.
func (p *plan) settle(last absence, moment string, quiet time.Duration, now time.Time) {
	var names []string
	for _, d := range p.declared {
		for _, name := range d.removal.Go {
			names = append(names, d.noun+" "+name)
		}
	}
	if p.gone = last.seen(p.place+" "+moment, names, now); p.gone.left(quiet, now) == 0 {
		return
	}
	for i, d := range p.declared {
		p.declared[i].removal = d.removal.Await()
	}
}

func (r *Runner) decide(ctx context.Context, s content.TemplateSource, before content.SourceStatus, h *sources.Holding, confirmed bool) (p plan, err error) {
	p.since, p.place = map[string]int64{}, h.PlaceOf(s)
	if err := sources.CheckCount(len(h.Templates)); err != nil {
		return p, err
	}
	known := s.Declares && before.Place == p.place
	if len(h.Templates)+len(h.Groups)+len(h.Catalog) == 0 && !known {
		return p, errs.New(errs.Invalid, "the source holds no template at its path: check the path; the published templates stay")
	}
	heads, err := r.cfg.Service.Published(ctx, s.Name)
	if err != nil {
		return p, err
	}
	published, present := map[string]bool{}, map[string]bool{}
	for _, head := range heads {
		p.since[head.TemplateRef.String()] = head.CreateRev
		published[head.TemplateRef.String()] = before.Place == p.place && slices.ContainsFunc(before.Items, func(i content.SourceItem) bool { return i.Template == head.TemplateRef && !i.Kept })
	}
	for _, t := range h.Templates {
		present[t.Ref.String()] = true
	}
	p.templates = cluster.DecideRemoval(published, func(name string) bool { return present[name] }, confirmed)
	if s.Declares {
		groups, err := declare(ctx, r.cfg.Store, groupsOf(s.Name), s, h, h.Groups, confirmed)
		if err != nil {
			return p, err
		}
		catalog, err := declare(ctx, r.cfg.Store, catalogOf(s.Name), s, h, h.Catalog, confirmed)
		if err != nil {
			return p, err
		}
		p.declared = append(p.declared, catalog, groups) // catalog first: groups refer to catalog entries
	}
	return p, nil
}

// held reports whether nothing from this look may be applied.
func (p plan) held() bool {
	return p.templates.Held || slices.ContainsFunc(p.declared, func(d declaration) bool { return d.removal.Held })
}

// waiting identifies the removals that wait for confirmation, for SourceStatus.Held; ""
// means that none waits. It covers the place and each removal, so that a confirmation does
// not apply to anything else.
func (p plan) waiting(revision string) string {
	if p.tell("") == "" {
		return ""
	}
	h := sha256.New()
	fmt.Fprintln(h, p.place)
	list := func(noun string, r cluster.Removal, since map[string]int64) {
		names := r.Waiting()
		if p.held() { // nothing from this look is applied
			names = slices.Concat(r.Go, names)
		}
		for _, name := range names {
			fmt.Fprintln(h, noun, name, since[name])
		}
	}
	list("templates", p.templates, p.since)
	for _, d := range p.declared {
		list(d.noun, d.removal, d.since)
	}
	return revision + "-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// tell describes what is held back; "" means nothing.
func (p plan) tell(confirm string) string {
	told := []string{p.templates.Tell("templates", confirm)}
	for _, d := range p.declared {
		told = append(told, d.removal.Tell(d.noun, confirm))
	}
	return strings.Join(slices.DeleteFunc(told, func(one string) bool { return one == "" }), "; ")
}

// apply publishes each template, records the declarations and then removes what is gone. If
// one template cannot be published, apply still publishes the others, but neither declares
// nor removes anything.
func (r *Runner) apply(ctx context.Context, s content.TemplateSource, h *sources.Holding, p plan, fence store.Fence) (items []content.SourceItem, err error) {
	var failure error
	for _, t := range h.Templates {
		item := content.SourceItem{Template: t.Ref}
		head, err := r.one(ctx, s, h.Revision, t, fence)
		switch {
		case err == nil:
			item.Digest = head.SourceDigest
		case errs.Is(err, errs.Fenced), ctx.Err() != nil:
			return p.items(items, true), err
		default:
			item.Message, failure = errs.MessageOf(err), err
		}
		items = append(items, item)
	}
	if failure != nil {
		failed := slices.DeleteFunc(slices.Clone(items), func(i content.SourceItem) bool { return i.Message == "" })
		return p.items(items, true), &errs.Error{Op: "source.publish", Kind: errs.KindOf(failure), Err: failure, Message: fmt.Sprintf(
			"%d of %d templates are not published, the first is %s: %s", len(failed), len(items), failed[0].Template, failed[0].Message)}
	}
	if err := r.record(ctx, s, p.declared, fence); err != nil {
		return p.items(items, true), err
	}
	for _, name := range p.templates.Go {
		if err := r.cfg.Service.Retract(ctx, content.ParseTemplateRef(name), s.Name, fence); err != nil {
			return p.items(items, true), err
		}
	}
	return p.items(items, false), nil
}

// items adds to the published templates those that are kept although they are not in the
// source. If waiting, it also adds those that still wait to be removed.
func (p plan) items(items []content.SourceItem, waiting bool) []content.SourceItem {
	if waiting {
		for _, name := range p.templates.Go {
			items = append(items, content.SourceItem{Template: content.ParseTemplateRef(name), Message: "no longer in the source: it is removed once the whole source is published"})
		}
	}
	for _, name := range p.templates.Kept {
		items = append(items, content.SourceItem{Template: content.ParseTemplateRef(name), Message: "no longer in the source, but kept: confirm its removal, or delete it", Kept: true})
	}
	return items
}

// one publishes one template.
func (r *Runner) one(ctx context.Context, s content.TemplateSource, revision string, t sources.Template, fence store.Fence) (content.TemplateHead, error) {
	p, err := r.cfg.Service.Begin(ctx, "source "+s.Name)
	if err != nil {
		return content.TemplateHead{}, err
	}
	defer p.Close(context.WithoutCancel(ctx))
	m, err := t.Manifest(ctx, func(content io.Reader, limit int64) (content.Content, error) { return p.Add(ctx, content, limit) })
	if err != nil {
		return content.TemplateHead{}, err
	}
	head, _, err := r.cfg.Service.PublishSource(ctx, p, t.Ref, m, versions.Provenance{
		Origin: s.Name, Author: "source " + s.Name, Message: string(s.Kind) + " " + revision, Fences: []store.Fence{fence},
	})
	return head, err
}

// tell writes the status if it has changed.
func (r *Runner) tell(ctx context.Context, before, after content.SourceStatus, fence store.Fence) error {
	same := before.ModRev != 0 && before.Observed == after.Observed && before.Asked == after.Asked && before.State == after.State && before.Message == after.Message &&
		before.Revision == after.Revision && before.Held == after.Held && before.Place == after.Place && slices.Equal(before.Items, after.Items)
	if same {
		return nil
	}
	after.At = r.cfg.Now().UTC()
	_, err := r.cfg.Store.Commit(ctx, store.Txn{
		Fences: []store.Fence{fence},
		Guards: []store.Guard{store.Exists(keys.TemplateSource(after.Name))},
		Writes: []store.Write{store.Replace(keys.TemplateSourceStatus(after.Name), after, before.ModRev)},
	})
	return errs.Wrap("source.tell", err)
}
