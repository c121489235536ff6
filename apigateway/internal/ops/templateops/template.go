// Package templateops records changes of templates, saves instances as templates, and syncs
// templates to the caches of nodes.
package templateops

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// Templates audits changes of templates, and brings templates to nodes. It is safe for concurrent use.
type Templates struct {
	*txn.Committer
	agents *upstream.Agents
}

// New returns the operations on templates.
func New(c *txn.Committer, agents *upstream.Agents) *Templates {
	return &Templates{Committer: c, agents: agents}
}

// TemplateEdit is a change of a template that the template service makes.
type TemplateEdit struct {
	// Ref names the template; the zero value if only the result of Make does.
	Ref content.TemplateRef
	// Action is the audit action, such as template.edit. What describes the change, such as "write
	// a.yml".
	Action, What string
	// Make makes the change in templatesvc.
	Make func(ctx context.Context) (content.TemplateHead, error)
}

// Audit actions that do not change the current version of a template.
const (
	TemplateStaged  = "template.stage"
	templateDeleted = "template.delete"
)

// EditTemplate calls Make, audits the change, and waits until the view shows it. Errors are those
// of Make, and MovedError when a condition of the change did not hold.
func (o *Templates) EditTemplate(ctx context.Context, by txn.Actor, e TemplateEdit) (content.TemplateHead, error) {
	s := o.Snapshot()
	head, err := e.Make(ctx)
	if err != nil {
		return head, o.blamedOf(e.Ref, Moved(err))
	}
	if !e.Ref.Valid() {
		e.Ref = head.TemplateRef
	}
	said := txn.Entry{Action: e.Action, Resource: "template", ID: e.Ref.String(), Details: e.What}
	if head.Digest != "" {
		said.Details = strings.TrimSpace(e.What + " to " + head.Digest)
	}
	if old, ok := s.TemplateHeads.Get(said.ID); e.Action == templateDeleted || head.Digest != "" && e.Action != TemplateStaged {
		said.After = digestRecord(head.Digest)
		if ok {
			said.Before = digestRecord(old.Digest)
		}
	}
	_, err = o.RecordEntry(txn.WithoutOnce(context.WithoutCancel(ctx)), by, said) // templatesvc has its own record of the request
	return head, err
}

// TemplateMoved returns the MovedError of a template that is not at revision want.
func (o *Templates) TemplateMoved(h *content.TemplateHead, want int64) error {
	return o.blamedOf(h.TemplateRef, &txn.MovedError{What: "template " + h.Short(), Want: want, Have: h.ModRev})
}

// blamedOf adds to a MovedError in err who made the last change of the template, if the audit
// knows. It returns err.
func (o *Templates) blamedOf(ref content.TemplateRef, err error) error {
	var moved *txn.MovedError
	if !errors.As(err, &moved) {
		return err
	}
	s := o.Snapshot()
	h, ok := s.TemplateHeads.Get(ref.String())
	for e := range s.History("template", ref.String()) {
		switch {
		case !ok || e.ModRev < h.ModRev:
			return err
		case e.Action != TemplateStaged && e.Action != "template.draft.delete" && e.Action != "template.version.delete":
			moved.By, moved.At = e.Username, e.CreatedAt // the oldest such entry belongs to the current version
		}
	}
	return err
}

// Moved returns a MovedError when err says that a condition of a template's change did not hold,
// else err.
func Moved(err error) error {
	if err != nil && errs.FieldOf(err) == client.Stale {
		return &txn.MovedError{What: errs.MessageOf(err)}
	}
	return err
}

// Template returns a template, or NotFound if it does not exist or is internal.
func Template(s *view.Snapshot, ref content.TemplateRef) (*content.TemplateHead, error) {
	h, ok := s.TemplateHeads.Get(ref.String())
	if !ok || ref.Internal() {
		return nil, NoTemplate(s, ref)
	}
	return h, nil
}

// maxAlike bounds the templates that an error suggests.
const maxAlike = 3

// NoTemplate is the error for a template that does not exist. It suggests templates with the same
// name in another group, or in another case.
func NoTemplate(s *view.Snapshot, ref content.TemplateRef) error {
	var alike []string
	for _, h := range s.TemplateHeads.All() {
		if strings.EqualFold(h.Name, ref.Name) && h.TemplateRef != ref && !h.Internal() {
			alike = append(alike, h.TemplateRef.String())
		}
	}
	slices.Sort(alike)
	name := txn.Clip(ref.String())
	if len(alike) == 0 {
		return errs.New(errs.NotFound, "there is no template %s: list the templates, or make it", name)
	}
	return errs.New(errs.NotFound, "there is no template %s: did you mean %s?", name, strings.Join(alike[:min(len(alike), maxAlike)], " or "))
}

// TemplateUnused returns an error when a group names the template, or when it is the last template
// of a template group that a group uses.
func TemplateUnused(s *view.Snapshot, ref content.TemplateRef) error {
	var users []string
	named := func(l content.TemplateLayer) bool { return l.TemplateRef == ref }
	last := true
	for _, h := range s.TemplateHeads.All() {
		last = last && (h.Group != ref.Group || h.TemplateRef == ref)
	}
	byGroup := false
	for name, g := range s.Groups.All() {
		t := g.Spec.Templates
		direct := slices.ContainsFunc(t.AllOf, named) || slices.ContainsFunc(t.OneOf, named)
		needs := last && (slices.Contains(t.AllInGroups, ref.Group) || slices.Contains(t.OneInGroups, ref.Group))
		if !g.Deleting && (direct || needs) {
			users, byGroup = append(users, string(name)), byGroup || needs
		}
	}
	slices.Sort(users)
	if len(users) == 0 {
		return nil
	}
	if byGroup {
		return errs.New(errs.Conflict, "template %s is the last one of the template group %s, which is used by %s: change those groups first, or make another template in it", ref, ref.Group, strings.Join(users[:min(len(users), 10)], ", "))
	}
	return errs.New(errs.Conflict, "template %s is used by %s: change those groups first", ref, strings.Join(users[:min(len(users), 10)], ", "))
}

// digestRecord is what the audit keeps of a template: the digest of its version.
func digestRecord(digest string) any {
	if digest == "" {
		return nil
	}
	return map[string]any{"digest": digest}
}
