package versions

import (
	"cmp"
	"context"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Move describes a change of a template's head to a new version.
type Move struct {
	Ref      content.TemplateRef
	Manifest content.Manifest
	// Base is the digest of the head that the manifest was computed from; "" for a template
	// that does not exist.
	Base string
	// Rebase computes the manifest and its dependent fields again from a head other than
	// Base. head and current are zero if the template does not exist. If Rebase is nil,
	// another head is a Conflict, or AlreadyExists when Base is "".
	Rebase func(m *Move, head content.TemplateHead, current content.Manifest) error

	Asked
	Kind    content.MoveKind
	Message string
	// Fences are further fences of the transaction, besides the publish's own.
	Fences []store.Fence
	// These fields replace those of the head unless they are nil.
	Origin, Directory, SourceDigest, Description, Platform *string
}

// tries is how many concurrent changes of the head a move tolerates.
const tries = 20

// Commit publishes a version and makes it the head. One transaction records the version,
// the move and the head. If the version already is the head, or the operation was performed
// before, Commit changes nothing and returns the head. It returns the errors of Store and
// Finish, and Conflict when the head is not at the requested revision or the operation ID
// belongs to another change. See also Move.Rebase.
func (p *Publish) Commit(ctx context.Context, m Move) (content.TemplateHead, error) {
	return p.service.once(ctx, m.Ref, m.Asked, func() (content.TemplateHead, error) { return p.commitMove(ctx, m) })
}

func (p *Publish) commitMove(ctx context.Context, m Move) (head content.TemplateHead, err error) {
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
			return done, lookErr // this operation has already moved the head
		}
	}
	return head, errs.New(errs.Conflict, "template %s has too many concurrent changes: retry", m.Ref)
}

// rebase computes the move again from another head.
func (p *Publish) rebase(ctx context.Context, m *Move, head content.TemplateHead) error {
	switch {
	case m.Rebase == nil && m.Base == "":
		return errs.New(errs.AlreadyExists, "template %s already exists: change it or choose another name", m.Ref)
	case m.Rebase == nil && head.ModRev == 0:
		return errs.New(errs.NotFound, "template %s was deleted meanwhile: create it again", m.Ref)
	case m.Rebase == nil:
		return errs.New(errs.Conflict, "template %s has moved on to version %s meanwhile: look at it and try again", m.Ref, head.Digest)
	}
	current := content.Manifest{}
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

// commit tries once. moved is true when it fails because the head has moved meanwhile.
func (p *Publish) commit(ctx context.Context, m Move, head content.TemplateHead) (_ content.TemplateHead, moved bool, err error) {
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
		[]store.Write{store.Replace(keys.TemplateHead(m.Ref), next, head.ModRev)})
	rev, err := p.Finish(ctx, t)
	if err != nil {
		return head, errs.Is(err, errs.Conflict) || errs.Is(err, errs.AlreadyExists), err
	}
	next.SetRev(cmp.Or(head.CreateRev, rev), rev)
	p.service.cfg.Log.Info("template published", "template", m.Ref.String(), "digest", digest, "files", next.Files, "by", string(m.Kind))
	return next, false, nil
}

// apply returns the head after the move. Fields that the move does not set stay as they
// are.
func (m *Move) apply(head content.TemplateHead, digest string) content.TemplateHead {
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

// record returns the history entry of the move, without the fields that depend on the head.
func (m *Move) record() content.TemplateMove {
	return content.TemplateMove{TemplateRef: m.Ref, Kind: m.Kind, Author: m.Author, Message: m.Message}
}

// versionTxn returns a transaction that records the version. If the version was published
// before, the transaction requires that it still exists.
func (s *Service) versionTxn(ctx context.Context, m Move, head content.TemplateHead, digest string) (store.Txn, error) {
	key := keys.TemplateVersion(m.Ref, digest)
	_, err := store.Get(ctx, s.cfg.Store, key)
	switch {
	case err == nil:
		return store.Txn{Guards: []store.Guard{store.Exists(key)}}, nil
	case !errs.Is(err, errs.NotFound):
		return store.Txn{}, errs.Wrap("template.Commit", err)
	}
	v := content.TemplateVersion{
		TemplateRef: m.Ref, Digest: digest, Parent: head.Digest,
		Author: m.Author, Message: m.Message, CreatedAt: s.cfg.Now().UTC(), Copies: s.cfg.Copy(ctx, digest),
	}
	v.Files, v.SizeBytes = sizeOf(m.Manifest)
	return store.Txn{Writes: []store.Write{store.Create(key, v)}}, nil
}

// sizeOf returns the number of files in a manifest and their total size.
func sizeOf(m content.Manifest) (files int, bytes int64) {
	for i := range m.Entries {
		if m.Entries[i].Kind == content.FileRegular {
			files++
			bytes += m.Entries[i].Size
		}
	}
	return files, bytes
}
