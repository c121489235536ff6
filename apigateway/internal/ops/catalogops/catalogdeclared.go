package catalogops

import (
	"context"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// CatalogDeclared names the entry of the catalog that is written for a source.
type CatalogDeclared struct {
	Source, Platform string
	// IfMatch is the revision of the platform's entry that the caller read; 0 if it did not exist.
	IfMatch int64
	// Guards are checked in the transaction that writes.
	Guards []store.Guard
}

// declareCatalog is editCatalog for a source. MovedError when the platform's entry changed since
// the caller read it.
func (o *Catalog) declareCatalog(ctx context.Context, by txn.Actor, d CatalogDeclared, action, version string, edit func(*view.Snapshot, *content.CatalogPlatform) error) error {
	return o.editCatalog(ctx, by, d.Platform, action, version, func(s *view.Snapshot, p *content.CatalogPlatform) error {
		if p.ModRev != d.IfMatch {
			return &txn.MovedError{What: "the catalog of " + d.Platform, Want: d.IfMatch, Have: p.ModRev}
		}
		return edit(s, p)
	}, d.Guards...)
}

// DeclareCatalogVersion adds a version or changes it to what a source declares. Invalid names the
// wrong field.
func (o *Catalog) DeclareCatalogVersion(ctx context.Context, by txn.Actor, d CatalogDeclared, v content.CatalogVersion) error {
	return o.declareCatalog(ctx, by, d, "catalog.update", v.Version, func(_ *view.Snapshot, p *content.CatalogPlatform) error {
		p.Versions = slices.Clone(p.Versions)
		v.ManagedBy = d.Source
		i, err := versionIn(p, v.Version)
		if err != nil {
			v.AddedAt = o.Now()
			p.Versions = append(p.Versions, v)
			return nil
		}
		v.AddedAt = p.Versions[i].AddedAt
		p.Versions[i] = v
		return nil
	})
}

// DeclareRecommended recommends the version that a source declares; "" stops recommending a version
// of the source. NotFound when the platform has no such version, Conflict while groups use the
// version that was recommended.
func (o *Catalog) DeclareRecommended(ctx context.Context, by txn.Actor, d CatalogDeclared, version string) error {
	return o.declareCatalog(ctx, by, d, "catalog.recommend", version, func(s *view.Snapshot, p *content.CatalogPlatform) error {
		if p.ModRev == 0 && version == "" {
			return nil // the platform does not exist yet
		}
		p.ManagedBy = d.Source
		if version == "" {
			return forgetRecommended(s, p, d.Source)
		}
		_, err := versionIn(p, version)
		p.Recommended = version
		return err
	})
}

// RemoveDeclaredVersion removes a version that a source declared. Errors are those of
// RemoveCatalogVersion.
func (o *Catalog) RemoveDeclaredVersion(ctx context.Context, by txn.Actor, d CatalogDeclared, version string) error {
	return o.declareCatalog(ctx, by, d, "catalog.remove", version, func(s *view.Snapshot, p *content.CatalogPlatform) error {
		return removeVersion(s, p, version)
	})
}

// ReleasePlatform removes the source as the manager of a platform, and stops recommending its
// versions. Conflict while groups use the recommended one.
func (o *Catalog) ReleasePlatform(ctx context.Context, by txn.Actor, d CatalogDeclared) error {
	return o.declareCatalog(ctx, by, d, "catalog.recommend", "", func(s *view.Snapshot, p *content.CatalogPlatform) error {
		p.ManagedBy = ""
		return forgetRecommended(s, p, d.Source)
	})
}

// forgetRecommended stops recommending a version of the source.
func forgetRecommended(s *view.Snapshot, p *content.CatalogPlatform, source string) error {
	v, ok := p.Find("")
	if !ok || v.ManagedBy != source {
		return nil
	}
	var users []string
	for _, name := range reliant(s, p, v.Version) {
		if g, ok := s.Groups.Get(fleet.GroupName(name)); ok && s.Whole(g).Spec.Software.PlatformVersion == "" {
			users = append(users, name)
		}
	}
	if len(users) > 0 {
		return errs.New(errs.Conflict, "%s %s is what the groups %s run as the recommended one: give them a version, or recommend another, first", p.Platform, v.Version, strings.Join(users, ", "))
	}
	p.Recommended = ""
	return nil
}
