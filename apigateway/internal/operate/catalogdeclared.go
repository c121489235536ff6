package operate

import (
	"context"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// CatalogDeclared says which entry of the catalog is written for a source.
type CatalogDeclared struct {
	Source, Platform string
	// IfMatch is the mod-revision of the platform's entry that was looked at; 0: there
	// was none.
	IfMatch int64
	// Guards are compared in the transaction that writes.
	Guards []store.Guard
}

// declareCatalog is editCatalog for a source. MovedError when the platform's entry is
// another than was looked at.
func (o *Operations) declareCatalog(ctx context.Context, by Actor, d CatalogDeclared, action, version string, edit func(*view.Snapshot, *fleet.CatalogPlatform) error) error {
	return o.editCatalog(ctx, by, d.Platform, action, version, func(s *view.Snapshot, p *fleet.CatalogPlatform) error {
		if p.ModRev != d.IfMatch {
			return &MovedError{What: "the catalog of " + d.Platform, Want: d.IfMatch, Have: p.ModRev}
		}
		return edit(s, p)
	}, d.Guards...)
}

// DeclareCatalogVersion adds a version, or makes it as a source says. Invalid names the
// field at fault.
func (o *Operations) DeclareCatalogVersion(ctx context.Context, by Actor, d CatalogDeclared, v fleet.CatalogVersion) error {
	return o.declareCatalog(ctx, by, d, "catalog.update", v.Version, func(_ *view.Snapshot, p *fleet.CatalogPlatform) error {
		p.Versions = slices.Clone(p.Versions)
		v.ManagedBy = d.Source
		i, err := versionIn(p, v.Version)
		if err != nil {
			v.AddedAt = o.now()
			p.Versions = append(p.Versions, v)
			return nil
		}
		v.AddedAt = p.Versions[i].AddedAt
		p.Versions[i] = v
		return nil
	})
}

// DeclareRecommended makes a version the recommended one as a source says; "" makes none
// of the source's own the recommended one. NotFound when the platform has no such version,
// Conflict while groups rely on the one that was recommended.
func (o *Operations) DeclareRecommended(ctx context.Context, by Actor, d CatalogDeclared, version string) error {
	return o.declareCatalog(ctx, by, d, "catalog.recommend", version, func(s *view.Snapshot, p *fleet.CatalogPlatform) error {
		if p.ModRev == 0 && version == "" {
			return nil // its versions make it
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

// RemoveDeclaredVersion takes out a version that a source declared. Errors as of
// RemoveCatalogVersion.
func (o *Operations) RemoveDeclaredVersion(ctx context.Context, by Actor, d CatalogDeclared, version string) error {
	return o.declareCatalog(ctx, by, d, "catalog.remove", version, func(s *view.Snapshot, p *fleet.CatalogPlatform) error {
		return removeVersion(s, p, version)
	})
}

// ReleasePlatform makes a platform that a source declared nobody's: none of the source's
// versions is recommended any more. Conflict while groups rely on that.
func (o *Operations) ReleasePlatform(ctx context.Context, by Actor, d CatalogDeclared) error {
	return o.declareCatalog(ctx, by, d, "catalog.recommend", "", func(s *view.Snapshot, p *fleet.CatalogPlatform) error {
		p.ManagedBy = ""
		return forgetRecommended(s, p, d.Source)
	})
}

// forgetRecommended recommends no version of the source's any more.
func forgetRecommended(s *view.Snapshot, p *fleet.CatalogPlatform, source string) error {
	v, ok := p.Find("")
	if !ok || v.ManagedBy != source {
		return nil
	}
	var users []string
	for _, name := range reliant(s, p, v.Version) {
		if g, ok := s.Groups.Get(fleet.GroupName(name)); ok && g.Spec.Software.PlatformVersion == "" {
			users = append(users, name)
		}
	}
	if len(users) > 0 {
		return errs.New(errs.Conflict, "%s %s is what the groups %s run as the recommended one: give them a version, or recommend another, first", p.Platform, v.Version, strings.Join(users, ", "))
	}
	p.Recommended = ""
	return nil
}
