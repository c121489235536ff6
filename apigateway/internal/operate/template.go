package operate

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// TemplateEdit is a change of a template that the template service makes.
type TemplateEdit struct {
	// Ref names the template; the zero value where the change itself tells which.
	Ref fleet.TemplateRef
	// Action is what the audit calls it, such as template.edit; What is done to what,
	// such as "write a.yml".
	Action, What string
	// Make has it done.
	Make func(ctx context.Context) (fleet.TemplateHead, error)
}

// Actions after which a template is not at the version that was made: what is staged is
// none of it yet.
const (
	TemplateStaged  = "template.stage"
	templateDeleted = "template.delete"
)

// EditTemplate has a template changed, notes who did it, and waits until the view has
// it. Errors as of Make, and MovedError where a condition of the change did not hold.
func (o *Operations) EditTemplate(ctx context.Context, by Actor, e TemplateEdit) (fleet.TemplateHead, error) {
	s := o.Snapshot()
	head, err := e.Make(ctx)
	if err != nil {
		return head, o.blamedOf(e.Ref, Moved(err))
	}
	if !e.Ref.Valid() {
		e.Ref = head.TemplateRef
	}
	said := entry{action: e.Action, resource: "template", id: e.Ref.String(), details: e.What}
	if head.Digest != "" {
		said.details = strings.TrimSpace(e.What + " to " + head.Digest)
	}
	if old, ok := s.TemplateHeads.Get(said.id); e.Action == templateDeleted || head.Digest != "" && e.Action != TemplateStaged {
		said.after = digestRecord(head.Digest)
		if ok {
			said.before = digestRecord(old.Digest)
		}
	}
	_, err = o.record(elsewhere(context.WithoutCancel(ctx)), by, said) // templatesvc remembers it
	return head, err
}

// TemplateMoved is the MovedError of a template that is not at the revision the caller named.
func (o *Operations) TemplateMoved(h *fleet.TemplateHead, want int64) error {
	return o.blamedOf(h.TemplateRef, &MovedError{What: "template " + h.Short(), Want: want, Have: h.ModRev})
}

// blamedOf is err, which names who changed the template that moved, if that was through the
// API: the audit's entry is written right after the change.
func (o *Operations) blamedOf(ref fleet.TemplateRef, err error) error {
	var moved *MovedError
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
			moved.By, moved.At = e.Username, e.CreatedAt // the oldest of those is the head's
		}
	}
	return err
}

// Moved is a MovedError where the condition of a template's change did not hold, else err.
func Moved(err error) error {
	if err != nil && errs.FieldOf(err) == client.Stale {
		return &MovedError{What: errs.MessageOf(err)}
	}
	return err
}

// Template is a template by its name. NotFound when there is none, also of one that is
// internal.
func Template(s *view.Snapshot, ref fleet.TemplateRef) (*fleet.TemplateHead, error) {
	h, ok := s.TemplateHeads.Get(ref.String())
	if !ok || ref.Internal() {
		return nil, NoTemplate(s, ref)
	}
	return h, nil
}

// maxAlike bounds the templates that an error suggests.
const maxAlike = 3

// NoTemplate is the error that a template does not exist. It names those that may have
// been meant: of the same name in another group, or in other letters.
func NoTemplate(s *view.Snapshot, ref fleet.TemplateRef) error {
	var alike []string
	for _, h := range s.TemplateHeads.All() {
		if strings.EqualFold(h.Name, ref.Name) && h.TemplateRef != ref && !h.Internal() {
			alike = append(alike, h.TemplateRef.String())
		}
	}
	slices.Sort(alike)
	name := clip(ref.String())
	if len(alike) == 0 {
		return errs.New(errs.NotFound, "there is no template %s: list the templates, or make it", name)
	}
	return errs.New(errs.NotFound, "there is no template %s: did you mean %s?", name, strings.Join(alike[:min(len(alike), maxAlike)], " or "))
}

// TemplateUnused refuses to remove a template that a group names, and the last one of a
// template group of which it takes all, or one.
func TemplateUnused(s *view.Snapshot, ref fleet.TemplateRef) error {
	var users []string
	named := func(l fleet.TemplateLayer) bool { return l.TemplateRef == ref }
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
