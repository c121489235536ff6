package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// SecretWrite asks for a secret to be stored.
type SecretWrite struct {
	Name string
	// Values are all its values by key, "" for the one without.
	Values map[string]string
	// IfMatch is the revision it must be at; 0 accepts any. Present and
	// Absent are revisions too.
	IfMatch int64
	// DryRun decides everything and writes nothing.
	DryRun bool
}

// Secret is a stored secret without its values, and who refers to it.
type Secret struct {
	fleet.Secret
	UsedBy []string
}

// Secrets are at most n stored secrets in order of name, from the one at from, and how many
// there are in all.
func (o *Operations) Secrets(ctx context.Context, from, n int) (out []Secret, total int, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		part, all, err := store.ListPart(ctx, o.cfg.Store, store.Secrets(), from, n)
		used := o.secretUses(o.Snapshot())
		for _, one := range part {
			out = append(out, Secret{one, used[one.Name]})
		}
		total = all
		return errs.Wrap("operate.Secrets", err)
	})
	return out, total, err
}

// Secret is one of them. NotFound when there is none.
func (o *Operations) Secret(ctx context.Context, name string) (out Secret, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		one, err := o.secret(ctx, name)
		out = Secret{one, o.secretUses(o.Snapshot())[name]}
		return err
	})
	return out, err
}

func (o *Operations) secret(ctx context.Context, name string) (fleet.Secret, error) {
	one, err := optional(ctx, o.cfg.Store, store.SecretKey(name))
	if err == nil && one.ModRev == 0 {
		err = errs.New(errs.NotFound, "there is no secret %s", clip(name))
	}
	return one, err
}

// secretUses are what refers to each stored secret, by its name, and to each of its
// values, by the reference: groups, templates, and instances that were made so.
func (o *Operations) secretUses(s *view.Snapshot) map[string][]string {
	out := map[string][]string{}
	note := func(value, by string) {
		ref, err := fleet.ParseSecretRef(value)
		if err != nil || ref.Kind != fleet.SecretStored {
			return
		}
		for _, of := range []string{ref.Of, ref.String()} {
			if !slices.Contains(out[of], by) {
				out[of] = append(out[of], by)
			}
		}
	}
	for name, g := range s.Groups.All() {
		for _, value := range g.Spec.Variables {
			note(value, "group "+string(name))
		}
	}
	for name, h := range s.TemplateHeads.All() {
		for _, v := range h.Variables {
			if v.Type == fleet.VariableSecret && v.Default != nil {
				note(*v.Default, "template "+name)
			}
		}
	}
	for _, i := range s.Instances.All() {
		by := "instance " + i.Intent.Name
		for _, value := range i.Intent.Values {
			note(value, by)
		}
		if stored, ok := s.Plans.Get(i.Intent.Plan); ok && !i.Terminal() {
			for _, ref := range stored.Plan.Secrets {
				note(ref, by)
			}
		}
	}
	for _, all := range out {
		slices.Sort(all)
	}
	return out
}

// WriteSecret stores a secret under a name, in place of what was there. before is the
// revision of that, 0 when there was none. Invalid names what is wrong, Exhausted when
// there are too many, Conflict when a value would go that is referred to, MovedError when
// IfMatch does not hold. The same values write nothing.
func (o *Operations) WriteSecret(ctx context.Context, by Actor, w SecretWrite) (out Secret, before int64, err error) {
	if err := joined(fleet.ValidateSecret(w.Name, w.Values)); err != nil {
		return out, 0, err
	}
	err = InTime(ctx, func(ctx context.Context) error {
		old, err := optional(ctx, o.cfg.Store, store.SecretKey(w.Name))
		if err != nil {
			return err
		}
		before = old.ModRev
		if err := unmoved("secret "+w.Name, w.IfMatch, before); err != nil {
			return o.blamed(err)
		}
		if before == 0 {
			if err := o.roomForSecret(ctx); err != nil {
				return err
			}
		}
		used := o.secretUses(o.Snapshot())
		for _, key := range old.Keys {
			ref := fleet.SecretRef{Kind: fleet.SecretStored, Of: w.Name, Key: key}.String()
			if _, kept := w.Values[key]; !kept && len(used[ref]) > 0 {
				return errs.New(errs.Conflict, "%s is used by %s: give it a value, or give them another first", ref, several(used[ref]))
			}
		}
		next, changed, err := o.nextSecret(old, w, by)
		out = Secret{next, used[w.Name]}
		if err != nil || !changed || w.DryRun {
			return err
		}
		said := entry{
			action: "secret.update", resource: "secret", id: w.Name, details: fmt.Sprintf("version %d", next.Version),
			before: secretRecord(old), after: secretRecord(next),
		}
		if before == 0 {
			said.action = "secret.create"
		}
		rev, err := o.record(ctx, by, said, store.Replace(store.SecretKey(w.Name), next, before))
		out.ModRev = rev
		return err
	})
	return out, before, err
}

// nextSecret is the record a write asks for; changed is false when it has those values.
func (o *Operations) nextSecret(old fleet.Secret, w SecretWrite, by Actor) (next fleet.Secret, changed bool, err error) {
	box := o.cfg.Seal.About(fleet.AboutStored(w.Name))
	if plain, err := box.Open(old.Sealed); err == nil {
		var present map[string]string
		if json.Unmarshal(plain, &present) == nil && maps.Equal(present, w.Values) {
			return old, false, nil
		}
	}
	plain, err := json.Marshal(w.Values)
	if err != nil {
		return old, false, errs.As(errs.Internal, "operate.Secrets", err)
	}
	next = fleet.Secret{
		Rev: old.Rev, Name: w.Name, Sealed: box.Seal(plain), Keys: slices.Sorted(maps.Keys(w.Values)), Version: old.Version + 1,
		By: by.User, CreatedAt: old.CreatedAt, UpdatedAt: o.now(),
	}
	if old.ModRev == 0 {
		next.CreatedAt = next.UpdatedAt
	}
	return next, true, nil
}

func (o *Operations) roomForSecret(ctx context.Context) error {
	n, err := store.Count(ctx, o.cfg.Store, store.Secrets())
	if err == nil && n >= fleet.MaxSecrets {
		err = errs.New(errs.Exhausted, "there are %d secrets, which is as many as may be: delete some, or put several values into one", n)
	}
	return errs.Wrap("operate.Secrets", err)
}

// DeleteSecret removes a secret. NotFound when there is none, Conflict naming who refers
// to it; MovedError when ifMatch, if it is not 0, does not hold. With dryRun only the
// checks are made.
func (o *Operations) DeleteSecret(ctx context.Context, by Actor, name string, ifMatch int64, dryRun bool) error {
	return InTime(ctx, func(ctx context.Context) error {
		return retried(func() error {
			one, err := o.secret(ctx, name)
			if err == nil {
				err = o.blamed(unmoved("secret "+name, ifMatch, one.ModRev))
			}
			if err != nil {
				return err
			}
			if used := o.secretUses(o.Snapshot())[name]; len(used) > 0 {
				return errs.New(errs.Conflict, "secret %s is used by %s: give them another value first", name, several(used))
			}
			if dryRun {
				return nil
			}
			said := entry{action: "secret.delete", resource: "secret", id: name, before: secretRecord(one)}
			_, err = o.record(ctx, by, said, store.Remove(store.SecretKey(name), one.ModRev))
			return err
		})
	})
}

// several are the first of many.
func several(all []string) string {
	const enough = 10
	if len(all) <= enough {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:enough], ", "), len(all)-enough)
}
