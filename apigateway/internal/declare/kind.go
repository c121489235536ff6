package declare

import (
	"context"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// kind is a kind of things that sources declare.
type kind struct {
	// list is all that is declared, in the order it is to be made.
	list func(context.Context) ([]object, error)
	told store.Prefix[fleet.DeclaredStatus]
	key  func(source, name string) store.Key[fleet.DeclaredStatus]
	// status is an empty one.
	status func(name string) fleet.DeclaredStatus
	// missing compares that something is not declared.
	missing func(source, name string) store.Guard
	make    func(context.Context, object, map[string]fleet.TemplateSource) (fleet.DeclaredState, error)
}

// object is one declared thing.
type object struct {
	fleet.Declaration
	name string
	rev  int64
	// unchanged compares that its record is as it was read; remove removes that.
	unchanged store.Guard
	remove    store.Write
}

// objects are all that is declared of one kind.
func objects[T any](ctx context.Context, c *store.Client, list store.Prefix[T], key func(source, name string) store.Key[T], open func(T) (fleet.Declaration, string, int64)) ([]object, error) {
	all, _, err := store.List(ctx, c, list)
	out := make([]object, 0, len(all))
	for _, one := range all {
		d, name, rev := open(one)
		k := key(d.Source, name)
		out = append(out, object{Declaration: d, name: name, rev: rev, unchanged: store.Unchanged(k, rev), remove: store.Remove(k, rev)})
	}
	return out, err
}

func groupKey(source, name string) store.Key[fleet.DeclaredGroup] {
	return store.DeclaredGroupKey(source, fleet.GroupName(name))
}

func (a *Applier) groups() kind {
	return kind{
		list: func(ctx context.Context) ([]object, error) {
			return objects(ctx, a.cfg.Store, store.DeclaredGroups(), groupKey, func(d fleet.DeclaredGroup) (fleet.Declaration, string, int64) {
				return d.Declaration, string(d.Group), d.ModRev
			})
		},
		told: store.DeclaredStatuses(),
		key: func(source, name string) store.Key[fleet.DeclaredStatus] {
			return store.DeclaredStatusKey(source, fleet.GroupName(name))
		},
		status:  func(name string) fleet.DeclaredStatus { return fleet.DeclaredStatus{Group: fleet.GroupName(name)} },
		missing: func(source, name string) store.Guard { return store.Missing(groupKey(source, name)) },
		make:    a.makeGroup,
	}
}

func (a *Applier) makeGroup(ctx context.Context, d object, sources map[string]fleet.TemplateSource) (fleet.DeclaredState, error) {
	by, name := operate.Actor{User: "gitops " + d.Source}, fleet.GroupName(d.name)
	group, exists := a.cfg.Operations.Snapshot().Groups.Get(name)
	if exists {
		if err := mine("group", group.ManagedBy, d.Source, sources); err != nil {
			if d.Removed {
				return fleet.DeclaredRemoved, nil // nothing of the source's is there
			}
			return fleet.DeclaredConflict, err
		}
	}
	switch {
	case d.Removed && (!exists || group.ManagedBy != d.Source): // or nobody's any more
		return fleet.DeclaredRemoved, nil
	case d.Removed && group.Deleting:
		return fleet.DeclaredRemoving, nil
	case d.Removed:
		source := store.Unchanged(store.TemplateSourceKey(d.Source), sources[d.Source].ModRev)
		if _, err := a.cfg.Operations.DeleteGroup(ctx, by, name, group.ModRev, false, d.unchanged, source); err != nil {
			return "", err
		}
		return fleet.DeclaredRemoving, nil
	}
	read := a.cfg.ReadGroup
	if d.Universe {
		read = a.cfg.ReadConfiguration
	}
	w, err := read(name, d.Spec)
	if err != nil {
		return "", errs.New(errs.KindOf(err), "%s: %s", d.File, sentence(err))
	}
	w.Mode, w.ManagedBy, w.Guards = operate.Create, d.Source, []store.Guard{d.unchanged}
	w.Shown = fleet.VisibleToAdmins // whoever writes to the repository writes all of the group
	if exists {
		w.Mode, w.IfMatch = operate.Put, group.ModRev
	}
	if _, err := a.cfg.Operations.WriteGroup(ctx, by, w); lostRace(err) {
		return "", err
	} else if err != nil {
		return "", errs.New(errs.KindOf(err), "%s: %s", d.File, sentence(err))
	}
	return fleet.DeclaredInSync, nil
}
