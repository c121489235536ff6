package gitops

import (
	"context"

	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// kind is a kind of declared object: groups or catalog entries.
type kind struct {
	// list returns all declared objects in the order to apply them.
	list     func(context.Context) ([]object, error)
	statuses keys.Prefix[compose.DeclaredStatus]
	key      func(source, name string) keys.Key[compose.DeclaredStatus]
	// status returns an empty status.
	status func(name string) compose.DeclaredStatus
	// missing is a precondition: the object is not declared.
	missing func(source, name string) store.Guard
	make    func(context.Context, object, map[string]content.TemplateSource) (compose.DeclaredState, error)
}

// object is one declared object.
type object struct {
	compose.Declaration
	name string
	rev  int64
	// unchanged is a precondition: the record is as it was read. remove removes the record.
	unchanged store.Guard
	remove    store.Write
}

// objects lists all declared objects of one kind.
func objects[T any](ctx context.Context, c *store.Client, list keys.Prefix[T], key func(source, name string) keys.Key[T], open func(T) (compose.Declaration, string, int64)) ([]object, error) {
	all, _, err := store.List(ctx, c, list)
	out := make([]object, 0, len(all))
	for _, one := range all {
		d, name, rev := open(one)
		k := key(d.Source, name)
		out = append(out, object{Declaration: d, name: name, rev: rev, unchanged: store.Unchanged(k, rev), remove: store.Remove(k, rev)})
	}
	return out, err
}

func groupKey(source, name string) keys.Key[compose.DeclaredGroup] {
	return keys.DeclaredGroup(source, fleet.GroupName(name))
}

func (a *Applier) groups() kind {
	return kind{
		list: func(ctx context.Context) ([]object, error) {
			return objects(ctx, a.cfg.Store, keys.DeclaredGroups(), groupKey, func(d compose.DeclaredGroup) (compose.Declaration, string, int64) {
				return d.Declaration, string(d.Group), d.ModRev
			})
		},
		statuses: keys.DeclaredStatuses(),
		key: func(source, name string) keys.Key[compose.DeclaredStatus] {
			return keys.DeclaredStatus(source, fleet.GroupName(name))
		},
		status:  func(name string) compose.DeclaredStatus { return compose.DeclaredStatus{Group: fleet.GroupName(name)} },
		missing: func(source, name string) store.Guard { return store.Missing(groupKey(source, name)) },
		make:    a.makeGroup,
	}
}

func (a *Applier) makeGroup(ctx context.Context, d object, sources map[string]content.TemplateSource) (compose.DeclaredState, error) {
	by, name := txn.Actor{User: "gitops " + d.Source}, fleet.GroupName(d.name)
	group, exists := a.cfg.Operations.Snapshot().Groups.Get(name)
	if exists {
		if err := checkOwner("group", group.ManagedBy, d.Source, sources); err != nil {
			if d.Removed {
				return compose.DeclaredRemoved, nil // the source has nothing here
			}
			return compose.DeclaredConflict, err
		}
	}
	switch {
	case d.Removed && (!exists || group.ManagedBy != d.Source): // gone, or released already
		return compose.DeclaredRemoved, nil
	case d.Removed && group.Deleting:
		return compose.DeclaredRemoving, nil
	case d.Removed:
		source := store.Unchanged(keys.TemplateSource(d.Source), sources[d.Source].ModRev)
		if _, err := a.cfg.Operations.DeleteGroup(ctx, by, name, group.ModRev, false, d.unchanged, source); err != nil {
			return "", err
		}
		return compose.DeclaredRemoving, nil
	}
	read := a.cfg.ReadGroup
	if d.Universe {
		read = a.cfg.ReadConfiguration
	}
	w, err := read(name, d.Spec)
	if err != nil {
		return "", errs.New(errs.KindOf(err), "%s: %s", d.File, sentence(err))
	}
	w.Mode, w.ManagedBy, w.Guards = groupops.Create, d.Source, []store.Guard{d.unchanged}
	w.Shown = content.VisibleToAdmins // a repository contains all fields of the group
	if exists {
		w.Mode, w.IfMatch = groupops.Put, group.ModRev
	}
	if _, err := a.cfg.Operations.WriteGroup(ctx, by, w); lostRace(err) {
		return "", err
	} else if err != nil {
		return "", errs.New(errs.KindOf(err), "%s: %s", d.File, sentence(err))
	}
	return compose.DeclaredInSync, nil
}
