package template

import (
	"context"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// A version is deleted in two steps, so that it never meets a plan that is just being
// made of it. It is doomed first: no version any more, hence in no new plan, yet its
// content stays. Then all plans are looked at: when one names it, it is a version again.
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
	head, err := s.head(ctx, ref)
	if err != nil {
		return errs.Wrap("template.DeleteVersion", err)
	}
	if head.Digest == digest {
		return errs.New(errs.Conflict, "version %s is the current one of %s: roll back to another first", digest, ref)
	}
	doomed, err := s.doom(ctx, head, ref, digest)
	if err != nil {
		return errs.Wrap("template.DeleteVersion", err)
	}
	remembered, err := s.remembered(ctx, by, ref, "")
	if err != nil {
		return err
	}
	used, err := s.settleDoomed(ctx, []fleet.TemplateDoomed{doomed}, remembered...)
	if err == nil && len(used) > 0 {
		return errs.New(errs.Conflict, "version %s of %s is in use by %s: stop what runs of it, or wait an hour", digest, ref, used[0])
	}
	if err == nil {
		s.cfg.Log.Info("template version deleted", "template", ref.String(), "digest", digest)
	}
	return errs.Wrap("template.DeleteVersion", err)
}

// doom makes a version none while the head stays as it is.
func (s *Service) doom(ctx context.Context, head fleet.TemplateHead, ref fleet.TemplateRef, digest string) (d fleet.TemplateDoomed, err error) {
	key := store.TemplateVersionKey(ref, digest)
	version, err := store.Get(ctx, s.cfg.Store, key)
	if errs.Is(err, errs.NotFound) {
		return d, errs.New(errs.NotFound, "template %s has no version %s: list its versions", ref, digest)
	}
	if err != nil {
		return d, err
	}
	d = fleet.TemplateDoomed{Version: version, At: s.cfg.Now().UTC()}
	rev, err := s.cfg.Store.Commit(ctx, store.Txn{
		Guards: []store.Guard{store.Unchanged(store.TemplateHeadKey(ref), head.ModRev)},
		Writes: []store.Write{store.Remove(key, version.ModRev), store.Create(store.TemplateDoomedKey(ref, digest), d)},
	})
	if errs.Is(err, errs.AlreadyExists) {
		err = errs.New(errs.Conflict, "version %s of %s is being deleted: try again in a moment", digest, ref)
	}
	d.SetRev(rev, rev)
	return d, err
}

// settleDoomed ends what doom began: versions that no plan names are gone for good, the
// others are versions again. used names for each of those whom it is used by; further
// writes go with each version that is gone.
func (s *Service) settleDoomed(ctx context.Context, doomed []fleet.TemplateDoomed, further ...store.Write) (used []string, err error) {
	plans, _, err := store.List(ctx, s.cfg.Store, store.Plans())
	if err != nil {
		return nil, err
	}
	users := map[string][]string{}
	for _, p := range plans {
		for _, l := range p.Plan.Layers {
			users[l.Digest] = append(users[l.Digest], string(p.Plan.Group))
		}
	}
	for _, d := range doomed {
		v := d.Version
		writes := []store.Write{store.Remove(store.TemplateDoomedKey(v.TemplateRef, v.Digest), d.ModRev)}
		if groups := users[v.Digest]; len(groups) > 0 {
			slices.Sort(groups)
			used = append(used, "group "+strings.Join(slices.Compact(groups), ", "))
			writes = append(writes, store.Create(store.TemplateVersionKey(v.TemplateRef, v.Digest), v))
		} else {
			writes = append(writes, further...)
		}
		_, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: writes})
		if err != nil && !errs.Is(err, errs.Conflict) && !errs.Is(err, errs.AlreadyExists) { // settled by another, or published anew
			return used, err
		}
	}
	return used, nil
}

// Delete removes a template: its head, and with it every version that no plan is
// composed of. What runs of the others goes on, also when it is moved or restarted.
// NotFound when there is no such template, Conflict when the head moved meanwhile or is
// not at the revision asked for, Denied when it defines a variable whose value by is not shown.
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
	move := fleet.TemplateMove{TemplateRef: ref, Kind: fleet.MoveRetract, Author: by.Author, Message: "deleted"}
	remembered, err := s.remembered(ctx, by, ref, "")
	if err != nil {
		return err
	}
	if err := s.retract(ctx, head, store.Txn{Writes: remembered}, move); err != nil {
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
	var doomed []fleet.TemplateDoomed
	for _, v := range versions {
		d, err := s.doom(ctx, fleet.TemplateHead{}, ref, v.Digest)
		switch {
		case err == nil:
			doomed = append(doomed, d)
		case errs.Is(err, errs.NotFound):
		case errs.Is(err, errs.Conflict): // it was created anew meanwhile: its versions are wanted
		default:
			return err
		}
	}
	_, err = s.settleDoomed(ctx, doomed)
	return err
}

// SettleDoomed ends the deletions that a replica left unfinished. It may meet one that
// is under way, which then finds it done.
func (s *Service) SettleDoomed(ctx context.Context) error {
	doomed, _, err := store.List(ctx, s.cfg.Store, store.TemplatesDoomed())
	if err != nil || len(doomed) == 0 {
		return errs.Wrap("template.SettleDoomed", err)
	}
	_, err = s.settleDoomed(ctx, doomed)
	return errs.Wrap("template.SettleDoomed", err)
}
