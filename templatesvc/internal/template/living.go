package template

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// ended proves that the recorded source which published a head is no more: its templates
// are anybody's then, to edit, to delete and to take over. Nil while there is such a
// source, and for what no recorded source published.
func (s *Service) ended(ctx context.Context, head fleet.TemplateHead) ([]store.Guard, error) {
	if head.Origin == "" || head.Origin == fleet.DirectoryOrigin {
		return nil, nil
	}
	key := store.TemplateSourceKey(head.Origin)
	_, err := store.Get(ctx, s.cfg.Store, key)
	if errs.Is(err, errs.NotFound) {
		return []store.Guard{store.Missing(key)}, nil
	}
	return nil, errs.Wrap("template.ended", err)
}

// Editable refuses to change what a living source publishes, as Conflict; the guards hold
// as long as it does not. A template of a directory can be edited: both are joined. What is
// internal is no source's.
func (s *Service) Editable(ctx context.Context, head fleet.TemplateHead) ([]store.Guard, error) {
	if head.Internal() {
		return nil, nil
	}
	guards, err := s.ended(ctx, head)
	if err != nil || guards != nil || head.Origin == "" || head.Origin == fleet.DirectoryOrigin {
		return guards, err
	}
	return nil, errs.New(errs.Conflict, "template %s comes from the source %s: change it there, or delete the source, which leaves its templates", head.TemplateRef, head.Origin)
}

// deletable is Editable for a deletion, which a directory that has the template undoes.
func (s *Service) deletable(ctx context.Context, head fleet.TemplateHead) ([]store.Guard, error) {
	guards, err := s.ended(ctx, head)
	switch {
	case err != nil || guards != nil || head.ModRev == 0:
		return guards, err
	case PublishedBy(head, fleet.DirectoryOrigin):
		return nil, s.inDirectory(ctx, head)
	case head.Origin != "":
		return nil, errs.New(errs.Conflict, "template %s comes from the source %s, which would bring it again: take it away there, or delete the source first", head.TemplateRef, head.Origin)
	}
	return nil, nil
}

// inDirectory is a Conflict when some replica's directory has a template, also while that
// replica is away, until ForgetDirectories. What a directory lost and holds may be deleted.
func (s *Service) inDirectory(ctx context.Context, head fleet.TemplateHead) error {
	all, _, err := store.List(ctx, s.cfg.Store, store.DirectoryMemories())
	if err != nil {
		return errs.Wrap("template.inDirectory", err)
	}
	for _, d := range all {
		if _, has := slices.BinarySearch(d.Templates, head.TemplateRef.String()); !has || d.Held {
			continue
		}
		if !d.Away.IsZero() {
			return errs.New(errs.Conflict, "template %s comes from the directory of templates of %s, which has been away since %s and would bring it again: remove %s there, or wait: from %s on it may be deleted here",
				head.TemplateRef, d.Replica, d.Away.Format(time.DateTime), head.TemplateRef, d.Away.Add(DirectoryLife).Format(time.DateTime))
		}
		return errs.New(errs.Conflict, "template %s comes from the directory of templates of %s, which would bring it again: remove %s there, and it goes", head.TemplateRef, d.Replica, head.TemplateRef)
	}
	return nil
}

// DirectoryLife is how long it is remembered what a directory held whose replica is away.
const DirectoryLife = 7 * 24 * time.Hour

// ForgetDirectories notes which of the replicas that have a directory of templates are
// away, and forgets what the directories held of those that were for DirectoryLife. What
// goes from one after that is asked about, as from a directory that nobody knows.
func (s *Service) ForgetDirectories(ctx context.Context) error {
	all, _, err := store.List(ctx, s.cfg.Store, store.DirectoryMemories())
	if err != nil {
		return errs.Wrap("template.ForgetDirectories", err)
	}
	now := s.cfg.Now().UTC()
	for _, d := range all {
		key := store.DirectoryMemoryKey(d.ID, d.Replica)
		write := store.Remove(key, d.ModRev)
		switch {
		case d.Away.IsZero():
			d.Away = now
			write = store.Replace(key, d, d.ModRev)
		case now.Sub(d.Away) < DirectoryLife:
			continue
		}
		_, err := s.cfg.Store.Commit(ctx, store.Txn{
			Guards: []store.Guard{store.Missing(store.SessionKey("templatesvc", d.Replica))},
			Writes: []store.Write{write},
		})
		if err != nil && !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.AlreadyExists) { // it lives, or is back
			return errs.Wrap("template.ForgetDirectories", err)
		}
	}
	return nil
}

// CheckOrigin refuses to take a template over from another source. The directory of
// templates takes over what was made through the API, and every source what was published
// by one that is no more: the guards hold as long as it is not.
func (s *Service) CheckOrigin(ctx context.Context, head fleet.TemplateHead, origin string) ([]store.Guard, error) {
	switch {
	case head.ModRev == 0, PublishedBy(head, origin):
		return nil, nil
	case head.Origin != "":
		guards, err := s.ended(ctx, head)
		if err == nil && guards == nil {
			err = errs.New(errs.AlreadyExists, "template %s is published by source %s: choose another name, or remove it there", head.TemplateRef, head.Origin)
		}
		return guards, err
	case origin == fleet.DirectoryOrigin:
		return nil, nil
	}
	return nil, errs.New(errs.AlreadyExists, "template %s was made through the API: delete it, or choose another name", head.TemplateRef)
}

// mayMove are the guards under which a move is made of a head.
func (s *Service) mayMove(ctx context.Context, m Move, head fleet.TemplateHead) ([]store.Guard, error) {
	if m.Origin != nil {
		return s.CheckOrigin(ctx, head, *m.Origin)
	}
	return s.Editable(ctx, head)
}
