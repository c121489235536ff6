package fleet

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// CatalogPlatform is what the catalog knows of one platform's artifacts: the server
// jars that groups run. The gateway writes it whole, so that one version is recommended
// at most.
type CatalogPlatform struct {
	Rev
	Platform string `json:"platform"` // upper case
	// Recommended is the version a group without one gets; "" for none.
	Recommended string `json:"recommended,omitempty"`
	// ManagedBy is the source that declares the platform, and what is recommended; "": the
	// API does.
	ManagedBy string `json:"managedBy,omitempty"`
	// Versions are in the order they were added.
	Versions []CatalogVersion `json:"versions"`
}

// CatalogVersion is one artifact.
type CatalogVersion struct {
	Version string `json:"version"`
	// URL is where it is downloaded, SHA256 what it must hash to, hex; empty until the URL was
	// downloaded for the first time.
	URL    string `json:"url"`
	SHA256 string `json:"sha256"`
	// Category is SERVER or PROXY.
	Category string `json:"category"`
	// ConfigFormat tells plugins how the software is configured; free text.
	ConfigFormat string    `json:"configFormat,omitempty"`
	AddedAt      time.Time `json:"addedAt"`
	// ManagedBy is the source that declares it; "": it was added through the API.
	ManagedBy string `json:"managedBy,omitempty"`
}

// Artifact is the catalog's artifact of a plan. Without a SHA256 the version was not in
// the catalog when the plan was composed, or with a URL not downloaded yet: the start
// fails with ArtifactFetch, unless a template brings the file or a static directory has it already.
type Artifact struct {
	Platform string `json:"platform"`
	Version  string `json:"version"`
	URL      string `json:"url,omitempty"`
	SHA256   string `json:"sha256,omitempty"`
	// Path is where it goes below the instance's directory, unless a template brings
	// that file.
	Path string `json:"path"`
}

// Materials are what plans are composed of beside the group.
type Materials struct {
	// Heads are all template heads.
	Heads []TemplateHead
	// Catalog are the platforms by name. Nil: none is known.
	Catalog map[string]*CatalogPlatform
}

// maxCatalogVersions bounds the versions of one platform.
const maxCatalogVersions = 200

// The categories of artifacts.
const (
	CategoryServer = "SERVER"
	CategoryProxy  = "PROXY"
)

// Find is a platform's version, "" for the recommended one.
func (c *CatalogPlatform) Find(version string) (CatalogVersion, bool) {
	if version == "" {
		version = c.Recommended
	}
	i := slices.IndexFunc(c.Versions, func(v CatalogVersion) bool { return v.Version == version })
	if version == "" || i < 0 {
		return CatalogVersion{}, false
	}
	return c.Versions[i], true
}

// Validate lists what is wrong with a platform's entry.
func (c *CatalogPlatform) Validate() []error {
	var p problems
	p.check(validSegment(c.Platform) && c.Platform == strings.ToUpper(c.Platform), "platform", "%q is not a platform's name: letters, digits, _ . and -", clip(c.Platform))
	p.check(len(c.Versions) <= maxCatalogVersions, "version", "is one too many: a platform has %d at most; remove old ones", maxCatalogVersions)
	for _, v := range c.Versions {
		p.addAll(v.validate())
	}
	return p.list
}

func (v CatalogVersion) validate() []error {
	var p problems
	p.check(validSegment(v.Version), "version", "%q is not a version: letters, digits, _ . and -", clip(v.Version))
	p.check(ValidArtifactURL(v.URL), "downloadUrl", "%q is not a URL of http or https", clip(v.URL))
	p.check(v.SHA256 == "" || ValidDigest(v.SHA256), "sha256", "%q is not a SHA-256 in 64 lower-case hex digits", clip(v.SHA256))
	p.check(oneOf(v.Category, CategoryServer, CategoryProxy), "category", "must be SERVER or PROXY; %q is not", clip(v.Category))
	p.check(len(v.ConfigFormat) <= 64 && !HasControl(v.ConfigFormat), "configFormat", "must be at most 64 bytes without control characters")
	return p.list
}

// ValidArtifactURL reports whether an artifact may be downloaded from there.
func ValidArtifactURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && len(s) <= 2048 && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// CheckCatalog refuses a platform version that its platform's entry in the catalog does not know.
func (s GroupSpec) CheckCatalog(c *CatalogPlatform) error {
	if c == nil || s.Software.PlatformVersion == "" || !s.takesArtifact() {
		return nil
	}
	if _, ok := c.Find(s.Software.PlatformVersion); !ok {
		return errs.Field("platformVersion", "%s is not in the catalog of %s: add it there, or leave the field empty for the recommended one",
			clip(s.Software.PlatformVersion), s.Software.Platform)
	}
	return nil
}

// takesArtifact reports whether the group runs a jar by a command built for it.
func (s GroupSpec) takesArtifact() bool { return s.Command == "" && s.Software.JarFile != "" }

// artifact is what the catalog gives the group to run; nil without a version where none
// is recommended. One that the catalog does not have has no URL: a template may bring it, or the directory have it.
func (s GroupSpec) artifact(catalog map[string]*CatalogPlatform) *Artifact {
	if !s.takesArtifact() {
		return nil
	}
	if c := catalog[s.Software.Platform]; c != nil {
		if v, ok := c.Find(s.Software.PlatformVersion); ok {
			return &Artifact{Platform: c.Platform, Version: v.Version, URL: v.URL, SHA256: v.SHA256, Path: s.Software.JarFile}
		}
	}
	if s.Software.PlatformVersion != "" && s.Runtime != RuntimeDocker && SafePath(s.Software.JarFile) && !strings.Contains(s.Software.JarFile, "%") {
		return &Artifact{Platform: s.Software.Platform, Version: s.Software.PlatformVersion, Path: s.Software.JarFile}
	}
	return nil
}
