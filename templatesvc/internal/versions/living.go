package versions

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// ended returns guards that the recorded source of a head does not exist. Users may then
// edit and delete the template, and other sources may take it over. It returns nil while
// the source exists, and for a head that no recorded source published.
func (s *Service) ended(ctx context.Context, head content.TemplateHead) ([]store.Guard, error) {
	if head.Origin == "" || head.Origin == content.DirectoryOrigin {
		return nil, nil
	}
	key := keys.TemplateSource(head.Origin)
	_, err := store.Get(ctx, s.cfg.Store, key)
	if errs.Is(err, errs.NotFound) {
		return []store.Guard{store.Missing(key)}, nil
	}
	return nil, errs.Wrap("template.ended", err)
}

// Editable returns Conflict when an existing source publishes the template. The returned
// guards make sure that the answer still holds at the commit. A template from a directory
// may be edited, because edits are merged with the directory's files. Internal templates
// belong to no source.
func (s *Service) Editable(ctx context.Context, head content.TemplateHead) ([]store.Guard, error) {
	if head.Internal() {
		return nil, nil
	}
	guards, err := s.ended(ctx, head)
	if err != nil || guards != nil || head.Origin == "" || head.Origin == content.DirectoryOrigin {
		return guards, err
	}
	return nil, errs.New(errs.Conflict, "template %s comes from the source %s: change it there, or delete the source, which leaves its templates", head.TemplateRef, head.Origin)
}

// deletable is like Editable, for a deletion. It also refuses a template that a directory
// would publish again.
func (s *Service) deletable(ctx context.Context, head content.TemplateHead) ([]store.Guard, error) {
	guards, err := s.ended(ctx, head)
	switch {
	case err != nil || guards != nil || head.ModRev == 0:
		return guards, err
	case PublishedBy(head, content.DirectoryOrigin):
		return nil, s.inDirectory(ctx, head)
	case head.Origin != "":
		return nil, errs.New(errs.Conflict, "template %s comes from the source %s, which would bring it again: take it away there, or delete the source first", head.TemplateRef, head.Origin)
	}
	return nil, nil
}

// inDirectory returns Conflict when a replica's directory holds the template. A replica
// that is away counts until ForgetDirectories. A template whose removal from a directory is
// held may be deleted.
func (s *Service) inDirectory(ctx context.Context, head content.TemplateHead) error {
	all, _, err := store.List(ctx, s.cfg.Store, keys.DirectoryMemories())
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

// DirectoryLife is how long the directory memory of a replica that is away is kept.
const DirectoryLife = 7 * 24 * time.Hour

// ForgetDirectories records which replicas with a template directory are away, and deletes
// the memory of those that have been away for DirectoryLife. If such a directory returns
// with templates missing, their removal has to be confirmed.
func (s *Service) ForgetDirectories(ctx context.Context) error {
	all, _, err := store.List(ctx, s.cfg.Store, keys.DirectoryMemories())
	if err != nil {
		return errs.Wrap("template.ForgetDirectories", err)
	}
	now := s.cfg.Now().UTC()
	for _, d := range all {
		key := keys.DirectoryMemory(d.ID, d.Replica)
		write := store.Remove(key, d.ModRev)
		switch {
		case d.Away.IsZero():
			d.Away = now
			write = store.Replace(key, d, d.ModRev)
		case now.Sub(d.Away) < DirectoryLife:
			continue
		}
		_, err := s.cfg.Store.Commit(ctx, store.Txn{
			Guards: []store.Guard{store.Missing(keys.Session("templatesvc", d.Replica))},
			Writes: []store.Write{write},
		})
		if err != nil && !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.AlreadyExists) { // the replica is alive
			return errs.Wrap("template.ForgetDirectories", err)
		}
	}
	return nil
}

// CheckOrigin returns AlreadyExists when a source must not take over a template. The
// template directory may take over templates that were created through the API. Every
// source may take over those of a source that no longer exists; the returned guards make
// sure of that at the commit.
func (s *Service) CheckOrigin(ctx context.Context, head content.TemplateHead, origin string) ([]store.Guard, error) {
	switch {
	case head.ModRev == 0, PublishedBy(head, origin):
		return nil, nil
	case head.Origin != "":
		guards, err := s.ended(ctx, head)
		if err == nil && guards == nil {
			err = errs.New(errs.AlreadyExists, "template %s is published by source %s: choose another name, or remove it there", head.TemplateRef, head.Origin)
		}
		return guards, err
	case origin == content.DirectoryOrigin:
		return nil, nil
	}
	return nil, errs.New(errs.AlreadyExists, "template %s was made through the API: delete it, or choose another name", head.TemplateRef)
}

// mayMove returns the guards of a move, or an error if the move is not allowed.
func (s *Service) mayMove(ctx context.Context, m Move, head content.TemplateHead) ([]store.Guard, error) {
	if m.Origin != nil {
		return s.CheckOrigin(ctx, head, *m.Origin)
	}
	return s.Editable(ctx, head)
}
