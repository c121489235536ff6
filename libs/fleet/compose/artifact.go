package compose

import (
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Materials are the inputs, besides the group, from which plans are composed.
type Materials struct {
	// Heads are the heads of all templates.
	Heads []content.TemplateHead
	// Catalog maps platform names to their entries. It may be nil.
	Catalog map[string]*content.CatalogPlatform
}

// CheckCatalog returns an Invalid error if the catalog entry c of the group's platform lacks the
// group's version. c may be nil.
func CheckCatalog(s fleet.GroupSpec, c *content.CatalogPlatform) error {
	if c == nil || s.Software.PlatformVersion == "" || !takesArtifact(s) {
		return nil
	}
	if _, ok := c.Find(s.Software.PlatformVersion); !ok {
		return errs.Field("platformVersion", "%s is not in the catalog of %s: add it there, or leave the field empty for the recommended one",
			validate.Clip(s.Software.PlatformVersion), s.Software.Platform)
	}
	return nil
}

// takesArtifact reports whether the group runs a jar with a generated command.
func takesArtifact(s fleet.GroupSpec) bool { return s.Command == "" && s.Software.JarFile != "" }

// artifactOf returns the artifact for the group, nil if the group names no version and none is
// recommended. A version missing in the catalog has no URL: a template or the directory may have
// the file.
func artifactOf(s fleet.GroupSpec, catalog map[string]*content.CatalogPlatform) *content.Artifact {
	if !takesArtifact(s) {
		return nil
	}
	if c := catalog[s.Software.Platform]; c != nil {
		if v, ok := c.Find(s.Software.PlatformVersion); ok {
			return &content.Artifact{Platform: c.Platform, Version: v.Version, URL: v.URL, SHA256: v.SHA256, Path: s.Software.JarFile}
		}
	}
	if s.Software.PlatformVersion != "" && s.Runtime != fleet.RuntimeDocker && content.SafePath(s.Software.JarFile) && !strings.Contains(s.Software.JarFile, "%") {
		return &content.Artifact{Platform: s.Software.Platform, Version: s.Software.PlatformVersion, Path: s.Software.JarFile}
	}
	return nil
}
