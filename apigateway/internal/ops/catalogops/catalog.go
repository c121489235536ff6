// Package catalogops edits the catalog of platforms and their versions.
package catalogops

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Catalog changes the catalog of platforms. It is safe for concurrent use.
type Catalog struct {
	*txn.Committer
}

// New returns the operations on the catalog of platforms.
func New(c *txn.Committer) *Catalog {
	return &Catalog{Committer: c}
}

// CatalogEdit is a change of one version in the catalog. nil fields stay as they are. Version
// renames it.
type CatalogEdit struct {
	Version, URL, SHA256, Category, ConfigFormat *string
	// IfMatch is the revision the platform's entry must be at; 0 accepts any.
	IfMatch int64
}

// onto applies the edit to a version. Another URL without a hash discards the old hash.
func (e CatalogEdit) onto(v *content.CatalogVersion) {
	if e.URL != nil && *e.URL != v.URL && e.SHA256 == nil {
		v.SHA256 = ""
	}
	for field, given := range map[*string]*string{&v.URL: e.URL, &v.SHA256: e.SHA256, &v.Category: e.Category, &v.ConfigFormat: e.ConfigFormat} {
		if given != nil {
			*field = *given
		}
	}
}

// AddCatalogVersion adds a version to a platform, and the platform if it is new. AlreadyExists when
// the platform has the version; Invalid names the wrong field.
func (o *Catalog) AddCatalogVersion(ctx context.Context, by txn.Actor, platform string, v content.CatalogVersion) error {
	v.AddedAt = o.Now()
	return o.editCatalog(ctx, by, platform, "catalog.add", v.Version, func(_ *view.Snapshot, p *content.CatalogPlatform) error {
		if _, ok := p.Find(v.Version); ok && v.Version != "" {
			return errs.New(errs.AlreadyExists, "%s %s is in the catalog already", p.Platform, txn.Clip(v.Version))
		}
		p.Versions = append(slices.Clone(p.Versions), v)
		return nil
	})
}

// EditCatalogVersion changes a version. A renamed version stays the recommended one. NotFound when
// it does not exist, AlreadyExists when the new name is taken, Conflict when groups name it or a
// source declares it, MovedError when IfMatch does not match; Invalid names the wrong field.
func (o *Catalog) EditCatalogVersion(ctx context.Context, by txn.Actor, platform, version string, e CatalogEdit) error {
	return o.editCatalog(ctx, by, platform, "catalog.update", version, func(s *view.Snapshot, p *content.CatalogPlatform) error {
		i, err := versionAt(p, version, e.IfMatch)
		if err != nil {
			return err
		}
		p.Versions = slices.Clone(p.Versions)
		e.onto(&p.Versions[i])
		if e.Version == nil || *e.Version == version {
			return nil
		}
		return renameVersion(s, p, i, *e.Version)
	})
}

// pinner is the actor in audit entries of catalog.pin.
const pinner = "catalog"

// PinCatalogVersion writes the hash of a version, unless the version has a hash or another URL
// by now.
func (o *Catalog) PinCatalogVersion(ctx context.Context, platform, version, url, sha256 string) error {
	return o.editCatalog(ctx, txn.Actor{User: pinner}, platform, "catalog.pin", version, func(_ *view.Snapshot, p *content.CatalogPlatform) error {
		i := slices.IndexFunc(p.Versions, func(v content.CatalogVersion) bool { return v.Version == version && v.URL == url && v.SHA256 == "" })
		if i >= 0 {
			p.Versions = slices.Clone(p.Versions)
			p.Versions[i].SHA256 = sha256
		}
		return nil
	})
}

// renameVersion gives a version of a platform another name.
func renameVersion(s *view.Snapshot, p *content.CatalogPlatform, i int, name string) error {
	v := &p.Versions[i]
	if slices.ContainsFunc(p.Versions, func(other content.CatalogVersion) bool { return other.Version == name }) {
		return errs.New(errs.AlreadyExists, "%s %s is in the catalog already", p.Platform, txn.Clip(name))
	}
	if v.ManagedBy != "" {
		return errs.New(errs.Conflict, "%s %s is declared by the source %s: rename it there", p.Platform, v.Version, v.ManagedBy)
	}
	if users := asking(s, p, v.Version, false); len(users) > 0 {
		return errs.New(errs.Conflict, "%s %s is what the groups %s ask for by name: give them another version first", p.Platform, v.Version, strings.Join(users, ", "))
	}
	if p.Recommended == v.Version {
		p.Recommended = name
	}
	v.Version = name
	return nil
}

// RecommendCatalogVersion selects the version for groups that name none. NotFound when it does not
// exist, MovedError when ifMatch is not 0 and not the revision of the platform's entry.
func (o *Catalog) RecommendCatalogVersion(ctx context.Context, by txn.Actor, platform, version string, ifMatch int64) error {
	return o.editCatalog(ctx, by, platform, "catalog.recommend", version, func(_ *view.Snapshot, p *content.CatalogPlatform) error {
		_, err := versionAt(p, version, ifMatch)
		p.Recommended = version
		return err
	})
}

// RemoveCatalogVersion removes a version. NotFound when it does not exist, Conflict while groups
// use it by name or as the recommended one, MovedError when ifMatch is not 0 and not the revision
// of the platform's entry.
func (o *Catalog) RemoveCatalogVersion(ctx context.Context, by txn.Actor, platform, version string, ifMatch int64) error {
	return o.editCatalog(ctx, by, platform, "catalog.remove", version, func(s *view.Snapshot, p *content.CatalogPlatform) error {
		if _, err := versionAt(p, version, ifMatch); err != nil {
			return err
		}
		return removeVersion(s, p, version)
	})
}

// versionAt is versionIn for an entry that must be at revision ifMatch unless that is 0.
func versionAt(p *content.CatalogPlatform, version string, ifMatch int64) (int, error) {
	if err := txn.CheckRevision("the catalog of "+p.Platform, ifMatch, p.ModRev); err != nil {
		return 0, err
	}
	return versionIn(p, version)
}

func removeVersion(s *view.Snapshot, p *content.CatalogPlatform, version string) error {
	i, err := versionIn(p, version)
	if err != nil {
		return err
	}
	if users := reliant(s, p, version); len(users) > 0 {
		return errs.New(errs.Conflict, "%s %s is what the groups %s run: give them another version, or recommend another, first", p.Platform, version, strings.Join(users, ", "))
	}
	p.Versions = slices.Delete(slices.Clone(p.Versions), i, i+1)
	if p.Recommended == version {
		p.Recommended = ""
	}
	return nil
}

func versionIn(p *content.CatalogPlatform, version string) (int, error) {
	i := slices.IndexFunc(p.Versions, func(v content.CatalogVersion) bool { return v.Version == version })
	if i < 0 {
		return i, errs.New(errs.NotFound, "%s %s is not in the catalog", txn.Clip(p.Platform), txn.Clip(version))
	}
	return i, nil
}

// maxReliant bounds the groups that a refusal names.
const maxReliant = 5

// reliant returns some groups that would get the version now.
func reliant(s *view.Snapshot, p *content.CatalogPlatform, version string) []string {
	return asking(s, p, version, true)
}

// asking returns some groups that would get the version now. With unnamed, groups that name no
// version are among them.
func asking(s *view.Snapshot, p *content.CatalogPlatform, version string, unnamed bool) (names []string) {
	for _, g := range s.Groups.All() {
		spec := s.Whole(g).Spec
		w := spec.Software
		v, ok := p.Find(w.PlatformVersion)
		if g.Deleting || w.Platform != p.Platform || spec.Command != "" || w.JarFile == "" || !ok || v.Version != version || w.PlatformVersion == "" && !unnamed {
			continue
		}
		if names = append(names, string(g.Name)); len(names) == maxReliant {
			break
		}
	}
	return names
}

// edited returns the version that had this name before, even if it was renamed; false when it was
// removed.
func edited(before, now content.CatalogPlatform, version string) (v content.CatalogVersion, ok bool) {
	if v, ok = now.Find(version); ok {
		return v, true
	}
	i := slices.IndexFunc(now.Versions, func(v content.CatalogVersion) bool {
		_, had := before.Find(v.Version)
		return !had
	})
	if i < 0 {
		return v, false
	}
	return now.Versions[i], true
}

// editCatalog changes a platform's entry, and removes an empty one. It writes nothing when nothing
// changes.
func (o *Catalog) editCatalog(ctx context.Context, by txn.Actor, platform, action, version string, edit func(*view.Snapshot, *content.CatalogPlatform) error, guards ...store.Guard) error {
	platform = strings.ToUpper(platform)
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		before := content.CatalogPlatform{Platform: platform}
		if have, ok := s.Catalog.Get(platform); ok {
			before = *have
		}
		p := before
		if err := edit(s, &p); err != nil {
			return txn.Change{}, err
		}
		if err := txn.JoinProblems(p.Validate()); err != nil {
			return txn.Change{}, err
		}
		if reflect.DeepEqual(p, before) {
			return txn.Change{}, nil
		}
		c := txn.Change{Guards: guards, Audit: txn.Entry{Action: action, Resource: "catalog", ID: platform + " " + version, Objects: []string{"catalog/" + platform}}}
		c.Audit.Before, c.Audit.After = catalogRecords(before, p)
		if v, ok := edited(before, p, version); ok {
			c.Audit.Details = v.URL + " " + v.SHA256
		}
		if len(p.Versions) == 0 {
			c.Writes = []store.Write{store.Remove(keys.CatalogPlatform(platform), p.ModRev)}
			c.DropApplied(s, applied.Catalog, platform)
		} else {
			c.Writes = []store.Write{store.Replace(keys.CatalogPlatform(platform), p, p.ModRev)}
		}
		return c, nil
	})
	return err
}

// CatalogRecord is what the audit keeps of a platform's entry in the catalog; nil for an entry
// without versions.
func CatalogRecord(p content.CatalogPlatform) map[string]any {
	if len(p.Versions) == 0 {
		return nil
	}
	versions := map[string]any{}
	for _, v := range p.Versions {
		one := txn.ToMap(v)
		delete(one, "version")
		versions[v.Version] = one
	}
	return map[string]any{"recommended": p.Recommended, "managedBy": p.ManagedBy, "versions": versions}
}

// catalogRecords returns the audit records of a platform's entry before and after a change.
func catalogRecords(from, to content.CatalogPlatform) (before, after any) {
	a, b := CatalogRecord(from), CatalogRecord(to)
	if a != nil && b != nil {
		a, b = txn.Diff(a, b)
	}
	return txn.OrNil(a), txn.OrNil(b)
}
