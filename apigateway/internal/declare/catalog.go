package declare

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

func (a *Applier) catalog() kind {
	return kind{
		list: func(ctx context.Context) ([]object, error) {
			all, err := objects(ctx, a.cfg.Store, store.DeclaredCatalog(), store.DeclaredCatalogKey, func(d fleet.DeclaredCatalog) (fleet.Declaration, string, int64) {
				return d.Declaration, d.Name(), d.ModRev
			})
			slices.SortStableFunc(all, func(a, b object) int { return cmp.Compare(a.step(), b.step()) })
			return all, err
		},
		told: store.DeclaredCatalogStatuses(), key: store.DeclaredCatalogStatusKey,
		status:  func(name string) fleet.DeclaredStatus { return fleet.DeclaredStatus{Catalog: name} },
		missing: func(source, name string) store.Guard { return store.Missing(store.DeclaredCatalogKey(source, name)) },
		make:    a.makeEntry,
	}
}

// step is when an entry of the catalog is made: a version before it is recommended, and
// what is recommended before a version goes.
func (d object) step() int {
	switch isVersion := strings.Contains(d.name, "/"); {
	case !isVersion:
		return 1
	case d.Removed:
		return 2
	}
	return 0
}

func (a *Applier) makeEntry(ctx context.Context, d object, sources map[string]fleet.TemplateSource) (fleet.DeclaredState, error) {
	platform, version, isVersion := strings.Cut(d.name, "/")
	to := operate.CatalogDeclared{Source: d.Source, Platform: platform, Guards: []store.Guard{d.unchanged}}
	p, exists := a.cfg.Operations.Snapshot().Catalog.Get(platform)
	if exists {
		to.IfMatch = p.ModRev
	} else {
		p = &fleet.CatalogPlatform{Platform: platform}
	}
	if d.Removed {
		to.Guards = append(to.Guards, store.Unchanged(store.TemplateSourceKey(d.Source), sources[d.Source].ModRev))
	}
	state, err := fleet.DeclaredState(""), error(nil)
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

func (a *Applier) makeVersion(ctx context.Context, d object, p *fleet.CatalogPlatform, version string, to operate.CatalogDeclared, sources map[string]fleet.TemplateSource) (fleet.DeclaredState, error) {
	by := operate.Actor{User: "gitops " + d.Source}
	at := slices.IndexFunc(p.Versions, func(v fleet.CatalogVersion) bool { return v.Version == version })
	if at >= 0 {
		if err := mine("version", p.Versions[at].ManagedBy, d.Source, sources); err != nil {
			if d.Removed {
				return fleet.DeclaredRemoved, nil // nothing of the source's is there
			}
			return fleet.DeclaredConflict, err
		}
	}
	switch {
	case d.Removed && (at < 0 || p.Versions[at].ManagedBy != d.Source): // or nobody's any more
		return fleet.DeclaredRemoved, nil
	case d.Removed:
		if err := a.cfg.Operations.RemoveDeclaredVersion(ctx, by, to, version); err != nil {
			return "", err
		}
		return fleet.DeclaredRemoved, nil
	}
	v, err := a.cfg.ReadVersion(version, d.Spec)
	if err == nil {
		err = a.cfg.Operations.DeclareCatalogVersion(ctx, by, to, v)
	}
	if err != nil {
		return "", err
	}
	return fleet.DeclaredInSync, nil
}

func (a *Applier) makePlatform(ctx context.Context, d object, p *fleet.CatalogPlatform, to operate.CatalogDeclared, sources map[string]fleet.TemplateSource) (fleet.DeclaredState, error) {
	by := operate.Actor{User: "gitops " + d.Source}
	if p.ManagedBy != "" || slices.ContainsFunc(p.Versions, func(v fleet.CatalogVersion) bool { return v.ManagedBy == "" }) {
		if err := mine("platform", p.ManagedBy, d.Source, sources); err != nil {
			if d.Removed {
				return fleet.DeclaredRemoved, nil // it is not the source's any more
			}
			return fleet.DeclaredConflict, err
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
		return fleet.DeclaredRemoved, nil
	}
	return fleet.DeclaredInSync, nil
}
