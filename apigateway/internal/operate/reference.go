package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// MovedError says that an object is not at the revision the caller named. Without Want,
// What is the whole sentence.
type MovedError struct {
	What       string
	Want, Have int64
	// By changed it last, at At; empty when nobody is known to have.
	By string
	At time.Time
}

// Error says what to do.
func (e *MovedError) Error() string {
	what, last := e.What, ""
	if e.By != "" {
		last = fmt.Sprintf("%s changed it at %s; ", e.By, e.At.Format(time.RFC3339))
	}
	switch {
	case e.Want != 0:
		return fmt.Sprintf("%s is not at revision %d any more: %sread it again", what, e.Want, last)
	case last != "":
		return fmt.Sprintf("%s (%s)", what, strings.TrimSuffix(last, "; "))
	}
	return what
}

// blamed is err, which names who changed what moved, if the audit knows.
func (o *Operations) blamed(err error) error {
	var moved *MovedError
	if !errors.As(err, &moved) || moved.Have == 0 {
		return err
	}
	for _, e := range o.Snapshot().Audit.Back() {
		if e.ModRev == moved.Have {
			moved.By, moved.At = e.Username, e.CreatedAt
			break
		}
	}
	return err
}

// What the caller of a write may name in place of a revision: there must be something to
// replace, or nothing.
const (
	Present int64 = -1
	Absent  int64 = -2
)

// unmoved is a MovedError unless what is at the revision the caller named, or none was: 0. have
// is 0 when there is nothing; Present and Absent are held against that.
func unmoved(what string, want, have int64) error {
	switch {
	case want == 0, want == have, want == Present && have != 0, want == Absent && have == 0:
		return nil
	case want == Present:
		return &MovedError{What: "there is no " + what + ", which If-Match wants to be there: leave that out to have it made"}
	case want == Absent:
		return &MovedError{What: what + " is there already, and If-None-Match: * replaces nothing", Have: have}
	}
	return &MovedError{What: what, Want: want, Have: have}
}

// references checks what a spec refers to. What the present spec refers to
// already is not asked for again: a template that went must not block other changes.
func references(s *view.Snapshot, name fleet.GroupName, present *fleet.GroupSpec, spec fleet.GroupSpec) []error {
	var old fleet.GroupSpec
	if present != nil {
		old = *present
	}
	var problems []error
	problems = append(problems, templateReferences(s, old.Templates, spec.Templates)...)
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
		if err := spec.CheckCatalog(catalog); err != nil {
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

func templateReferences(s *view.Snapshot, old, t fleet.TemplateSelection) []error {
	var problems []error
	known := func(ls []fleet.TemplateLayer, ref fleet.TemplateRef) bool {
		return slices.ContainsFunc(ls, func(l fleet.TemplateLayer) bool { return l.TemplateRef == ref })
	}
	layers := func(field string, ls, before []fleet.TemplateLayer) {
		for i, l := range ls {
			if _, ok := s.TemplateHeads.Get(l.TemplateRef.String()); !ok && !known(before, l.TemplateRef) && l.Valid() {
				problems = append(problems, errs.Field(fmt.Sprintf("templates.%s[%d]", field, i),
					"names a template that does not exist: %s; add it first: a directory that was just written appears once nothing was added to it for three seconds", clip(l.TemplateRef.String())))
			}
		}
	}
	groups := func(field string, gs, before []string) {
		for i, g := range gs {
			if !slices.Contains(before, g) && !templateGroupExists(s, g) {
				problems = append(problems, errs.Field(fmt.Sprintf("templates.%s[%d]", field, i), "names a template group without templates: %s", clip(g)))
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
func (o *Operations) storages(ctx context.Context, s *view.Snapshot, present *fleet.GroupSpec, spec fleet.GroupSpec) (problems []error, guards []store.Guard, err error) {
	var old fleet.TemplateSelection
	if present != nil {
		old = present.Templates
	}
	exists := map[string]bool{}
	check := func(field string, layers, before []fleet.TemplateLayer) error {
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
				if found && l.Storage != fleet.DirectoryOrigin && len(guards) < maxStorageGuards {
					guards = append(guards, store.Exists(store.TemplateSourceKey(l.Storage)))
				}
			}
			if head, ok := s.TemplateHeads.Get(l.TemplateRef.String()); !exists[l.Storage] {
				problems = append(problems, errs.Field(field, "names no source of templates: %s; use local, directory, or the name of a source", clip(l.Storage)))
			} else if ok && !l.From(*head) {
				problems = append(problems, errs.Field(field, "%s does not come from %s, but from %s: use local, or another template",
					clip(l.TemplateRef.String()), clip(l.Storage), cmp.Or(head.Origin, "the API")))
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
func sameStorage(a fleet.TemplateLayer) func(fleet.TemplateLayer) bool {
	return func(b fleet.TemplateLayer) bool { return b.TemplateRef == a.TemplateRef && b.Storage == a.Storage }
}

// namesStorage reports whether a spec has a layer with a storage that the present spec has
// not: a source that was decided to be deleted before must stay then.
func namesStorage(present *fleet.GroupSpec, spec fleet.GroupSpec) bool {
	var old fleet.TemplateSelection
	if present != nil {
		old = present.Templates
	}
	names := func(layers, before []fleet.TemplateLayer) bool {
		return slices.ContainsFunc(layers, func(l fleet.TemplateLayer) bool {
			return l.Storage != "" && !slices.ContainsFunc(before, sameStorage(l))
		})
	}
	return names(spec.Templates.AllOf, old.AllOf) || names(spec.Templates.OneOf, old.OneOf)
}

func (o *Operations) storageExists(ctx context.Context, name string) (bool, error) {
	if name == fleet.DirectoryOrigin || !(fleet.TemplateRef{Group: name, Name: name}).Valid() {
		return name == fleet.DirectoryOrigin, nil
	}
	source, err := optional(ctx, o.cfg.Store, store.TemplateSourceKey(name))
	return source.ModRev != 0, err
}

// storageUnused refuses to remove a source that a group's layers name.
func storageUnused(s *view.Snapshot, name string) error {
	var users []string
	for group, g := range s.Groups.All() {
		t := g.Spec.Templates
		named := func(l fleet.TemplateLayer) bool { return l.Storage == name }
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
		return []error{errs.Field(field, "names a group that does not exist: %s", clip(string(ref)))}
	}
	return nil
}

// cycles refuses a group that would, through others, become its own parent or dependency.
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

// ancestry refuses a group that would be its own ancestor, or with which it or one of those
// that inherit from it would have too many, or be what no group may be.
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
		ancestors := fleet.Ancestors(g, of)
		concerns := g == next || slices.Contains(ancestors, next)
		if !concerns || len(ancestors) == 0 || len(problems) > 0 {
			return
		}
		if last := ancestors[len(ancestors)-1]; len(ancestors) == fleet.MaxAncestors && last.Spec.Parent != "" {
			problems = append(problems, errs.Field("parent", "%s would have more than %d ancestors", g.Name, fleet.MaxAncestors))
			return
		}
		if whole := inherited(s, g, ancestors); len(whole) > 0 {
			problems = append(problems, errs.Field("parent", "with what %s inherits it would not be valid: %s %s", g.Name, errs.FieldOf(whole[0]), errs.MessageOf(whole[0])))
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

// inherited is what is wrong with a group as it would be with what it has of its ancestors,
// and was not before. Of what is wrong with it itself nothing is said.
func inherited(s *view.Snapshot, g *fleet.Group, ancestors []*fleet.Group) []error {
	var own, before *fleet.GroupSpec
	if now, ok := s.Groups.Get(g.Name); ok {
		whole := fleet.Inherit(*now, fleet.Ancestors(now, s.Groups.Get))
		own, before = &now.Spec, &whole.Spec
	}
	problems := wrong(before, fleet.Inherit(*g, ancestors).Spec)
	if len(problems) > 0 && len(wrong(own, g.Spec)) > 0 {
		return nil
	}
	return problems
}

// referred are the groups a spec refers to.
func referred(spec fleet.GroupSpec) []fleet.GroupName {
	refs := append(slices.Clone(spec.DependsOn), spec.Parent, spec.Players.FallbackGroup, spec.Players.BedrockProxyGroup)
	refs = slices.DeleteFunc(refs, func(g fleet.GroupName) bool { return g == "" })
	slices.Sort(refs)
	return slices.Compact(refs)
}

// unreferenced refuses to remove a group that others, or networks, refer to.
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

// stillUnreferenced demands that nothing has begun to name a group, or a source as storage,
// since the snapshot.
func stillUnreferenced(s *view.Snapshot) store.Guard {
	if m, ok := s.MentionMarks.Get("all"); ok {
		return store.Unchanged(store.MentionMarkKey(), m.ModRev)
	}
	return store.Missing(store.MentionMarkKey())
}

// maxProblems bounds what one answer tells of.
const maxProblems = 10

// joined makes one Invalid error of many, blaming the first field and telling of all.
func joined(problems []error) error {
	if len(problems) == 0 {
		return nil
	}
	if len(problems) == 1 {
		return problems[0]
	}
	told := make([]string, 0, min(len(problems), maxProblems))
	for _, p := range problems[:min(len(problems), maxProblems)] {
		told = append(told, strings.TrimSpace(errs.FieldOf(p)+" "+errs.MessageOf(p)))
	}
	first := errs.FieldOf(problems[0])
	return &errs.Error{
		Kind: errs.Invalid, Field: first, Message: strings.Join(told, "; "), Err: errors.Join(problems...),
	}
}

// asWritten are problems under the paths at which their fields were written; what
// says the same of one path twice, as of a port that is a whole range, says it once.
func asWritten(written func(string) string, problems []error) []error {
	if written == nil {
		return problems
	}
	var out []error
	said := map[string]bool{}
	for _, p := range problems {
		field := written(errs.FieldOf(p))
		if text := field + errs.MessageOf(p); !said[text] {
			said[text] = true
			out = append(out, &errs.Error{Kind: errs.KindOf(p), Field: field, Message: errs.MessageOf(p), Err: p})
		}
	}
	return out
}

// normal is a spec as it comes back from the store.
func normal(s fleet.GroupSpec) fleet.GroupSpec {
	var out fleet.GroupSpec
	b, err := json.Marshal(s)
	if err != nil || json.Unmarshal(b, &out) != nil {
		return s // not encodable: the commit will say so
	}
	return out
}
