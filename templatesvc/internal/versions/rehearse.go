package versions

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/casefold"
)

// Outcome is the result of a change or a dry run.
type Outcome struct {
	// Head is the new head. After a dry run or a staged change, it has only the name and
	// the digest.
	Head content.TemplateHead
	// Changes lists the files that a dry run would change, at most maxChanges. More is true
	// when there are others.
	Changes []content.FileChange
	More    bool
}

// maxChanges is the maximum number of changed files in an answer.
const maxChanges = 2000

// bounded returns at most most changes, without the chunks of large files.
func bounded(all []content.FileChange, most int) (some []content.FileChange, more bool) {
	for _, c := range all[:min(len(all), most)] {
		c.Old, c.New = withoutChunks(c.Old), withoutChunks(c.New)
		some = append(some, c)
	}
	return some, len(all) > most
}

func withoutChunks(e *content.ManifestEntry) *content.ManifestEntry {
	if e == nil || e.Chunks == nil {
		return e
	}
	plain := *e
	plain.Chunks = nil
	return &plain
}

// Rehearsal is the dry run of a change.
type Rehearsal struct {
	Ref content.TemplateRef
	Asked
	// Draft starts from the caller's draft, if there is one.
	Draft bool
	// Change computes the new manifest. head is zero when the template does not exist.
	Change func(head content.TemplateHead, current content.Manifest) (content.Manifest, error)
}

// Rehearse returns what a change would result in. It writes nothing. It returns the errors
// of the change itself.
func (s *Service) Rehearse(ctx context.Context, r Rehearsal) (out Outcome, err error) {
	head, err := s.head(ctx, r.Ref)
	if err != nil {
		return out, errs.Wrap("template.Rehearse", err)
	}
	from, what, rev := head.Digest, "template "+r.Ref.String(), head.ModRev
	if r.Draft {
		d, err := s.Draft(ctx, r.Ref, r.Asked)
		if err != nil && !errs.Is(err, errs.NotFound) {
			return out, err
		}
		if what, rev = "the draft", d.ModRev; err == nil {
			from = d.Digest
		}
	}
	if err := r.unmoved(what, rev); err != nil {
		return out, err
	}
	current := content.Manifest{}
	if from != "" {
		if current, err = s.Manifest(ctx, from); err != nil {
			return out, errs.Wrap("template.Rehearse", err)
		}
	}
	next, err := r.Change(head, current)
	if err != nil {
		return out, err
	}
	out.Head.TemplateRef = r.Ref
	if _, out.Head.Digest, err = next.Canonical(content.VersionLimits()); err == nil {
		err = casefold.Check(next)
	}
	if err != nil {
		return out, errs.Wrap("template.Rehearse", err)
	}
	out.Changes, out.More = bounded(content.Diff(current, next), maxChanges)
	return out, nil
}

// RehearseDraft returns what publishing an author's draft would result in. It returns the
// errors of PublishDraft, and NotFound when there is no draft.
func (s *Service) RehearseDraft(ctx context.Context, ref content.TemplateRef, by Asked) (Outcome, error) {
	d, err := s.Draft(ctx, ref, by)
	if err != nil {
		return Outcome{}, err
	}
	if err := by.unmoved("the draft", d.ModRev); err != nil {
		return Outcome{}, err
	}
	staged, err := s.Manifest(ctx, d.Digest)
	if err != nil {
		return Outcome{}, errs.Wrap("template.RehearseDraft", err)
	}
	return s.Rehearse(ctx, Rehearsal{
		Ref: ref, Asked: Asked{Author: by.Author},
		Change: func(head content.TemplateHead, current content.Manifest) (content.Manifest, error) {
			if head.ModRev != 0 && head.Digest == d.Base {
				return staged, nil
			}
			var m Move
			err := s.rebaseDraft(ctx, &m, head, current, d, staged)
			return m.Manifest, err
		},
	})
}
