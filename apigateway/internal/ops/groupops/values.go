package groupops

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// maxPlainSecret is how many bytes a secret's value may have that is given in clear.
const maxPlainSecret = 4 << 10

// settled are the values a group is to be stored with.
type settled struct {
	values map[string]string
	hidden map[string]content.Visibility
	guards []store.Guard
}

// settle turns the values of a write into those to store. Values hidden from the caller stay as
// they are, secrets become references, and templates' definitions are checked. problems lists every
// wrong value; err is the store's.
func (o *Groups) settle(ctx context.Context, s *view.Snapshot, w GroupWrite, old *fleet.Group, spec fleet.GroupSpec) (out settled, problems []error, err error) {
	definers := s.Definers()
	present := fleet.Group{Name: w.Name}
	if old != nil {
		present = *old
	}
	before := compose.Conceal(&present, definers.Of(present.Name, s.Whole(&present).Spec))
	asked := present // as shown if it were stored
	asked.Spec = spec
	defined := definers.Of(w.Name, s.Whole(&asked).Spec)
	shown := compose.Conceal(&asked, defined)

	out.values = maps.Clone(spec.Variables)
	if out.values, err = keepHidden(out.values, present.Spec.Variables, before, w.Shown); err != nil {
		return out, nil, err
	}
	problems = restoreHidden(out.values, present.Spec.Variables, before, shown, w.Shown)
	sealer := sealer{o: o, subject: ofGroup(w.Name), field: "variableValues.", labels: spec.Labels, relabelled: !maps.Equal(spec.Labels, present.Spec.Labels), managed: w.ManagedBy != ""}
	for _, key := range slices.Sorted(maps.Keys(out.values)) {
		if shown[key] != content.VisibleToNobody || out.values[key] == content.Hidden {
			continue
		}
		if _, known := defined[key]; !known {
			if out.values[key] != present.Spec.Variables[key] {
				problems = append(problems, noSecretAnyMore(sealer.field+key))
			}
			continue
		}
		value, problem, err := sealer.reference(ctx, key, out.values[key], present.Spec.Variables[key])
		if err != nil {
			return out, nil, err
		}
		if problem != nil {
			problems = append(problems, problem)
		}
		out.values[key] = value
	}
	spec.Variables = out.values
	if old == nil || sealer.relabelled || redefines(present.Spec, spec) {
		asked.Spec = spec
		for key, refs := range compose.StoredSecrets(s.Whole(&asked).Spec, defined) {
			if _, own := out.values[key]; own {
				continue // checked above
			}
			for _, ref := range refs {
				problem, err := sealer.admits(ctx, sealer.field+key, ref)
				if err != nil {
					return out, nil, err
				}
				if problem != nil {
					problems = append(problems, problem)
				}
			}
		}
	}
	out.guards = sealer.guards
	if len(problems) == 0 && (old == nil || redefines(present.Spec, spec)) {
		asked.Spec = spec
		problems = compose.CheckVariables(s.Whole(&asked).Spec, defined)
		if !w.FreeValues {
			problems = append(problems, compose.CheckKnown(defined, spec.Variables, present.Spec.Variables, "variableValues")...)
		}
	}
	out.hidden = remembered(present, spec, defined)
	return out, problems, nil
}

// noSecretAnyMore is the problem of a value that was a secret and that no template defines any
// more: sealed it would reach no instance, and in clear it would be visible.
func noSecretAnyMore(field string) error {
	return errs.Field(field, "was a secret that none of the group's templates defines any more: define it in a template, or remove the value first")
}

// redefines reports whether a change concerns variables or their definitions. Other changes must
// not fail because a template changed meanwhile.
func redefines(old, spec fleet.GroupSpec) bool {
	of := func(s fleet.GroupSpec) fleet.GroupSpec {
		return fleet.GroupSpec{Variables: s.Variables, Parent: s.Parent, Templates: s.Templates, AutoLayers: s.AutoLayers, Software: fleet.Software{Platform: s.Software.Platform}}
	}
	return !same(of(old), of(spec))
}

// restoreHidden replaces the placeholder Hidden by the present values.
func restoreHidden(values, present map[string]string, before, shown map[string]content.Visibility, most content.Visibility) (problems []error) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		masked := before[key].HiddenFrom(most) || shown[key].HiddenFrom(most)
		if values[key] != content.Hidden || !masked {
			continue
		}
		value, ok := present[key]
		if !ok {
			problems = append(problems, errs.Field("variableValues."+key, "is the placeholder %s of a hidden value, but no value is stored: give one", content.Hidden))
			continue
		}
		values[key] = value
	}
	return problems
}

// keepHidden keeps the present values that are hidden from the caller. Denied when the caller gives
// one of them, even the present one, which would reveal it. Secrets are hidden from all users, but
// writers of the group may change them.
func keepHidden(values, present map[string]string, before map[string]content.Visibility, most content.Visibility) (map[string]string, error) {
	for _, key := range slices.Sorted(maps.Keys(present)) {
		if before[key] == content.VisibleToNobody || !before[key].HiddenFrom(most) {
			continue
		}
		given, ok := values[key]
		if ok && given != content.Hidden {
			return nil, &errs.Error{Kind: errs.Denied, Field: "variableValues." + key, Message: "is for administrators: leave it out, or send " + content.Hidden + ", and it stays what it is"}
		}
		if values == nil {
			values = map[string]string{}
		}
		values[key] = present[key]
	}
	return values, nil
}

// remembered returns the visibility to store with a group's values. The templates' present
// definitions decide for values that changed.
func remembered(present fleet.Group, spec fleet.GroupSpec, defined map[string]compose.Definition) map[string]content.Visibility {
	next := fleet.Group{Spec: spec, Hidden: maps.Clone(present.Hidden)}
	maps.DeleteFunc(next.Hidden, func(key string, _ content.Visibility) bool {
		_, known := defined[key]
		return known && spec.Variables[key] != present.Spec.Variables[key]
	})
	out := compose.Conceal(&next, defined)
	maps.DeleteFunc(out, func(key string, _ content.Visibility) bool { _, has := spec.Variables[key]; return !has })
	if len(out) == 0 {
		return nil
	}
	return out
}

// sealer replaces the values of secrets by references.
type sealer struct {
	o *Groups
	// subject returns the subject for which the value of a variable is sealed.
	subject func(variable string) string
	// field is the prefix of field names in problems.
	field string
	// labels are those of the group. anyGroup is true for templates, which have no group yet.
	labels     map[string]string
	relabelled bool
	anyGroup   bool
	// managed is true for groups declared in a repository, which must not contain plain secrets.
	managed bool
	guards  []store.Guard
}

func ofGroup(g fleet.GroupName) func(string) string {
	return func(variable string) string { return compose.AboutGroup(g, variable) }
}

// reference returns what to store for a secret's value; present is the stored one, "" for none.
// problem says what is wrong with the value; err is the store's.
func (s *sealer) reference(ctx context.Context, key, value, present string) (stored string, problem, err error) {
	at := s.field + key
	if content.RefersToSecret(value) {
		ref, err := content.ParseSecretRef(value)
		switch {
		case err != nil:
			return value, errs.Field(at, "%s", errs.MessageOf(err)), nil
		case value == present && !(s.relabelled && ref.Kind == content.SecretStored):
			return value, nil, nil
		case ref.Kind == content.SecretSealed:
			return value, errs.Field(at, "cannot be given sealed: give the value, or a reference"), nil
		case ref.Kind == content.SecretStored:
			problem, err := s.exists(ctx, at, ref)
			return value, problem, err
		}
		return value, nil, nil
	}
	switch {
	case value == content.Hidden:
		return value, errs.Field(at, "is the placeholder %s of a hidden value: give the value, or a reference", content.Hidden), nil
	case value == "":
		return value, errs.Field(at, "is a secret and must not be empty: leave it out, or give a value"), nil
	case s.managed:
		return value, errs.Field(at, "is a secret, and a repository must not contain its value: store it, and give a reference, secret:NAME"), nil
	case len(value) > maxPlainSecret:
		return value, errs.Field(at, "must be at most %d bytes: store a larger one, and give a reference, secret:NAME", maxPlainSecret), nil
	}
	return s.o.sealed(s.subject(key), value, present), nil, nil
}

// sealed seals a value for a subject. It returns present when that contains the same value.
func (o *Groups) sealed(about, value, present string) string {
	box := o.seal.About(about)
	if there, err := content.ParseSecretRef(present); err == nil && there.Kind == content.SecretSealed { // sealing again would look like a change
		if b, err := base64.RawURLEncoding.DecodeString(there.Of); err == nil {
			if plain, err := box.Open(b); err == nil && string(plain) == value {
				return present
			}
		}
	}
	return string(content.SecretSealed) + ":" + base64.RawURLEncoding.EncodeToString(box.Seal([]byte(value)))
}

// SettleDefaults turns the default values of a template's variables into those to store. The
// placeholder Hidden becomes the present default, and secrets become references. Denied when the
// caller, with visibility most, changes, renames or removes a definition whose value is hidden from
// them. problems lists every wrong value. given is not changed.
func (o *Groups) SettleDefaults(ctx context.Context, given, present []content.Variable, most content.Visibility) (settled []content.Variable, problems []error, err error) {
	if settled, err = keepDefinitions(given, present, most); err != nil {
		return nil, nil, err
	}
	sealer := sealer{o: o, subject: compose.AboutTemplate, anyGroup: true}
	for n, v := range settled {
		if v.Default == nil {
			continue
		}
		var old content.Variable
		if i := slices.IndexFunc(present, func(p content.Variable) bool { return p.Key == v.Key && p.Type == v.Type && p.Default != nil }); i >= 0 {
			old = present[i]
		}
		at, before := fmt.Sprintf("[%d].defaultValue", n), ""
		if old.Default != nil {
			before = *old.Default
		}
		if *v.Default == content.Hidden {
			hidden := old.Shown().HiddenFrom(most) || v.Shown().HiddenFrom(most)
			if old.Default == nil || !hidden && before != content.Hidden {
				problems = append(problems, errs.Field(at, "is the placeholder %s of a hidden value, but no value of this name and type is stored: give one", content.Hidden))
				continue
			}
			settled[n].Default = old.Default
			continue
		}
		if v.Type != content.VariableSecret {
			continue
		}
		sealer.field = at + " "
		value, problem, err := sealer.reference(ctx, v.Key, *v.Default, before)
		if err != nil {
			return nil, nil, err
		}
		if problem != nil {
			problems = append(problems, problem)
		}
		settled[n].Default = &value
	}
	return settled, problems, nil
}

// keepDefinitions returns the given definitions with the defaults that are hidden from the caller.
// Denied when a definition with such a default changed or is missing: the value would be lost,
// become visible, or could be guessed by its bounds.
func keepDefinitions(given, present []content.Variable, most content.Visibility) ([]content.Variable, error) {
	settled := slices.Clone(given)
	for _, old := range present {
		if old.Shown() == content.VisibleToNobody || !old.Shown().HiddenFrom(most) {
			continue
		}
		n := slices.IndexFunc(settled, func(v content.Variable) bool { return v.Key == old.Key })
		kept := n >= 0 && (settled[n].Default == nil || *settled[n].Default == content.Hidden)
		if kept {
			settled[n].Default = old.Default
		}
		if !kept || !reflect.DeepEqual(settled[n], old) {
			return nil, &errs.Error{Kind: errs.Denied, Field: old.Key, Message: "is for administrators to change, rename or remove: send its definition as it is shown, with " + content.Hidden + " for its default"}
		}
	}
	return settled, nil
}

// exists returns a problem if ref refers to a missing secret or value, or to one of other groups.
// Otherwise it adds a guard on the secret.
func (s *sealer) exists(ctx context.Context, at string, ref content.SecretRef) (problem, err error) {
	one, err := s.secret(ctx, ref)
	switch {
	case err != nil:
		return nil, err
	case one.ModRev == 0:
		return errs.Field(at, "refers to a secret that is not stored: %s; store it first", ref.Of), nil
	case !slices.Contains(one.Keys, ref.Key):
		return errs.Field(at, "refers to a value that secret %s does not have", ref.Of), nil
	}
	return s.admitted(at, one), nil
}

// admits returns a problem if the group may not use a secret, which its parent or a template names. A
// missing one is found when an instance starts.
func (s *sealer) admits(ctx context.Context, at string, ref content.SecretRef) (problem, err error) {
	one, err := s.secret(ctx, ref)
	if err != nil || one.ModRev == 0 {
		return nil, err
	}
	return s.admitted(at, one), nil
}

func (s *sealer) secret(ctx context.Context, ref content.SecretRef) (one content.Secret, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) (err error) {
		one, err = txn.GetOptional(ctx, s.o.Store, keys.Secret(ref.Of))
		return err
	})
	return one, err
}

// admitted returns a problem if the group may not use a secret. Otherwise it adds a guard on the secret.
func (s *sealer) admitted(at string, one content.Secret) error {
	if err := one.ForGroup(s.labels); err != nil && !s.anyGroup {
		return errs.Field(at, "cannot be used: %s", errs.MessageOf(err))
	}
	if len(s.guards) < maxSecretGuards {
		s.guards = append(s.guards, store.Unchanged(keys.Secret(one.Name), one.ModRev))
	}
	return nil
}

// maxSecretGuards bounds the comparisons on secrets; etcd takes 128 in all, and those on
// groups need up to maxGuards.
const maxSecretGuards = 32

// SettleStart returns the values that instances of a group are started with: given, with their
// secrets turned into references. Denied when given refers to a secret and mayRefer is false.
func (o *Groups) SettleStart(ctx context.Context, s *view.Snapshot, g *fleet.Group, given map[string]string, mayRefer bool) (map[string]string, error) {
	g = s.Whole(g)
	defined := s.Definers().Of(g.Name, g.Spec)
	values, sealer := maps.Clone(given), sealer{o: o, subject: ofGroup(g.Name), field: "variables.", labels: g.Spec.Labels}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if _, known := defined[key]; !known && g.Hidden[key] == content.VisibleToNobody {
			problems = append(problems, noSecretAnyMore(sealer.field+key))
		}
		if !defined[key].Secret() {
			continue
		}
		if !mayRefer && content.RefersToSecret(values[key]) {
			return nil, &errs.Error{Kind: errs.Denied, Field: "variables." + key, Message: "refers to a secret, which is for those who may change groups: leave it out, or give the value itself"}
		}
		if err := content.CheckStartSecret(values[key]); err != nil {
			problems = append(problems, errs.Field("variables."+key, "%s; store the secret, and give a reference", errs.MessageOf(err)))
			continue
		}
		value, problem, err := sealer.reference(ctx, key, values[key], "")
		if err != nil {
			return nil, err
		}
		if problem != nil {
			problems = append(problems, problem)
		}
		values[key] = value
	}
	if len(problems) == 0 {
		problems = compose.CheckStartValues(g.Spec, defined, values, !g.Spec.Static.Enabled)
	}
	return values, txn.JoinProblems(problems)
}
