package template

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// A version is deleted in two steps, so that it never meets a plan that is just being
// made of it. It is doomed first: no version any more, hence in no new plan, yet its
// content stays. Then all plans are looked at: when one names it, it is a version again.
// What a plan names to begin with is not doomed at all.
//
//	version ──▶ doomed ──▶ gone
//	   ▲          │ a plan names it
//	   └──────────┘

// DeleteVersion deletes a version. NotFound when there is none; Conflict when it is the
// head, or a plan is composed of it: instances are, or were within the hour.
func (s *Service) DeleteVersion(ctx context.Context, ref fleet.TemplateRef, digest string, by Asked) error {
	by = by.For("delete version", digest)
	_, err := s.once(ctx, ref, by, func() (fleet.TemplateHead, error) {
		return fleet.TemplateHead{}, s.deleteVersion(ctx, ref, digest, by)
	})
	return err
}

func (s *Service) deleteVersion(ctx context.Context, ref fleet.TemplateRef, digest string, by Asked) error {
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

// deleteDoomed ends the deletion of a version that was asked for, which may turn out to
// be in use.
func (s *Service) deleteDoomed(ctx context.Context, d fleet.TemplateDoomed, used users, by Asked) error {
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
	case errs.Is(err, errs.AlreadyExists): // the operation was another change, which was made just now: this one is not
		return errors.Join(err, settled(s.spare(ctx, d)))
	case errs.Is(err, errs.Conflict): // settled by another
		_, err = store.Get(ctx, s.cfg.Store, store.TemplateVersionKey(ref, digest))
		if err == nil {
			return errs.New(errs.Conflict, "version %s of %s has come into use just now: stop what runs of it, or wait an hour", digest, ref)
		}
		if errs.Is(err, errs.NotFound) {
			_, err = s.cfg.Store.Commit(ctx, store.Txn{Writes: remembered})
		}
	}
	return err
}

// doomOld dooms a version that is neither the head, however often that moves meanwhile,
// nor in use.
func (s *Service) doomOld(ctx context.Context, ref fleet.TemplateRef, digest string, used users) (d fleet.TemplateDoomed, err error) {
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
	return d, errs.New(errs.Conflict, "template %s is being changed by others all the time: try again", ref)
}

// doom makes a version none while the head stays as it is. One that is doomed already
// is taken over: whoever began may have died.
func (s *Service) doom(ctx context.Context, head fleet.TemplateHead, ref fleet.TemplateRef, digest string) (d fleet.TemplateDoomed, err error) {
	key, doomed := store.TemplateVersionKey(ref, digest), store.TemplateDoomedKey(ref, digest)
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
	d = fleet.TemplateDoomed{Version: version, At: s.cfg.Now().UTC()}
	rev, err := s.cfg.Store.Commit(ctx, store.Txn{
		Guards: []store.Guard{store.Unchanged(store.TemplateHeadKey(ref), head.ModRev)},
		Writes: []store.Write{store.Remove(key, version.ModRev), store.Create(doomed, d)},
	})
	if errs.Is(err, errs.AlreadyExists) {
		err = errs.New(errs.Conflict, "version %s of %s is being deleted: try again in a moment", digest, ref)
	}
	d.SetRev(rev, rev)
	return d, err
}

// users are the groups whose plans name a version, by its digest.
type users map[string][]string

// users looks at all plans.
func (s *Service) users(ctx context.Context) (users, error) {
	plans, _, err := store.List(ctx, s.cfg.Store, store.Plans())
	used := users{}
	for _, p := range plans {
		for _, l := range p.Plan.Layers {
			used[l.Digest] = append(used[l.Digest], string(p.Plan.Group))
		}
	}
	return used, err
}

// refuse is a Conflict when a version is in use.
func (u users) refuse(ref fleet.TemplateRef, digest string) error {
	groups := u[digest]
	if len(groups) == 0 {
		return nil
	}
	slices.Sort(groups)
	return errs.New(errs.Conflict, "version %s of %s is in use by group %s: stop what runs of it, or wait an hour", digest, ref, strings.Join(slices.Compact(groups), ", "))
}

// settle ends what doom began: a version that no plan names is gone for good, with
// further writes; another is a version again. Conflict when another has settled it,
// AlreadyExists when one of the further writes is refused.
func (s *Service) settle(ctx context.Context, d fleet.TemplateDoomed, used users, further ...store.Write) error {
	if used[d.Version.Digest] != nil {
		return s.spare(ctx, d)
	}
	end := store.Remove(store.TemplateDoomedKey(d.Version.TemplateRef, d.Version.Digest), d.ModRev)
	_, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: append(further, end)})
	return err
}

// spare makes what is doomed a version again, unless it was published anew meanwhile.
// Conflict when another has settled it.
func (s *Service) spare(ctx context.Context, d fleet.TemplateDoomed) error {
	v := d.Version
	end := store.Remove(store.TemplateDoomedKey(v.TemplateRef, v.Digest), d.ModRev)
	_, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{end, store.Create(store.TemplateVersionKey(v.TemplateRef, v.Digest), v)}})
	if errs.Is(err, errs.AlreadyExists) {
		_, err = s.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{end}})
	}
	return err
}

// settled is the error of settle where it does not matter by whom.
func settled(err error) error {
	if errs.Is(err, errs.Conflict) {
		return nil
	}
	return err
}

// settleDoomed ends what doom began of several versions.
func (s *Service) settleDoomed(ctx context.Context, doomed []fleet.TemplateDoomed) error {
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

// Delete removes a template: its head, and with it every version that no plan is
// composed of. What runs of the others goes on, also when it is moved or restarted.
// NotFound when there is no such template, Conflict when a living source would bring it
// again, or the head moved meanwhile or is not at the revision asked for, Denied when it defines a variable whose value by is not shown.
func (s *Service) Delete(ctx context.Context, ref fleet.TemplateRef, by Asked) error {
	by = by.For("delete")
	_, err := s.once(ctx, ref, by, func() (fleet.TemplateHead, error) { return fleet.TemplateHead{}, s.delete(ctx, ref, by) })
	return err
}

func (s *Service) delete(ctx context.Context, ref fleet.TemplateRef, by Asked) error {
	head, err := s.existing(ctx, ref)
	if err != nil {
		return errs.Wrap("template.Delete", err)
	}
	if err := by.unmoved("template "+ref.String(), head.ModRev); err != nil {
		return err
	}
	if err := fleet.KeepsDefinitions(head.Variables, nil, by.Shown); err != nil {
		return err
	}
	guards, err := s.deletable(ctx, head)
	if err != nil {
		return err
	}
	move := fleet.TemplateMove{TemplateRef: ref, Kind: fleet.MoveRetract, Author: by.Author, Message: "deleted"}
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

// deleteVersions deletes the versions of a template without a head, but those in use.
func (s *Service) deleteVersions(ctx context.Context, ref fleet.TemplateRef) error {
	versions, _, err := store.List(ctx, s.cfg.Store, store.TemplateVersions(ref))
	if err != nil {
		return err
	}
	return s.deleteUnused(ctx, nil, versions)
}

// deleteUnused deletes versions but those that are in use, while their templates' heads
// stay as they are.
func (s *Service) deleteUnused(ctx context.Context, heads map[fleet.TemplateRef]fleet.TemplateHead, versions []fleet.TemplateVersion) error {
	if len(versions) == 0 {
		return nil
	}
	used, err := s.users(ctx)
	if err != nil {
		return err
	}
	var doomed []fleet.TemplateDoomed // all plans are looked at once for all of them
	for _, v := range versions {
		if used[v.Digest] != nil {
			continue
		}
		d, err := s.doom(ctx, heads[v.TemplateRef], v.TemplateRef, v.Digest)
		switch {
		case err == nil:
			doomed = append(doomed, d)
		case errs.Is(err, errs.Conflict), errs.Is(err, errs.NotFound): // the head moved, or another replica did it: the next time
		default:
			return err
		}
	}
	return s.settleDoomed(ctx, doomed)
}

// SettleDoomed ends the deletions that a replica left unfinished. It may meet one that
// is under way, which then finds it done.
func (s *Service) SettleDoomed(ctx context.Context) error {
	doomed, _, err := store.List(ctx, s.cfg.Store, store.TemplatesDoomed())
	if err == nil {
		err = s.settleDoomed(ctx, doomed)
	}
	return errs.Wrap("template.SettleDoomed", err)
}
