package groupops

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// references checks the objects a spec refers to. It skips references that the present spec has
// too: a deleted template must not block other changes.
func references(s *view.Snapshot, name fleet.GroupName, present *fleet.GroupSpec, spec fleet.GroupSpec) []error {
	var old fleet.GroupSpec
	if present != nil {
		old = *present
	}
	var problems []error
	problems = append(problems, templateReferences(s, old.Templates, spec.Templates)...)
	problems = append(problems, names(s, name, present, spec)...)
	if spec.Parent != "" && spec.Parent != old.Parent {
		problems = append(problems, groupReference(s, "parent", name, spec.Parent)...)
	}
	if to := spec.Players.FallbackGroup; to != "" && to != old.Players.FallbackGroup {
		problems = append(problems, groupReference(s, "fallbackGroup", name, to)...)
	}
	if to := spec.Players.BedrockProxyGroup; to != "" && to != old.Players.BedrockProxyGroup {
		problems = append(problems, groupReference(s, "bedrockProxyGroup", name, to)...)
	}
	if catalog, ok := s.Catalog.Get(spec.Software.Platform); ok && (present == nil || spec.Software.PlatformVersion != old.Software.PlatformVersion || spec.Software.Platform != old.Software.Platform) {
		if err := compose.CheckCatalog(spec, catalog); err != nil {
			problems = append(problems, err)
		}
	}
	for i, d := range spec.DependsOn {
		if !slices.Contains(old.DependsOn, d) {
			problems = append(problems, groupReference(s, fmt.Sprintf("dependsOn[%d]", i), name, d)...)
		}
	}
	if len(problems) == 0 {
		problems = append(problems, cycles(s, name, spec)...)
	}
	return problems
}

func templateReferences(s *view.Snapshot, old, t content.TemplateSelection) []error {
	var problems []error
	known := func(ls []content.TemplateLayer, ref content.TemplateRef) bool {
		return slices.ContainsFunc(ls, func(l content.TemplateLayer) bool { return l.TemplateRef == ref })
	}
	layers := func(field string, ls, before []content.TemplateLayer) {
		for i, l := range ls {
			if _, ok := s.TemplateHeads.Get(l.TemplateRef.String()); !ok && !known(before, l.TemplateRef) && l.Valid() {
				problems = append(problems, errs.Field(fmt.Sprintf("templates.%s[%d]", field, i),
					"names a template that does not exist: %s; add it first: a directory that was just written appears once nothing was added to it for three seconds", txn.Clip(l.TemplateRef.String())))
			}
		}
	}
	groups := func(field string, gs, before []string) {
		for i, g := range gs {
			if !slices.Contains(before, g) && !templateGroupExists(s, g) {
				problems = append(problems, errs.Field(fmt.Sprintf("templates.%s[%d]", field, i), "names a template group without templates: %s", txn.Clip(g)))
			}
		}
	}
	layers("allOf", t.AllOf, old.AllOf)
	layers("oneOf", t.OneOf, old.OneOf)
	groups("allInGroups", t.AllInGroups, old.AllInGroups)
	groups("oneInGroups", t.OneInGroups, old.OneInGroups)
	return problems
}

// storages checks the storages that a spec's layers name. As with references, a layer that
// the present spec has is not checked again. The sources that are checked must still exist
// when the spec is written: see namesStorage for the other direction.
func (o *Groups) storages(ctx context.Context, s *view.Snapshot, present *fleet.GroupSpec, spec fleet.GroupSpec) (problems []error, guards []store.Guard, err error) {
	var old content.TemplateSelection
	if present != nil {
		old = present.Templates
	}
	// exists caches whether a template source exists.
	exists := map[string]bool{}
	check := func(field string, layers, before []content.TemplateLayer) error {
		for i, l := range layers {
			if l.Storage == "" || slices.ContainsFunc(before, sameStorage(l)) {
				continue
			}
			field := fmt.Sprintf("templates.%s[%d].storage", field, i)
			if _, asked := exists[l.Storage]; !asked {
				found, err := o.storageExists(ctx, l.Storage)
				if err != nil {
					return err
				}
				exists[l.Storage] = found
				if found && l.Storage != content.DirectoryOrigin && len(guards) < maxStorageGuards {
					guards = append(guards, store.Exists(keys.TemplateSource(l.Storage)))
				}
			}
			if head, ok := s.TemplateHeads.Get(l.TemplateRef.String()); !exists[l.Storage] {
				problems = append(problems, errs.Field(field, "names no source of templates: %s; use local, directory, or the name of a source", txn.Clip(l.Storage)))
			} else if ok && !l.From(*head) {
				problems = append(problems, errs.Field(field, "%s does not come from %s, but from %s: use local, or another template",
					txn.Clip(l.TemplateRef.String()), txn.Clip(l.Storage), cmp.Or(head.Origin, "the API")))
			}
		}
		return nil
	}
	if err = check("allOf", spec.Templates.AllOf, old.AllOf); err == nil {
		err = check("oneOf", spec.Templates.OneOf, old.OneOf)
	}
	return problems, guards, err
}

// maxStorageGuards bounds the comparisons on sources; see maxSecretGuards.
const maxStorageGuards = 16

// sameStorage reports whether two layers take the same template from the same storage.
func sameStorage(a content.TemplateLayer) func(content.TemplateLayer) bool {
	return func(b content.TemplateLayer) bool { return b.TemplateRef == a.TemplateRef && b.Storage == a.Storage }
}

// namesStorage reports whether a spec has a layer with a storage that the present spec has
// not: a source that was decided to be deleted before must stay then.
func namesStorage(present *fleet.GroupSpec, spec fleet.GroupSpec) bool {
	var old content.TemplateSelection
	if present != nil {
		old = present.Templates
	}
	names := func(layers, before []content.TemplateLayer) bool {
		return slices.ContainsFunc(layers, func(l content.TemplateLayer) bool {
			return l.Storage != "" && !slices.ContainsFunc(before, sameStorage(l))
		})
	}
	return names(spec.Templates.AllOf, old.AllOf) || names(spec.Templates.OneOf, old.OneOf)
}

func (o *Groups) storageExists(ctx context.Context, name string) (bool, error) {
	if name == content.DirectoryOrigin || !(content.TemplateRef{Group: name, Name: name}).Valid() {
		return name == content.DirectoryOrigin, nil
	}
	source, err := txn.GetOptional(ctx, o.Store, keys.TemplateSource(name))
	return source.ModRev != 0, err
}

// StorageUnused returns an error when a group's layer names the source.
func StorageUnused(s *view.Snapshot, name string) error {
	var users []string
	for group, g := range s.Groups.All() {
		t := g.Spec.Templates
		named := func(l content.TemplateLayer) bool { return l.Storage == name }
		if !g.Deleting && (slices.ContainsFunc(t.AllOf, named) || slices.ContainsFunc(t.OneOf, named)) {
			users = append(users, string(group))
		}
	}
	if len(users) == 0 {
		return nil
	}
	slices.Sort(users)
	return errs.New(errs.Conflict, "source %s is the storage of templates of %s: change those groups first", name, strings.Join(users[:min(len(users), 10)], ", "))
}

func templateGroupExists(s *view.Snapshot, group string) bool {
	for _, h := range s.TemplateHeads.All() {
		if h.Group == group {
			return true
		}
	}
	return false
}

func groupReference(s *view.Snapshot, field string, self, ref fleet.GroupName) []error {
	if ref == self {
		return []error{errs.Field(field, "%s cannot refer to itself", self)}
	}
	if g, ok := s.Groups.Get(ref); ref.Validate() == nil && (!ok || g.Deleting) {
		return []error{errs.Field(field, "names a group that does not exist: %s", txn.Clip(string(ref)))}
	}
	return nil
}

// cycles returns problems when a group would become its own parent or dependency through other
// groups.
func cycles(s *view.Snapshot, name fleet.GroupName, spec fleet.GroupSpec) []error {
	specOf := func(g fleet.GroupName) fleet.GroupSpec {
		if other, ok := s.Groups.Get(g); ok {
			return other.Spec
		}
		return fleet.GroupSpec{}
	}
	if problems := ancestry(s, name, spec); len(problems) > 0 {
		return problems
	}
	seen := map[fleet.GroupName]bool{}
	next := slices.Clone(spec.DependsOn)
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		if at == name {
			return []error{errs.Field("dependsOn", "%s would depend on itself through others", name)}
		}
		if !seen[at] {
			seen[at] = true
			next = append(next, specOf(at).DependsOn...)
		}
	}
	return nil
}

// ancestry returns problems when a group would become its own ancestor, or when it or a group that
// inherits from it would have too many ancestors or an invalid spec.
func ancestry(s *view.Snapshot, name fleet.GroupName, spec fleet.GroupSpec) (problems []error) {
	next := &fleet.Group{Name: name, Spec: spec}
	of := func(n fleet.GroupName) (*fleet.Group, bool) {
		if n == name {
			return next, true
		}
		return s.Groups.Get(n)
	}
	above := map[fleet.GroupName]bool{}
	for at := spec.Parent; at != ""; {
		if at == name {
			return []error{errs.Field("parent", "%s would be its own ancestor", name)}
		}
		parent, ok := of(at)
		if !ok || above[at] {
			break
		}
		above[at], at = true, parent.Spec.Parent
	}
	check := func(g *fleet.Group) {
		ancestors := compose.Ancestors(g, of)
		concerns := g == next || slices.Contains(ancestors, next)
		if !concerns || len(ancestors) == 0 || len(problems) > 0 {
			return
		}
		if last := ancestors[len(ancestors)-1]; len(ancestors) == compose.MaxAncestors && last.Spec.Parent != "" {
			problems = append(problems, errs.Field("parent", "%s would have more than %d ancestors", g.Name, compose.MaxAncestors))
			return
		}
		if whole := inherited(s, g, ancestors); len(whole) > 0 {
			problems = append(problems, errs.Field("parent", "gives %s a value that is not valid there: %s %s", g.Name, errs.FieldOf(whole[0]), errs.MessageOf(whole[0])))
		}
	}
	check(next)
	for n, g := range s.Groups.All() {
		if n != name && g.Spec.Parent != "" && !g.Deleting {
			check(g)
		}
	}
	return problems
}

// inherited returns the problems of a group's resolved spec that the present one does not have. If the
// group's own spec has new problems, it returns nil, because those are reported already.
func inherited(s *view.Snapshot, g *fleet.Group, ancestors []*fleet.Group) []error {
	var own, before *fleet.GroupSpec
	if now, ok := s.Groups.Get(g.Name); ok {
		whole := compose.Inherit(*now, compose.Ancestors(now, s.Groups.Get))
		own, before = &now.Spec, &whole.Spec
	}
	problems := wrong(before, compose.Inherit(*g, ancestors).Spec)
	if len(problems) > 0 && len(wrong(own, g.Spec)) > 0 {
		return nil
	}
	return problems
}

// referred returns the groups a spec refers to.
func referred(spec fleet.GroupSpec) []fleet.GroupName {
	refs := append(slices.Clone(spec.DependsOn), spec.Parent, spec.Players.FallbackGroup, spec.Players.BedrockProxyGroup)
	refs = slices.DeleteFunc(refs, func(g fleet.GroupName) bool { return g == "" })
	slices.Sort(refs)
	return slices.Compact(refs)
}

// unreferenced returns an error when other groups or networks refer to a group.
func unreferenced(s *view.Snapshot, name fleet.GroupName) error {
	var users []string
	for n, g := range s.Groups.All() {
		if !g.Deleting && slices.Contains(referred(g.Spec), name) {
			users = append(users, string(n))
		}
	}
	if len(users) == 0 {
		return unnamed(s, name)
	}
	return errs.New(errs.Invalid, "group %s is the parent, dependsOn, fallbackGroup or bedrockProxyGroup of %s: change those first", name, strings.Join(users[:min(len(users), 10)], ", "))
}

// StillUnreferenced returns a guard that fails when a group, or a source as storage, was newly
// referred to since the snapshot.
func StillUnreferenced(s *view.Snapshot) store.Guard {
	if m, ok := s.MentionMarks.Get("all"); ok {
		return store.Unchanged(keys.MentionMark(), m.ModRev)
	}
	return store.Missing(keys.MentionMark())
}

// normal returns a spec as the store would return it.
func normal(s fleet.GroupSpec) fleet.GroupSpec {
	var out fleet.GroupSpec
	b, err := json.Marshal(s)
	if err != nil || json.Unmarshal(b, &out) != nil {
		return s // cannot be encoded: the commit will fail
	}
	return out
}

// unnamed returns an error when a network names the group.
func unnamed(s *view.Snapshot, name fleet.GroupName) error {
	var users []string
	for _, n := range s.Networks.All() {
		if n.Names(name) {
			users = append(users, n.Name)
		}
	}
	if len(users) == 0 {
		return nil
	}
	return errs.New(errs.Invalid, "group %s is named by %s: change that first", name, txn.ListOf("network", users))
}
