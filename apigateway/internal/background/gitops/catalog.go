package gitops

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/ops/catalogops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func (a *Applier) catalog() kind {
	return kind{
		list: func(ctx context.Context) ([]object, error) {
			all, err := objects(ctx, a.cfg.Store, keys.DeclaredCatalog(), keys.DeclaredCatalogEntry, func(d compose.DeclaredCatalog) (compose.Declaration, string, int64) {
				return d.Declaration, d.Name(), d.ModRev
			})
			slices.SortStableFunc(all, func(a, b object) int { return cmp.Compare(a.step(), b.step()) })
			return all, err
		},
		statuses: keys.DeclaredCatalogStatuses(), key: keys.DeclaredCatalogStatus,
		status:  func(name string) compose.DeclaredStatus { return compose.DeclaredStatus{Catalog: name} },
		missing: func(source, name string) store.Guard { return store.Missing(keys.DeclaredCatalogEntry(source, name)) },
		make:    a.makeEntry,
	}
}

// step orders the changes of a platform: add versions, then set the recommended one, then remove
// versions.
func (d object) step() int {
	switch isVersion := strings.Contains(d.name, "/"); {
	case !isVersion:
		return 1
	case d.Removed:
		return 2
	}
	return 0
}

func (a *Applier) makeEntry(ctx context.Context, d object, sources map[string]content.TemplateSource) (compose.DeclaredState, error) {
	platform, version, isVersion := strings.Cut(d.name, "/")
	to := catalogops.CatalogDeclared{Source: d.Source, Platform: platform, Guards: []store.Guard{d.unchanged}}
	p, exists := a.cfg.Operations.Snapshot().Catalog.Get(platform)
	if exists {
		to.IfMatch = p.ModRev
	} else {
		p = &content.CatalogPlatform{Platform: platform}
	}
	if d.Removed {
		to.Guards = append(to.Guards, store.Unchanged(keys.TemplateSource(d.Source), sources[d.Source].ModRev))
	}
	state, err := compose.DeclaredState(""), error(nil)
	if isVersion {
		state, err = a.makeVersion(ctx, d, p, version, to, sources)
	} else {
		state, err = a.makePlatform(ctx, d, p, to, sources)
	}
	if err != nil && state == "" && d.File != "" && !lostRace(err) {
		err = errs.New(errs.KindOf(err), "%s: %s: %s", d.File, d.name, sentence(err))
	}
	return state, err
}

func (a *Applier) makeVersion(ctx context.Context, d object, p *content.CatalogPlatform, version string, to catalogops.CatalogDeclared, sources map[string]content.TemplateSource) (compose.DeclaredState, error) {
	by := txn.Actor{User: "gitops " + d.Source}
	at := slices.IndexFunc(p.Versions, func(v content.CatalogVersion) bool { return v.Version == version })
	if at >= 0 {
		if err := checkOwner("version", p.Versions[at].ManagedBy, d.Source, sources); err != nil {
			if d.Removed {
				return compose.DeclaredRemoved, nil // the source has nothing here
			}
			return compose.DeclaredConflict, err
		}
	}
	switch {
	case d.Removed && (at < 0 || p.Versions[at].ManagedBy != d.Source): // gone, or released already
		return compose.DeclaredRemoved, nil
	case d.Removed:
		if err := a.cfg.Operations.RemoveDeclaredVersion(ctx, by, to, version); err != nil {
			return "", err
		}
		return compose.DeclaredRemoved, nil
	}
	v, err := a.cfg.ReadVersion(version, d.Spec)
	if err == nil {
		err = a.cfg.Operations.DeclareCatalogVersion(ctx, by, to, v)
	}
	if err != nil {
		return "", err
	}
	return compose.DeclaredInSync, nil
}

func (a *Applier) makePlatform(ctx context.Context, d object, p *content.CatalogPlatform, to catalogops.CatalogDeclared, sources map[string]content.TemplateSource) (compose.DeclaredState, error) {
	by := txn.Actor{User: "gitops " + d.Source}
	if p.ManagedBy != "" || slices.ContainsFunc(p.Versions, func(v content.CatalogVersion) bool { return v.ManagedBy == "" }) {
		if err := checkOwner("platform", p.ManagedBy, d.Source, sources); err != nil {
			if d.Removed {
				return compose.DeclaredRemoved, nil // the source no longer owns it
			}
			return compose.DeclaredConflict, err
		}
	}
	var said struct{ Recommended string }
	err := error(nil)
	if d.Removed {
		if p.ManagedBy == d.Source {
			err = a.cfg.Operations.ReleasePlatform(ctx, by, to)
		}
	} else if err = json.Unmarshal(d.Spec, &said); err == nil {
		err = a.cfg.Operations.DeclareRecommended(ctx, by, to, said.Recommended)
	}
	switch {
	case err != nil:
		return "", err
	case d.Removed:
		return compose.DeclaredRemoved, nil
	}
	return compose.DeclaredInSync, nil
}
