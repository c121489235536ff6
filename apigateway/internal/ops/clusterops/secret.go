package clusterops

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// SecretWrite stores a secret.
type SecretWrite struct {
	Name string
	// Values are all values by key; a value without a key has the key "". Nil keeps the present ones.
	Values map[string]string
	// Selector selects the groups that may use the secret. Nil keeps the present one.
	Selector *string
	// IfMatch is the required revision, Present or Absent; 0 accepts any.
	IfMatch int64
	// DryRun computes the result and writes nothing.
	DryRun bool
}

// Secret is a stored secret without its values, and who refers to it.
type Secret struct {
	content.Secret
	UsedBy []string
}

// Secrets returns at most n stored secrets in order of name, starting at index from, and the number
// of all.
func (o *Cluster) Secrets(ctx context.Context, from, n int) (out []Secret, total int, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) error {
		part, all, err := store.ListPart(ctx, o.Store, keys.Secrets(), from, n)
		used := o.secretUses(o.Snapshot())
		for _, one := range part {
			out = append(out, Secret{one, used[one.Name]})
		}
		total = all
		return errs.Wrap("operate.Secrets", err)
	})
	return out, total, err
}

// Secret returns a secret without its values, or NotFound.
func (o *Cluster) Secret(ctx context.Context, name string) (out Secret, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) error {
		one, err := o.secret(ctx, name)
		out = Secret{one, o.secretUses(o.Snapshot())[name]}
		return err
	})
	return out, err
}

func (o *Cluster) secret(ctx context.Context, name string) (content.Secret, error) {
	one, err := txn.GetOptional(ctx, o.Store, keys.Secret(name))
	if err == nil && one.ModRev == 0 {
		err = errs.New(errs.NotFound, "there is no secret %s", txn.Clip(name))
	}
	return one, err
}

// secretUses returns what refers to each secret, by its name, and to each value, by its reference:
// groups, templates and instances.
func (o *Cluster) secretUses(s *view.Snapshot) map[string][]string {
	out := map[string][]string{}
	note := func(value, by string) {
		ref, err := content.ParseSecretRef(value)
		if err != nil || ref.Kind != content.SecretStored {
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
			if v.Type == content.VariableSecret && v.Default != nil {
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

// WriteSecret creates or replaces a secret. before is the revision of the replaced one, 0 when it
// is new. Invalid names the wrong field, Exhausted when there are too many secrets, Conflict when a
// removed value is referred to or a group that uses it is not selected, MovedError when IfMatch does
// not match. The same values and selector write nothing.
func (o *Cluster) WriteSecret(ctx context.Context, by txn.Actor, w SecretWrite) (out Secret, before int64, err error) {
	selector, err := selectorOf(w.Selector)
	if err != nil {
		return out, 0, err
	}
	err = retried(ctx, func(ctx context.Context) error {
		old, err := txn.GetOptional(ctx, o.Store, keys.Secret(w.Name))
		if err != nil {
			return err
		}
		before = old.ModRev
		if err := txn.CheckRevision("secret "+w.Name, w.IfMatch, before); err != nil {
			return o.NameChanger(err)
		}
		w := w
		if w.Values == nil && before != 0 {
			if w.Values, err = o.valuesOf(old); err != nil {
				return err
			}
		}
		if err := txn.JoinProblems(content.ValidateSecret(w.Name, w.Values)); err != nil {
			return err
		}
		if before == 0 {
			if err := o.roomForSecret(ctx); err != nil {
				return err
			}
		}
		used := o.secretUses(o.Snapshot())
		for _, key := range old.Keys {
			ref := content.SecretRef{Kind: content.SecretStored, Of: w.Name, Key: key}.String()
			if _, kept := w.Values[key]; !kept && len(used[ref]) > 0 {
				return errs.New(errs.Conflict, "%s is used by %s: give it a value, or give them another first", ref, several(used[ref]))
			}
		}
		next, changed, err := o.nextSecret(old, w, selector, by)
		if err == nil && next.Selector.String() != old.Selector.String() {
			err = o.checkSelected(next)
		}
		out = Secret{next, used[w.Name]}
		if err != nil || !changed || w.DryRun {
			return err
		}
		said := txn.Entry{
			Action: "secret.update", Resource: "secret", ID: w.Name, Details: fmt.Sprintf("version %d", next.Version),
			Before: SecretRecord(old), After: SecretRecord(next),
		}
		if before == 0 {
			said.Action = "secret.create"
		}
		rev, err := o.RecordEntry(ctx, by, said, store.Replace(keys.Secret(w.Name), next, before))
		out.ModRev = rev
		return err
	})
	return out, before, err
}

// retried calls try within the time of a request, again after conflicts.
func retried(ctx context.Context, try func(context.Context) error) error {
	return txn.InTime(ctx, func(ctx context.Context) error {
		return txn.RetryConflicts(func() error { return try(ctx) })
	})
}

// selectorOf parses a selector. Nil stays nil. Invalid names the field.
func selectorOf(text *string) (*label.Selector, error) {
	if text == nil {
		return nil, nil
	}
	s, err := label.ParseSelector(*text)
	if err != nil {
		return nil, errs.Field("selector", "%s", errs.MessageOf(err))
	}
	return &s, nil
}

// valuesOf returns the values of a stored secret.
func (o *Cluster) valuesOf(one content.Secret) (values map[string]string, err error) {
	plain, err := o.ring.Records(content.SecretsKind).About(compose.AboutStored(one.Name)).Open(one.Sealed)
	if err == nil {
		err = json.Unmarshal(plain, &values)
	}
	if err != nil {
		return nil, errs.New(errs.Conflict, "the values of secret %s cannot be opened any more: give them again", one.Name)
	}
	return values, nil
}

// checkSelected returns Conflict, naming the groups that use a secret and may not: by their own
// values, by those of a parent, or by the defaults of templates.
func (o *Cluster) checkSelected(one content.Secret) error {
	s := o.Snapshot()
	definers := s.Definers()
	var outside []string
	for name, g := range s.Groups.All() {
		if one.ForGroup(g.Spec.Labels) == nil {
			continue
		}
		whole := s.Whole(g).Spec
		for _, refs := range compose.StoredSecrets(whole, definers.Of(name, whole)) {
			if slices.ContainsFunc(refs, func(r content.SecretRef) bool { return r.Of == one.Name }) {
				outside = append(outside, string(name))
				break
			}
		}
	}
	if len(outside) > 0 {
		slices.Sort(outside)
		return errs.New(errs.Conflict, "secret %s is used by groups whose labels do not match %s: %s; give them another value or these labels first", one.Name, one.Selector, several(outside))
	}
	return nil
}

// nextSecret returns the record for a write. A nil selector keeps the present one. changed is false
// when old has the same values and selector.
func (o *Cluster) nextSecret(old content.Secret, w SecretWrite, selector *label.Selector, by txn.Actor) (next content.Secret, changed bool, err error) {
	if selector == nil {
		selector = &old.Selector
	}
	if old.Selector.String() == selector.String() {
		if present, err := o.valuesOf(old); err == nil && maps.Equal(present, w.Values) {
			return old, false, nil
		}
	}
	box := o.ring.Records(content.SecretsKind).About(compose.AboutStored(w.Name))
	plain, err := json.Marshal(w.Values)
	if err != nil {
		return old, false, errs.WrapAs(errs.Internal, "operate.Secrets", err)
	}
	next = content.Secret{
		Rev: old.Rev, Name: w.Name, Sealed: box.Seal(plain), Keys: slices.Sorted(maps.Keys(w.Values)), Selector: *selector, Version: old.Version + 1,
		By: by.User, CreatedAt: old.CreatedAt, UpdatedAt: o.Now(),
	}
	if old.ModRev == 0 {
		next.CreatedAt = next.UpdatedAt
	}
	return next, true, nil
}

func (o *Cluster) roomForSecret(ctx context.Context) error {
	n, err := store.Count(ctx, o.Store, keys.Secrets())
	if err == nil && n >= content.MaxSecrets {
		err = errs.New(errs.Exhausted, "there are %d secrets, which is as many as may be: delete some, or put several values into one", n)
	}
	return errs.Wrap("operate.Secrets", err)
}

// DeleteSecret removes a secret. NotFound when it does not exist, Conflict with the names of what
// refers to it, MovedError when ifMatch is not 0 and not its revision. With dryRun it only checks.
func (o *Cluster) DeleteSecret(ctx context.Context, by txn.Actor, name string, ifMatch int64, dryRun bool) error {
	return txn.InTime(ctx, func(ctx context.Context) error {
		return txn.RetryConflicts(func() error {
			one, err := o.secret(ctx, name)
			if err == nil {
				err = o.NameChanger(txn.CheckRevision("secret "+name, ifMatch, one.ModRev))
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
			said := txn.Entry{Action: "secret.delete", Resource: "secret", ID: name, Before: SecretRecord(one)}
			_, err = o.RecordEntry(ctx, by, said, store.Remove(keys.Secret(name), one.ModRev))
			return err
		})
	})
}

// SecretRecord is what the audit keeps of a secret: its keys, version and selector, no values.
func SecretRecord(one content.Secret) any {
	if one.Version == 0 {
		return nil
	}
	out := map[string]any{"keys": one.Keys, "version": one.Version}
	if !one.Selector.Empty() {
		out["selector"] = one.Selector.String()
	}
	return out
}

// several joins the first names of a list.
func several(all []string) string {
	const enough = 10
	if len(all) <= enough {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:enough], ", "), len(all)-enough)
}
