package template

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/spelling"
)

// Outcome is what a change came to, or would come to.
type Outcome struct {
	// Head is the new head; of what was rehearsed or staged, its name and digest only.
	Head fleet.TemplateHead
	// Changes are the files a rehearsed change would change, at most maxChanges; More
	// says that there are others.
	Changes []fleet.FileChange
	More    bool
}

// maxChanges bounds the files told that differ.
const maxChanges = 2000

// bounded is a list of changes as it is told: without the chunks of large files.
func bounded(all []fleet.FileChange, most int) (some []fleet.FileChange, more bool) {
	for _, c := range all[:min(len(all), most)] {
		c.Old, c.New = withoutChunks(c.Old), withoutChunks(c.New)
		some = append(some, c)
	}
	return some, len(all) > most
}

func withoutChunks(e *fleet.ManifestEntry) *fleet.ManifestEntry {
	if e == nil || e.Chunks == nil {
		return e
	}
	plain := *e
	plain.Chunks = nil
	return &plain
}

// Rehearsal is a change that is not to be made.
type Rehearsal struct {
	Ref fleet.TemplateRef
	Asked
	// Draft begins from the asker's draft, where there is one.
	Draft bool
	// Change computes the change; the head is zero when the template does not exist.
	Change func(head fleet.TemplateHead, current fleet.Manifest) (fleet.Manifest, error)
}

// Rehearse tells what a change would come to now. It writes nothing. Errors as of the
// change itself.
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
	current := fleet.Manifest{}
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
	if _, out.Head.Digest, err = next.Canonical(fleet.VersionLimits()); err == nil {
		err = spelling.Check(next)
	}
	if err != nil {
		return out, errs.Wrap("template.Rehearse", err)
	}
	out.Changes, out.More = bounded(fleet.Diff(current, next), maxChanges)
	return out, nil
}

// RehearseDraft tells what publishing an author's draft would come to now. Errors as of
// PublishDraft, and NotFound without a draft.
func (s *Service) RehearseDraft(ctx context.Context, ref fleet.TemplateRef, by Asked) (Outcome, error) {
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
		Change: func(head fleet.TemplateHead, current fleet.Manifest) (fleet.Manifest, error) {
			if head.ModRev != 0 && head.Digest == d.Base {
				return staged, nil
			}
			var m Move
			err := s.rebaseDraft(ctx, &m, head, current, d, staged)
			return m.Manifest, err
		},
	})
}
