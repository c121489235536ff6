package versions

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// A version is deleted in two steps, because a plan that uses it may be created at the same
// time. First it is doomed: it is no longer a version, so new plans cannot use it, but its
// content stays. Then all plans are listed. If one of them uses the version, it is
// restored; otherwise it is deleted. A version that a plan uses from the start is not
// doomed.
//
//	version ──▶ doomed ──▶ deleted
//	   ▲          │ used by a plan
//	   └──────────┘

// DeleteVersion deletes a version. It returns NotFound when the version does not exist, and
// Conflict when it is the head or a plan uses it. A plan exists while instances use it, and
// up to an hour longer.
func (s *Service) DeleteVersion(ctx context.Context, ref content.TemplateRef, digest string, by Asked) error {
	by = by.For("delete version", digest)
	_, err := s.once(ctx, ref, by, func() (content.TemplateHead, error) {
		return content.TemplateHead{}, s.deleteVersion(ctx, ref, digest, by)
	})
	return err
}

func (s *Service) deleteVersion(ctx context.Context, ref content.TemplateRef, digest string, by Asked) error {
	used, err := s.users(ctx)
	if err != nil {
		return errs.Wrap("template.DeleteVersion", err)
	}
	doomed, err := s.doomOld(ctx, ref, digest, used)
	if err != nil {
		return errs.Wrap("template.DeleteVersion", err)
	}
	if used, err = s.users(ctx); err != nil {
		return errs.Wrap("template.DeleteVersion", err)
	}
	if err := s.deleteDoomed(ctx, doomed, used, by); err != nil {
		return errs.Wrap("template.DeleteVersion", err)
	}
	s.cfg.Log.Info("template version deleted", "template", ref.String(), "digest", digest)
	return nil
}

// deleteDoomed completes the deletion of a doomed version. It restores the version if it is
// in use.
func (s *Service) deleteDoomed(ctx context.Context, d content.TemplateDoomed, used users, by Asked) error {
	ref, digest := d.Version.TemplateRef, d.Version.Digest
	if used[digest] != nil {
		if err := settled(s.settle(ctx, d, used)); err != nil {
			return err
		}
		return used.refuse(ref, digest)
	}
	remembered, err := s.remembered(ctx, by, ref, "")
	if err != nil {
		return err
	}
	err = s.settle(ctx, d, used, remembered...)
	switch {
	case errs.Is(err, errs.AlreadyExists): // the operation ID was just used for another change, so this one is refused
		return errors.Join(err, settled(s.spare(ctx, d)))
	case errs.Is(err, errs.Conflict): // another replica has settled it
		_, err = store.Get(ctx, s.cfg.Store, keys.TemplateVersion(ref, digest))
		if err == nil {
			return errs.New(errs.Conflict, "version %s of %s has just come into use: stop its instances, or wait an hour", digest, ref)
		}
		if errs.Is(err, errs.NotFound) {
			_, err = s.cfg.Store.Commit(ctx, store.Txn{Writes: remembered})
		}
	}
	return err
}

// doomOld dooms a version that is neither the head nor in use. It tries again when the head
// moves meanwhile.
func (s *Service) doomOld(ctx context.Context, ref content.TemplateRef, digest string, used users) (d content.TemplateDoomed, err error) {
	for range tries {
		head, err := s.head(ctx, ref)
		if err != nil {
			return d, err
		}
		if head.Digest == digest {
			return d, errs.New(errs.Conflict, "version %s is the current one of %s: roll back to another first", digest, ref)
		}
		if err := used.refuse(ref, digest); err != nil {
			return d, err
		}
		if d, err = s.doom(ctx, head, ref, digest); err == nil || !errs.Is(err, errs.Conflict) || store.Lost(err) == nil {
			return d, err
		}
	}
	return d, errs.New(errs.Conflict, "template %s has too many concurrent changes: retry", ref)
}

// doom dooms a version, provided that the head does not move. If the version is already
// doomed, doom returns that record, because the replica that doomed it may have crashed.
func (s *Service) doom(ctx context.Context, head content.TemplateHead, ref content.TemplateRef, digest string) (d content.TemplateDoomed, err error) {
	key, doomed := keys.TemplateVersion(ref, digest), keys.TemplateDoomed(ref, digest)
	version, err := store.Get(ctx, s.cfg.Store, key)
	if errs.Is(err, errs.NotFound) {
		if d, err = store.Get(ctx, s.cfg.Store, doomed); errs.Is(err, errs.NotFound) {
			err = errs.New(errs.NotFound, "template %s has no version %s: list its versions", ref, digest)
		}
		return d, err
	}
	if err != nil {
		return d, err
	}
	d = content.TemplateDoomed{Version: version, At: s.cfg.Now().UTC()}
	rev, err := s.cfg.Store.Commit(ctx, store.Txn{
		Guards: []store.Guard{store.Unchanged(keys.TemplateHead(ref), head.ModRev)},
		Writes: []store.Write{store.Remove(key, version.ModRev), store.Create(doomed, d)},
	})
	if errs.Is(err, errs.AlreadyExists) {
		err = errs.New(errs.Conflict, "version %s of %s is being deleted: try again in a moment", digest, ref)
	}
	d.SetRev(rev, rev)
	return d, err
}

// users maps the digest of a version to the groups whose plans use it, or that are pinned to it.
type users map[string][]string

// users lists the users of all versions.
func (s *Service) users(ctx context.Context) (users, error) {
	plans, _, err := store.List(ctx, s.cfg.Store, keys.Plans())
	used := users{}
	for _, p := range plans {
		for _, l := range p.Plan.Layers {
			used[l.Digest] = append(used[l.Digest], string(p.Plan.Group))
		}
	}
	if err != nil {
		return nil, err
	}
	groups, _, err := store.List(ctx, s.cfg.Store, keys.Groups())
	for _, g := range groups {
		for _, h := range g.Pinned {
			used[h.Digest] = append(used[h.Digest], string(g.Name))
		}
	}
	return used, err
}

// refuse returns Conflict when a version is in use.
func (u users) refuse(ref content.TemplateRef, digest string) error {
	groups := u[digest]
	if len(groups) == 0 {
		return nil
	}
	slices.Sort(groups)
	return errs.New(errs.Conflict, "version %s of %s is in use by group %s: stop its instances, or wait an hour", digest, ref, strings.Join(slices.Compact(groups), ", "))
}

// settle completes a deletion: it restores the version if a plan uses it, and otherwise
// deletes it together with the further writes. It returns Conflict when another replica has
// settled it, and AlreadyExists when a further write is refused.
func (s *Service) settle(ctx context.Context, d content.TemplateDoomed, used users, further ...store.Write) error {
	if used[d.Version.Digest] != nil {
		return s.spare(ctx, d)
	}
	end := store.Remove(keys.TemplateDoomed(d.Version.TemplateRef, d.Version.Digest), d.ModRev)
	_, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: append(further, end)})
	return err
}

// spare restores a doomed version, unless it was published again meanwhile. It returns
// Conflict when another replica has settled it.
func (s *Service) spare(ctx context.Context, d content.TemplateDoomed) error {
	v := d.Version
	end := store.Remove(keys.TemplateDoomed(v.TemplateRef, v.Digest), d.ModRev)
	_, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{end, store.Create(keys.TemplateVersion(v.TemplateRef, v.Digest), v)}})
	if errs.Is(err, errs.AlreadyExists) {
		_, err = s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{end}})
	}
	return err
}

// settled ignores the error that another replica has settled the deletion.
func settled(err error) error {
	if errs.Is(err, errs.Conflict) {
		return nil
	}
	return err
}

// settleDoomed completes the deletions of several doomed versions.
func (s *Service) settleDoomed(ctx context.Context, doomed []content.TemplateDoomed) error {
	if len(doomed) == 0 {
		return nil
	}
	used, err := s.users(ctx)
	if err != nil {
		return err
	}
	for _, d := range doomed {
		if err := settled(s.settle(ctx, d, used)); err != nil {
			return err
		}
	}
	return nil
}

// Delete removes a template's head, and all versions that no plan uses. Instances of the
// other versions keep running, and may be moved and restarted. It returns NotFound when the
// template does not exist. It returns Conflict when an existing source would publish it
// again, or when the head moves meanwhile or is not at the requested revision. It returns
// Denied when the template defines a variable whose value is hidden from the caller.
func (s *Service) Delete(ctx context.Context, ref content.TemplateRef, by Asked) error {
	by = by.For("delete")
	_, err := s.once(ctx, ref, by, func() (content.TemplateHead, error) { return content.TemplateHead{}, s.delete(ctx, ref, by) })
	return err
}

func (s *Service) delete(ctx context.Context, ref content.TemplateRef, by Asked) error {
	head, err := s.existing(ctx, ref)
	if err != nil {
		return errs.Wrap("template.Delete", err)
	}
	if err := by.unmoved("template "+ref.String(), head.ModRev); err != nil {
		return err
	}
	if err := compose.KeepsDefinitions(head.Variables, nil, by.Shown); err != nil {
		return err
	}
	guards, err := s.deletable(ctx, head)
	if err != nil {
		return err
	}
	move := content.TemplateMove{TemplateRef: ref, Kind: content.MoveRetract, Author: by.Author, Message: "deleted"}
	remembered, err := s.remembered(ctx, by, ref, "")
	if err != nil {
		return err
	}
	if err := s.retract(ctx, head, store.Txn{Guards: guards, Writes: remembered}, move); err != nil {
		return errs.Wrap("template.Delete", err)
	}
	s.cfg.Log.Info("template deleted", "template", ref.String(), "author", by.Author)
	return errs.Wrap("template.Delete", s.deleteVersions(ctx, ref))
}

// deleteVersions deletes the unused versions of a template without a head.
func (s *Service) deleteVersions(ctx context.Context, ref content.TemplateRef) error {
	versions, _, err := store.List(ctx, s.cfg.Store, keys.TemplateVersions(ref))
	if err != nil {
		return err
	}
	return s.deleteUnused(ctx, nil, versions)
}

// deleteUnused deletes those of the versions that are not in use, provided that their
// templates' heads do not move.
func (s *Service) deleteUnused(ctx context.Context, heads map[content.TemplateRef]content.TemplateHead, versions []content.TemplateVersion) error {
	if len(versions) == 0 {
		return nil
	}
	used, err := s.users(ctx)
	if err != nil {
		return err
	}
	var doomed []content.TemplateDoomed // collected, so that all plans are listed only once
	for _, v := range versions {
		if used[v.Digest] != nil {
			continue
		}
		d, err := s.doom(ctx, heads[v.TemplateRef], v.TemplateRef, v.Digest)
		switch {
		case err == nil:
			doomed = append(doomed, d)
		case errs.Is(err, errs.Conflict), errs.Is(err, errs.NotFound): // the head moved or another replica deleted it; the next run tries again
		default:
			return err
		}
	}
	return s.settleDoomed(ctx, doomed)
}

// SettleDoomed completes the deletions that a replica left unfinished. It may also complete
// a running one, which then finds nothing left to do.
func (s *Service) SettleDoomed(ctx context.Context) error {
	doomed, _, err := store.List(ctx, s.cfg.Store, keys.TemplatesDoomed())
	if err == nil {
		err = s.settleDoomed(ctx, doomed)
	}
	return errs.Wrap("template.SettleDoomed", err)
}
