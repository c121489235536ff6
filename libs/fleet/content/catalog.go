package content

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// CatalogPlatform is one platform of the artifact catalog: the server jars that groups run. The
// gateway writes the whole record at once, so at most one version is recommended.
type CatalogPlatform struct {
	record.Rev
	Platform string `json:"platform"` // upper case
	// Recommended is the version for groups that name none. It may be empty.
	Recommended string `json:"recommended,omitempty"`
	// ManagedBy is the source that declares the platform and its recommended version. Empty means
	// they are managed through the API.
	ManagedBy string `json:"managedBy,omitempty"`
	// Versions are in the order in which they were added.
	Versions []CatalogVersion `json:"versions"`
}

// CatalogVersion is one artifact.
type CatalogVersion struct {
	Version string `json:"version"`
	// URL is where the artifact is downloaded from. SHA256 is its expected hash, in hex. It is
	// empty until the first download.
	URL    string `json:"url"`
	SHA256 string `json:"sha256"`
	// Category is SERVER or PROXY.
	Category string `json:"category"`
	// ConfigFormat tells plugins how the software is configured; free text.
	ConfigFormat string    `json:"configFormat,omitempty"`
	AddedAt      time.Time `json:"addedAt"`
	// ManagedBy is the source that declares the version. Empty means it was added through the API.
	ManagedBy string `json:"managedBy,omitempty"`
}

// Artifact is the catalog entry a plan uses. SHA256 is empty if the version was not in the catalog
// when the plan was composed, or was never downloaded. Then the start fails with ArtifactFetch,
// unless a template or the static directory already has the file.
type Artifact struct {
	Platform string `json:"platform"`
	Version  string `json:"version"`
	URL      string `json:"url,omitempty"`
	SHA256   string `json:"sha256,omitempty"`
	// Path is the target file, relative to the instance's directory. A template's file of that
	// path takes precedence.
	Path string `json:"path"`
}

// maxCatalogVersions bounds the versions of one platform.
const maxCatalogVersions = 200

// The categories of artifacts.
const (
	CategoryServer = "SERVER"
	CategoryProxy  = "PROXY"
)

// Find returns a version of the platform. An empty version means the recommended one.
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

// Validate returns everything that is wrong with the entry.
func (c *CatalogPlatform) Validate() []error {
	var p validate.Problems
	p.Check(validate.ValidSegment(c.Platform) && c.Platform == strings.ToUpper(c.Platform), "platform", "%q is not a platform name: use upper-case letters, digits, _ . and -", validate.Clip(c.Platform))
	p.Check(len(c.Versions) <= maxCatalogVersions, "version", "cannot be added: a platform has at most %d versions; remove old ones", maxCatalogVersions)
	for _, v := range c.Versions {
		p.AddAll(v.validate())
	}
	return p.List
}

func (v CatalogVersion) validate() []error {
	var p validate.Problems
	p.Check(validate.ValidSegment(v.Version), "version", "%q is not a version: use letters, digits, _ . and -", validate.Clip(v.Version))
	p.Check(ValidArtifactURL(v.URL), "downloadUrl", "%q is not an http or https URL", validate.Clip(v.URL))
	p.Check(v.SHA256 == "" || ValidDigest(v.SHA256), "sha256", "%q is not a SHA-256 hash: use 64 lower-case hex digits", validate.Clip(v.SHA256))
	p.Check(validate.OneOf(v.Category, CategoryServer, CategoryProxy), "category", "must be SERVER or PROXY; %q is not", validate.Clip(v.Category))
	p.Check(len(v.ConfigFormat) <= 64 && !validate.HasControl(v.ConfigFormat), "configFormat", "must be at most 64 bytes without control characters")
	return p.List
}

// ValidArtifactURL reports whether an artifact may be downloaded from s.
func ValidArtifactURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && len(s) <= 2048 && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}
