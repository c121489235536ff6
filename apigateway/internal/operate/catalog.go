package operate

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// CatalogEdit is a change of one version in the catalog; nil fields stay as they are. Version
// is another name for it.
type CatalogEdit struct {
	Version, URL, SHA256, Category, ConfigFormat *string
	// IfMatch is the revision the platform's entry must be at; 0 accepts any.
	IfMatch int64
}

// onto changes a version. Another URL without a hash discards the old hash.
func (e CatalogEdit) onto(v *fleet.CatalogVersion) {
	if e.URL != nil && *e.URL != v.URL && e.SHA256 == nil {
		v.SHA256 = ""
	}
	for field, given := range map[*string]*string{&v.URL: e.URL, &v.SHA256: e.SHA256, &v.Category: e.Category, &v.ConfigFormat: e.ConfigFormat} {
		if given != nil {
			*field = *given
		}
	}
}

// AddCatalogVersion adds a version to a platform, which need not be there yet.
// AlreadyExists when it has that version; Invalid names the field at fault.
func (o *Operations) AddCatalogVersion(ctx context.Context, by Actor, platform string, v fleet.CatalogVersion) error {
	v.AddedAt = o.now()
	return o.editCatalog(ctx, by, platform, "catalog.add", v.Version, func(_ *view.Snapshot, p *fleet.CatalogPlatform) error {
		if _, ok := p.Find(v.Version); ok && v.Version != "" {
			return errs.New(errs.AlreadyExists, "%s %s is in the catalog already", p.Platform, clip(v.Version))
		}
		p.Versions = append(slices.Clone(p.Versions), v)
		return nil
	})
}

// EditCatalogVersion changes a version. NotFound when there is none; Invalid names the
// field at fault. Under another name it stays the recommended one; AlreadyExists when another
// has the name, Conflict when groups name it, or a source declares it; MovedError when IfMatch does
// not hold.
func (o *Operations) EditCatalogVersion(ctx context.Context, by Actor, platform, version string, e CatalogEdit) error {
	return o.editCatalog(ctx, by, platform, "catalog.update", version, func(s *view.Snapshot, p *fleet.CatalogPlatform) error {
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
func (o *Operations) PinCatalogVersion(ctx context.Context, platform, version, url, sha256 string) error {
	return o.editCatalog(ctx, Actor{User: pinner}, platform, "catalog.pin", version, func(_ *view.Snapshot, p *fleet.CatalogPlatform) error {
		i := slices.IndexFunc(p.Versions, func(v fleet.CatalogVersion) bool { return v.Version == version && v.URL == url && v.SHA256 == "" })
		if i >= 0 {
			p.Versions = slices.Clone(p.Versions)
			p.Versions[i].SHA256 = sha256
		}
		return nil
	})
}

// renameVersion gives a version of a platform another name.
func renameVersion(s *view.Snapshot, p *fleet.CatalogPlatform, i int, name string) error {
	v := &p.Versions[i]
	if slices.ContainsFunc(p.Versions, func(other fleet.CatalogVersion) bool { return other.Version == name }) {
		return errs.New(errs.AlreadyExists, "%s %s is in the catalog already", p.Platform, clip(name))
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

// RecommendCatalogVersion makes a version the one that groups without a version get.
// NotFound when there is none; MovedError when ifMatch, if it is not 0, is not the revision
// of the platform's entry.
func (o *Operations) RecommendCatalogVersion(ctx context.Context, by Actor, platform, version string, ifMatch int64) error {
	return o.editCatalog(ctx, by, platform, "catalog.recommend", version, func(_ *view.Snapshot, p *fleet.CatalogPlatform) error {
		_, err := versionAt(p, version, ifMatch)
		p.Recommended = version
		return err
	})
}

// RemoveCatalogVersion takes a version out. NotFound when there is none, Conflict while
// groups rely on it, also on its being the recommended one; MovedError when ifMatch, if it
// is not 0, is not the revision of the platform's entry.
func (o *Operations) RemoveCatalogVersion(ctx context.Context, by Actor, platform, version string, ifMatch int64) error {
	return o.editCatalog(ctx, by, platform, "catalog.remove", version, func(s *view.Snapshot, p *fleet.CatalogPlatform) error {
		if _, err := versionAt(p, version, ifMatch); err != nil {
			return err
		}
		return removeVersion(s, p, version)
	})
}

// versionAt is versionIn of an entry that must be at a revision, unless that is 0.
func versionAt(p *fleet.CatalogPlatform, version string, ifMatch int64) (int, error) {
	if err := unmoved("the catalog of "+p.Platform, ifMatch, p.ModRev); err != nil {
		return 0, err
	}
	return versionIn(p, version)
}

func removeVersion(s *view.Snapshot, p *fleet.CatalogPlatform, version string) error {
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

func versionIn(p *fleet.CatalogPlatform, version string) (int, error) {
	i := slices.IndexFunc(p.Versions, func(v fleet.CatalogVersion) bool { return v.Version == version })
	if i < 0 {
		return i, errs.New(errs.NotFound, "%s %s is not in the catalog", clip(p.Platform), clip(version))
	}
	return i, nil
}

// maxReliant bounds the groups that a refusal names.
const maxReliant = 5

// reliant are some groups that would get the version now.
func reliant(s *view.Snapshot, p *fleet.CatalogPlatform, version string) []string {
	return asking(s, p, version, true)
}

// asking are some groups that would get the version now; those that ask for none are among
// them if unnamed is true.
func asking(s *view.Snapshot, p *fleet.CatalogPlatform, version string, unnamed bool) (names []string) {
	for _, g := range s.Groups.All() {
		w := g.Spec.Software
		v, ok := p.Find(w.PlatformVersion)
		if g.Deleting || w.Platform != p.Platform || g.Spec.Command != "" || w.JarFile == "" || !ok || v.Version != version || w.PlatformVersion == "" && !unnamed {
			continue
		}
		if names = append(names, string(g.Name)); len(names) == maxReliant {
			break
		}
	}
	return names
}

// edited is the version of a platform that was named so before, and may have another name now;
// false when it is gone.
func edited(before, now fleet.CatalogPlatform, version string) (v fleet.CatalogVersion, ok bool) {
	if v, ok = now.Find(version); ok {
		return v, true
	}
	i := slices.IndexFunc(now.Versions, func(v fleet.CatalogVersion) bool {
		_, had := before.Find(v.Version)
		return !had
	})
	if i < 0 {
		return v, false
	}
	return now.Versions[i], true
}

// editCatalog changes a platform's entry. One that holds nothing any more goes; what
// changes nothing writes nothing.
func (o *Operations) editCatalog(ctx context.Context, by Actor, platform, action, version string, edit func(*view.Snapshot, *fleet.CatalogPlatform) error, guards ...store.Guard) error {
	platform = strings.ToUpper(platform)
	_, err := o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		before := fleet.CatalogPlatform{Platform: platform}
		if have, ok := s.Catalog.Get(platform); ok {
			before = *have
		}
		p := before
		if err := edit(s, &p); err != nil {
			return change{}, err
		}
		if err := joined(p.Validate()); err != nil {
			return change{}, err
		}
		if reflect.DeepEqual(p, before) {
			return change{}, nil
		}
		c := change{guards: guards, audit: entry{action: action, resource: "catalog", id: platform + " " + version, objects: []string{"catalog/" + platform}}}
		c.audit.before, c.audit.after = catalogRecords(before, p)
		if v, ok := edited(before, p, version); ok {
			c.audit.details = v.URL + " " + v.SHA256
		}
		if len(p.Versions) == 0 {
			c.writes = []store.Write{store.Remove(store.CatalogKey(platform), p.ModRev)}
		} else {
			c.writes = []store.Write{store.Replace(store.CatalogKey(platform), p, p.ModRev)}
		}
		return c, nil
	})
	return err
}
