package source

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
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/internal/origin"
	"github.com/orreryhq/orrery/templatesvc/internal/template"
)

// look brings a source's templates up to date once, and tells what came of it. gone is
// what was missing at the looks before, and afterwards at this too. The error is why it is
// to be tried again.
func (r *Runner) look(ctx context.Context, s fleet.TemplateSource, gone *absence) error {
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
	after, failure := r.bring(ctx, s, before, fence, gone)
	if errs.Is(failure, errs.Fenced) || errs.Is(failure, errs.Canceled) {
		return failure // another replica goes on, or this one ends: nothing to tell
	}
	if failure == nil && !s.Paused {
		after.Asked = s.Asked
	}
	if err := r.tell(ctx, before, after, fence); err != nil {
		return err
	}
	return failure
}

// bring is the source's next status; the error is what kept it from being in sync.
// What goes is decided before anything is published, and removed after all the rest.
func (r *Runner) bring(ctx context.Context, s fleet.TemplateSource, before fleet.SourceStatus, fence store.Fence, gone *absence) (fleet.SourceStatus, error) {
	next, last := before, *gone
	*gone = absence{} // unless it is read to its end
	next.Name, next.Observed, next.Message, next.Held = s.Name, s.ModRev, "", ""
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
		next.State, next.Held = fleet.SourceHeld, waiting
		return next, nil
	}
	next.Place = p.place
	if next.Items, err = r.apply(ctx, s, holding, p, fence); err != nil {
		next.Revision = "" // all of it is brought again
		return fail(err)
	}
	if next.Revision = holding.Revision; next.Message != "" {
		next.State, next.Held = fleet.SourceHeld, waiting
	}
	return next, nil
}

// request asks for all of a source, or for what changed since it was last brought.
func (r *Runner) request(ctx context.Context, s fleet.TemplateSource, before fleet.SourceStatus) (origin.Request, error) {
	request := origin.Request{Source: s, Spool: r.cfg.Spool, At: before.Place, Attended: attended(s, before), Dialer: r.cfg.Dialer}
	if s.Sealed != nil {
		plain, err := r.box.Open(s.Sealed)
		if err != nil {
			return request, err
		}
		if err := json.Unmarshal(plain, &request.Credentials); err != nil {
			return request, errs.New(errs.Invalid, "the source's credentials cannot be read: give them anew")
		}
	}
	seen := before.Revision
	if before.State == fleet.SourceHeld {
		seen = before.Held[:max(0, strings.LastIndex(before.Held, "-"))]
	}
	if before.Observed != s.ModRev || before.State != fleet.SourceInSync && before.State != fleet.SourceHeld || !strings.HasPrefix(before.Place, s.Place()) && before.State == fleet.SourceInSync {
		return request, nil
	}
	if s.Kind == fleet.SourceConfigurations && before.State == fleet.SourceHeld {
		return request, nil // what waits may go in time, though nothing changes
	}
	for _, item := range before.Items { // a head that somebody else removed is brought again
		head, err := r.cfg.Service.Head(ctx, item.Template)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return request, err
		}
		if err != nil || head.SourceDigest != item.Digest && !item.Kept || !template.PublishedBy(head, s.Name) {
			return request, nil
		}
	}
	request.Seen = seen
	return request, nil
}

// attended reports whether this is the look at a directory that a user asked for, or one
// that tries again after such a look failed.
func attended(s fleet.TemplateSource, before fleet.SourceStatus) bool {
	again := before.State == fleet.SourceFailed && before.Asked != s.Asked
	return s.Kind == fleet.SourceConfigurations && s.Attended && (before.Observed != s.ModRev || again)
}

// plan is what is to become of all that a source published and has no more.
type plan struct {
	templates fleet.Removal
	since     map[string]int64 // the create-revisions of the templates' heads
	declared  []declaration
	place     string // where the source was found
	// gone is what is declared no more by a source that is read as it stands.
	gone absence
}

// plan decides about a holding; nothing is changed yet. What waits goes when exactly that
// was confirmed. last is what was missing at the look before.
func (r *Runner) plan(ctx context.Context, s fleet.TemplateSource, before fleet.SourceStatus, h *origin.Holding, last absence) (plan, error) {
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

// settle has what is declared no more wait, unless it was missing for quiet at one moment.
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

func (r *Runner) decide(ctx context.Context, s fleet.TemplateSource, before fleet.SourceStatus, h *origin.Holding, confirmed bool) (p plan, err error) {
	p.since, p.place = map[string]int64{}, h.PlaceOf(s)
	if err := origin.CheckCount(len(h.Templates)); err != nil {
		return p, err
	}
	known := s.Declares && before.Place == p.place
	if len(h.Templates)+len(h.Groups)+len(h.Catalog) == 0 && !known {
		return p, errs.New(errs.Invalid, "the source holds no template where it is looked for: look at its path; what was published stays")
	}
	heads, err := r.cfg.Service.Published(ctx, s.Name)
	if err != nil {
		return p, err
	}
	published, present := map[string]bool{}, map[string]bool{}
	for _, head := range heads {
		p.since[head.TemplateRef.String()] = head.CreateRev
		published[head.TemplateRef.String()] = before.Place == p.place && slices.ContainsFunc(before.Items, func(i fleet.SourceItem) bool { return i.Template == head.TemplateRef && !i.Kept })
	}
	for _, t := range h.Templates {
		present[t.Ref.String()] = true
	}
	p.templates = fleet.DecideRemoval(published, func(name string) bool { return present[name] }, confirmed)
	if s.Declares {
		groups, err := declare(ctx, r.cfg.Store, groupsOf(s.Name), s, h, h.Groups, confirmed)
		if err != nil {
			return p, err
		}
		catalog, err := declare(ctx, r.cfg.Store, catalogOf(s.Name), s, h, h.Catalog, confirmed)
		if err != nil {
			return p, err
		}
		p.declared = append(p.declared, catalog, groups) // groups run what is in the catalog
	}
	return p, nil
}

// held reports whether nothing of the look may be applied.
func (p plan) held() bool {
	return p.templates.Held || slices.ContainsFunc(p.declared, func(d declaration) bool { return d.removal.Held })
}

// waiting names what waits to be confirmed, as SourceStatus.Held; "" when nothing does.
// The same revision at another place, or after others came and went, is another: nobody
// has looked at that.
func (p plan) waiting(revision string) string {
	if p.tell("") == "" {
		return ""
	}
	h := sha256.New()
	fmt.Fprintln(h, p.place)
	list := func(noun string, r fleet.Removal, since map[string]int64) {
		names := r.Waiting()
		if p.held() { // nothing of the look is applied
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

// tell says what is held back; "" when nothing is.
func (p plan) tell(confirm string) string {
	told := []string{p.templates.Tell("templates", confirm)}
	for _, d := range p.declared {
		told = append(told, d.removal.Tell(d.noun, confirm))
	}
	return strings.Join(slices.DeleteFunc(told, func(one string) bool { return one == "" }), "; ")
}

// apply publishes each template of a holding, records what it declares and then removes
// what goes. One template that cannot be published keeps no other from it, but nothing
// is declared or removed then.
func (r *Runner) apply(ctx context.Context, s fleet.TemplateSource, h *origin.Holding, p plan, fence store.Fence) (items []fleet.SourceItem, err error) {
	var failure error
	for _, t := range h.Templates {
		item := fleet.SourceItem{Template: t.Ref}
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
		failed := slices.DeleteFunc(slices.Clone(items), func(i fleet.SourceItem) bool { return i.Message == "" })
		return p.items(items, true), &errs.Error{Op: "source.publish", Kind: errs.KindOf(failure), Err: failure, Message: fmt.Sprintf(
			"%d of %d templates are not published, the first is %s: %s", len(failed), len(items), failed[0].Template, failed[0].Message)}
	}
	if err := r.record(ctx, s, p.declared, fence); err != nil {
		return p.items(items, true), err
	}
	for _, name := range p.templates.Go {
		if err := r.cfg.Service.Retract(ctx, fleet.ParseTemplateRef(name), s.Name, fence); err != nil {
			return p.items(items, true), err
		}
	}
	return p.items(items, false), nil
}

// items are those of a holding and those that stay though they are not in it. waiting
// says that what goes is still there.
func (p plan) items(items []fleet.SourceItem, waiting bool) []fleet.SourceItem {
	if waiting {
		for _, name := range p.templates.Go {
			items = append(items, fleet.SourceItem{Template: fleet.ParseTemplateRef(name), Message: "not in the source any more: it is removed once all of the source is published"})
		}
	}
	for _, name := range p.templates.Kept {
		items = append(items, fleet.SourceItem{Template: fleet.ParseTemplateRef(name), Message: "kept though it is not in the source: confirm its removal, or delete it", Kept: true})
	}
	return items
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
	same := before.ModRev != 0 && before.Observed == after.Observed && before.Asked == after.Asked && before.State == after.State && before.Message == after.Message &&
		before.Revision == after.Revision && before.Held == after.Held && before.Place == after.Place && slices.Equal(before.Items, after.Items)
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
