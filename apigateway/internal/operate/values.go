package operate

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// maxPlainSecret is how many bytes a secret's value may have that is given in clear.
const maxPlainSecret = 4 << 10

// settled are the values a group is to be stored with.
type settled struct {
	values map[string]string
	hidden map[string]fleet.Visibility
	guards []store.Guard
}

// settle makes the values that a write gives those a group is stored with: what is hidden
// in them from who asks stays what it is, secrets become references, and all are held to
// what the templates define. problems name every value at fault; err is the store's.
func (o *Operations) settle(ctx context.Context, s *view.Snapshot, w GroupWrite, old *fleet.Group, spec fleet.GroupSpec) (out settled, problems []error, err error) {
	definers := s.Definers()
	present := fleet.Group{Name: w.Name}
	if old != nil {
		present = *old
	}
	before := present.Conceal(definers.Of(present.Name, s.Whole(&present).Spec))
	asked := present // as it would be shown if it were written so
	asked.Spec = spec
	defined := definers.Of(w.Name, s.Whole(&asked).Spec)
	shown := asked.Conceal(defined)

	out.values = maps.Clone(spec.Variables)
	if out.values, err = keepHidden(out.values, present.Spec.Variables, before, w.Shown); err != nil {
		return out, nil, err
	}
	problems = restoreHidden(out.values, present.Spec.Variables, before, shown, w.Shown)
	sealer := sealer{o: o, subject: ofGroup(w.Name), field: "variableValues.", managed: w.ManagedBy != ""}
	for _, key := range slices.Sorted(maps.Keys(out.values)) {
		if shown[key] != fleet.VisibleToNobody || out.values[key] == fleet.Hidden {
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
	out.guards = sealer.guards
	spec.Variables = out.values
	if len(problems) == 0 && (old == nil || redefines(present.Spec, spec)) {
		asked.Spec = spec
		problems = s.Whole(&asked).Spec.CheckVariables(defined)
		if !w.FreeValues {
			problems = append(problems, fleet.CheckKnown(defined, spec.Variables, present.Spec.Variables, "variableValues")...)
		}
	}
	out.hidden = remembered(present, spec, defined)
	return out, problems, nil
}

// noSecretAnyMore refuses a value for what was a secret and is defined no more: sealed it
// would reach no instance, and in clear it would be shown.
func noSecretAnyMore(field string) error {
	return errs.Field(field, "was a secret, and none of the group's templates defines it any more: have one define it, or remove the value first; then it is a variable like any other")
}

// redefines reports whether a change concerns the variables, or what defines them: what
// others changed meanwhile must not block changes of other things.
func redefines(old, spec fleet.GroupSpec) bool {
	of := func(s fleet.GroupSpec) fleet.GroupSpec {
		return fleet.GroupSpec{Variables: s.Variables, Parent: s.Parent, Templates: s.Templates, AutoLayers: s.AutoLayers, Software: fleet.Software{Platform: s.Software.Platform}}
	}
	return !same(of(old), of(spec))
}

// restoreHidden puts the values there are in place of what stands for them.
func restoreHidden(values, present map[string]string, before, shown map[string]fleet.Visibility, most fleet.Visibility) (problems []error) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		masked := before[key].HiddenFrom(most) || shown[key].HiddenFrom(most)
		if values[key] != fleet.Hidden || !masked {
			continue
		}
		value, ok := present[key]
		if !ok {
			problems = append(problems, errs.Field("variableValues."+key, "is %s, which stands for a value that is not shown, and there is none: give one", fleet.Hidden))
			continue
		}
		values[key] = value
	}
	return problems
}

// keepHidden keeps what who asks is not shown and may not change. Denied when they try,
// also with the value there is: nobody finds it out by trying.
// Secrets are shown to nobody, and changed by whoever may write the group.
func keepHidden(values, present map[string]string, before map[string]fleet.Visibility, most fleet.Visibility) (map[string]string, error) {
	for _, key := range slices.Sorted(maps.Keys(present)) {
		if before[key] == fleet.VisibleToNobody || !before[key].HiddenFrom(most) {
			continue
		}
		given, ok := values[key]
		if ok && given != fleet.Hidden {
			return nil, &errs.Error{Kind: errs.Denied, Field: "variableValues." + key, Message: "is for administrators: leave it out, or send " + fleet.Hidden + ", and it stays what it is"}
		}
		if values == nil {
			values = map[string]string{}
		}
		values[key] = present[key]
	}
	return values, nil
}

// remembered is who is shown what of a group as it is to be stored. What is given anew is
// hidden as the templates say now.
func remembered(present fleet.Group, spec fleet.GroupSpec, defined map[string]fleet.Definition) map[string]fleet.Visibility {
	next := fleet.Group{Spec: spec, Hidden: maps.Clone(present.Hidden)}
	maps.DeleteFunc(next.Hidden, func(key string, _ fleet.Visibility) bool {
		_, known := defined[key]
		return known && spec.Variables[key] != present.Spec.Variables[key]
	})
	out := next.Conceal(defined)
	maps.DeleteFunc(out, func(key string, _ fleet.Visibility) bool { _, has := spec.Variables[key]; return !has })
	if len(out) == 0 {
		return nil
	}
	return out
}

// sealer makes references of what is given for secrets.
type sealer struct {
	o *Operations
	// subject is what a variable's value is sealed about.
	subject func(variable string) string
	// field is what the names of the values' fields begin with.
	field string
	// managed is true of what a repository declares, in which nothing stands in clear.
	managed bool
	guards  []store.Guard
}

func ofGroup(g fleet.GroupName) func(string) string {
	return func(variable string) string { return fleet.AboutGroup(g, variable) }
}

// reference is what is stored for a secret's value, of which present is there now, "" for
// none. problem says what is wrong with it; err is the store's.
func (s *sealer) reference(ctx context.Context, key, value, present string) (stored string, problem, err error) {
	at := s.field + key
	if fleet.RefersToSecret(value) {
		ref, err := fleet.ParseSecretRef(value)
		switch {
		case err != nil:
			return value, errs.Field(at, "%s", errs.MessageOf(err)), nil
		case value == present:
			return value, nil, nil
		case ref.Kind == fleet.SecretSealed:
			return value, errs.Field(at, "cannot be given sealed: give the value, or a reference"), nil
		case ref.Kind == fleet.SecretStored:
			problem, err := s.exists(ctx, at, ref)
			return value, problem, err
		}
		return value, nil, nil
	}
	switch {
	case value == fleet.Hidden:
		return value, errs.Field(at, "is %s, which stands for a value that is not shown: give the value, or a reference", fleet.Hidden), nil
	case value == "":
		return value, errs.Field(at, "is a secret and must not be empty: leave it out, or give a value"), nil
	case s.managed:
		return value, errs.Field(at, "is a secret, whose value must not stand in a repository: store it, and give a reference, secret:NAME"), nil
	case len(value) > maxPlainSecret:
		return value, errs.Field(at, "must be at most %d bytes: store a larger one, and give a reference, secret:NAME", maxPlainSecret), nil
	}
	return s.o.sealed(s.subject(key), value, present), nil, nil
}

// sealed is a value sealed about a subject; present if that is the same value.
func (o *Operations) sealed(about, value, present string) string {
	box := o.cfg.Seal.About(about)
	if there, err := fleet.ParseSecretRef(present); err == nil && there.Kind == fleet.SecretSealed { // sealing anew would look like a change
		if b, err := base64.RawURLEncoding.DecodeString(there.Of); err == nil {
			if plain, err := box.Open(b); err == nil && string(plain) == value {
				return present
			}
		}
	}
	return string(fleet.SecretSealed) + ":" + base64.RawURLEncoding.EncodeToString(box.Seal([]byte(value)))
}

// SettleDefaults makes the defaults of a template's variables those it is stored with, of
// which present are there now: what stands for a default that is not shown becomes that
// one, and a secret's becomes a reference. Definitions whose values are hidden from who is
// shown most stay as they are. Denied when they are to be changed, renamed or removed.
// problems name every one at fault. given is not changed.
func (o *Operations) SettleDefaults(ctx context.Context, given, present []fleet.Variable, most fleet.Visibility) (settled []fleet.Variable, problems []error, err error) {
	if settled, err = keepDefinitions(given, present, most); err != nil {
		return nil, nil, err
	}
	sealer := sealer{o: o, subject: fleet.AboutTemplate}
	for n, v := range settled {
		if v.Default == nil {
			continue
		}
		var old fleet.Variable
		if i := slices.IndexFunc(present, func(p fleet.Variable) bool { return p.Key == v.Key && p.Type == v.Type && p.Default != nil }); i >= 0 {
			old = present[i]
		}
		at, before := fmt.Sprintf("[%d].defaultValue", n), ""
		if old.Default != nil {
			before = *old.Default
		}
		if *v.Default == fleet.Hidden {
			hidden := old.Shown().HiddenFrom(most) || v.Shown().HiddenFrom(most)
			if old.Default == nil || !hidden && before != fleet.Hidden {
				problems = append(problems, errs.Field(at, "is %s, which stands for a value that is not shown, and there is none of this name and type: give one", fleet.Hidden))
				continue
			}
			settled[n].Default = old.Default
			continue
		}
		if v.Type != fleet.VariableSecret {
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

// keepDefinitions are those given, with the defaults that who asks is not shown. Denied
// when a definition with such a value is another or missing: the value would be lost, be
// shown once nothing hides it, or be found out by the bounds it keeps.
func keepDefinitions(given, present []fleet.Variable, most fleet.Visibility) ([]fleet.Variable, error) {
	settled := slices.Clone(given)
	for _, old := range present {
		if old.Shown() == fleet.VisibleToNobody || !old.Shown().HiddenFrom(most) {
			continue
		}
		n := slices.IndexFunc(settled, func(v fleet.Variable) bool { return v.Key == old.Key })
		kept := n >= 0 && (settled[n].Default == nil || *settled[n].Default == fleet.Hidden)
		if kept {
			settled[n].Default = old.Default
		}
		if !kept || !reflect.DeepEqual(settled[n], old) {
			return nil, &errs.Error{Kind: errs.Denied, Field: old.Key, Message: "is for administrators to change, rename or remove: send its definition as it is shown, with " + fleet.Hidden + " for its default"}
		}
	}
	return settled, nil
}

// exists refuses a reference to what is not stored, and has the write stand on it.
func (s *sealer) exists(ctx context.Context, at string, ref fleet.SecretRef) (problem, err error) {
	var one fleet.Secret
	err = InTime(ctx, func(ctx context.Context) (err error) {
		one, err = optional(ctx, s.o.cfg.Store, store.SecretKey(ref.Of))
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case one.ModRev == 0:
		return errs.Field(at, "refers to a secret that is not stored: %s; store it first", ref.Of), nil
	case !slices.Contains(one.Keys, ref.Key):
		return errs.Field(at, "refers to a value that secret %s does not have", ref.Of), nil
	}
	if len(s.guards) < maxSecretGuards {
		s.guards = append(s.guards, store.Exists(store.SecretKey(ref.Of)))
	}
	return nil, nil
}

// maxSecretGuards bounds the comparisons on secrets; etcd takes 128 in all, and those on
// groups need up to maxGuards.
const maxSecretGuards = 32

// settleStart is settle for values that are given when instances of a group are started.
func (o *Operations) settleStart(ctx context.Context, s *view.Snapshot, g *fleet.Group, r StartRequest) (map[string]string, error) {
	g = s.Whole(g)
	defined := s.Definers().Of(g.Name, g.Spec)
	values, sealer := maps.Clone(r.Values), sealer{o: o, subject: ofGroup(g.Name), field: "variables."}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if _, known := defined[key]; !known && g.Hidden[key] == fleet.VisibleToNobody {
			problems = append(problems, noSecretAnyMore(sealer.field+key))
		}
		if !defined[key].Secret() {
			continue
		}
		if !r.MayRefer && fleet.RefersToSecret(values[key]) {
			return nil, &errs.Error{Kind: errs.Denied, Field: "variables." + key, Message: "refers to a secret, which is for those who may change groups: leave it out, or give the value itself"}
		}
		if err := fleet.CheckStartSecret(values[key]); err != nil {
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
		problems = g.Spec.CheckStartValues(defined, values, !g.Spec.Static.Enabled)
	}
	return values, joined(problems)
}
