package template

import (
	"cmp"
	"context"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// Move is a version that is to become a template's head.
type Move struct {
	Ref      fleet.TemplateRef
	Manifest fleet.Manifest
	// Base is the head that the manifest was computed from; "" for a template that
	// does not exist.
	Base string
	// Rebase sets the manifest, and what else depends on it, anew from a head other than
	// Base; a zero head and manifest when the template is gone. Nil: such a move is a
	// Conflict, or AlreadyExists when Base is "".
	Rebase func(m *Move, head fleet.TemplateHead, current fleet.Manifest) error

	Asked
	Kind    fleet.MoveKind
	Message string
	// Fences are what the move is made under, beside the publish itself.
	Fences []store.Fence
	// Origin, Directory, SourceDigest, Description and Platform replace the head's unless nil.
	Origin, Directory, SourceDigest, Description, Platform *string
}

// tries bounds how often a head that moved under us is looked at anew.
const tries = 20

// Commit publishes a version and makes it the head, in one transaction with the move's
// record. A move to what is the head already changes nothing and returns the head as
// it is, and so does one that was made before. Errors as of Store and Finish; Conflict
// when the head is not at the revision asked for, or the operation was another change;
// further ones see Move.Rebase.
func (p *Publish) Commit(ctx context.Context, m Move) (fleet.TemplateHead, error) {
	return p.service.once(ctx, m.Ref, m.Asked, func() (fleet.TemplateHead, error) { return p.commitMove(ctx, m) })
}

func (p *Publish) commitMove(ctx context.Context, m Move) (head fleet.TemplateHead, err error) {
	for range tries {
		if head, err = p.service.head(ctx, m.Ref); err != nil {
			return head, errs.Wrap("template.Commit", err)
		}
		if err := m.unmoved("template "+m.Ref.String(), head.ModRev); err != nil {
			return head, err
		}
		if head.Digest != m.Base {
			if err := p.rebase(ctx, &m, head); err != nil {
				return head, err
			}
		}
		var moved bool
		if head, moved, err = p.commit(ctx, m, head); err == nil || !moved {
			return head, err
		}
		if done, made, lookErr := p.service.performed(ctx, m.Ref, m.Asked); lookErr != nil || made {
			return done, lookErr // it was this very change that moved the head
		}
	}
	return head, errs.New(errs.Conflict, "template %s is being changed by others all the time: try again", m.Ref)
}

// rebase computes the move from another head.
func (p *Publish) rebase(ctx context.Context, m *Move, head fleet.TemplateHead) error {
	switch {
	case m.Rebase == nil && m.Base == "":
		return errs.New(errs.AlreadyExists, "template %s exists already: change it, or choose another name", m.Ref)
	case m.Rebase == nil && head.ModRev == 0:
		return errs.New(errs.NotFound, "template %s was deleted meanwhile: make it anew", m.Ref)
	case m.Rebase == nil:
		return errs.New(errs.Conflict, "template %s has moved on to version %s meanwhile: look at it and try again", m.Ref, head.Digest)
	}
	current := fleet.Manifest{}
	if head.ModRev != 0 {
		var err error
		if current, err = p.service.Manifest(ctx, head.Digest); err != nil {
			return errs.Wrap("template.Commit", err)
		}
	}
	if err := m.Rebase(m, head, current); err != nil {
		return err
	}
	m.Base = head.Digest
	return nil
}

// commit tries once. moved says that the refusal came from a head that moved meanwhile.
func (p *Publish) commit(ctx context.Context, m Move, head fleet.TemplateHead) (_ fleet.TemplateHead, moved bool, err error) {
	digest, err := p.Store(ctx, m.Manifest)
	if err != nil {
		return head, false, err
	}
	next := m.apply(head, digest)
	if head.ModRev != 0 && digest == head.Digest && next.SourceDigest == head.SourceDigest && next.Origin == head.Origin {
		return head, false, nil
	}
	t, err := p.service.versionTxn(ctx, m, head, digest)
	if err != nil {
		return head, false, err
	}
	guards, err := p.service.mayMove(ctx, m, head)
	if err != nil {
		return head, false, err
	}
	t.Guards, t.Fences = append(t.Guards, guards...), m.Fences
	moves, err := p.service.moveWrites(ctx, &next, head, m.record())
	if err != nil {
		return head, false, err
	}
	remembered, err := p.service.remembered(ctx, m.Asked, m.Ref, digest)
	if err != nil {
		return head, false, err
	}
	t.Writes = slices.Concat(t.Writes, moves, remembered,
		[]store.Write{store.Replace(store.TemplateHeadKey(m.Ref), next, head.ModRev)})
	rev, err := p.Finish(ctx, t)
	if err != nil {
		return head, errs.Is(err, errs.Conflict) || errs.Is(err, errs.AlreadyExists), err
	}
	next.SetRev(cmp.Or(head.CreateRev, rev), rev)
	p.service.cfg.Log.Info("template published", "template", m.Ref.String(), "digest", digest, "files", next.Files, "by", string(m.Kind))
	return next, false, nil
}

// apply is the head after the move; what the move says nothing of stays as it was.
func (m *Move) apply(head fleet.TemplateHead, digest string) fleet.TemplateHead {
	next := head
	next.TemplateRef, next.Digest, next.Variables = m.Ref, digest, m.Manifest.Variables
	next.Files, next.SizeBytes = sizeOf(m.Manifest)
	for _, f := range []struct {
		to   *string
		from *string
	}{{&next.Origin, m.Origin}, {&next.Directory, m.Directory}, {&next.SourceDigest, m.SourceDigest}, {&next.Description, m.Description}, {&next.Platform, m.Platform}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	return next
}

// record is the move as its template's history keeps it, without what depends on the head.
func (m *Move) record() fleet.TemplateMove {
	return fleet.TemplateMove{TemplateRef: m.Ref, Kind: m.Kind, Author: m.Author, Message: m.Message}
}

// versionTxn records the version, unless the same content was published before: then
// it must still be there.
func (s *Service) versionTxn(ctx context.Context, m Move, head fleet.TemplateHead, digest string) (store.Txn, error) {
	key := store.TemplateVersionKey(m.Ref, digest)
	_, err := store.Get(ctx, s.cfg.Store, key)
	switch {
	case err == nil:
		return store.Txn{Guards: []store.Guard{store.Exists(key)}}, nil
	case !errs.Is(err, errs.NotFound):
		return store.Txn{}, errs.Wrap("template.Commit", err)
	}
	v := fleet.TemplateVersion{
		TemplateRef: m.Ref, Digest: digest, Parent: head.Digest,
		Author: m.Author, Message: m.Message, CreatedAt: s.cfg.Now().UTC(), Copies: s.cfg.Copy(ctx, digest),
	}
	v.Files, v.SizeBytes = sizeOf(m.Manifest)
	return store.Txn{Writes: []store.Write{store.Create(key, v)}}, nil
}

// sizeOf is how many files a manifest has and what they hold.
func sizeOf(m fleet.Manifest) (files int, bytes int64) {
	for i := range m.Entries {
		if m.Entries[i].Kind == fleet.FileRegular {
			files++
			bytes += m.Entries[i].Size
		}
	}
	return files, bytes
}
