package compose

import (
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

func TestPlanArtifact(t *testing.T) {
	paper := &content.CatalogPlatform{Platform: "PAPER", Recommended: "2", Versions: []content.CatalogVersion{{Version: "1", URL: "http://x/1", SHA256: "h1"}, {Version: "2", URL: "http://x/2", SHA256: "h2"}}}
	nothing := &content.CatalogPlatform{Platform: "NEW", Versions: paper.Versions}
	cases := []struct {
		rule     string
		software fleet.Software
		command  string
		want     *content.Artifact
	}{
		{"a blank version is the recommended one", fleet.Software{Platform: "PAPER", JarFile: "s.jar"}, "", &content.Artifact{Platform: "PAPER", Version: "2", URL: "http://x/2", SHA256: "h2", Path: "s.jar"}},
		{"a version is that one", fleet.Software{Platform: "PAPER", PlatformVersion: "1", JarFile: "s.jar"}, "", &content.Artifact{Platform: "PAPER", Version: "1", URL: "http://x/1", SHA256: "h1", Path: "s.jar"}},
		{"one that went is named without a URL", fleet.Software{Platform: "PAPER", PlatformVersion: "0", JarFile: "s.jar"}, "", &content.Artifact{Platform: "PAPER", Version: "0", Path: "s.jar"}},
		{"a command brings its own", fleet.Software{Platform: "PAPER", JarFile: "s.jar"}, "run", nil},
		{"a platform that is not in the catalog is named without a URL", fleet.Software{Platform: "OTHER", PlatformVersion: "1", JarFile: "s.jar"}, "", &content.Artifact{Platform: "OTHER", Version: "1", Path: "s.jar"}},
		{"a platform without a version is not looked for", fleet.Software{Platform: "OTHER", JarFile: "s.jar"}, "", nil},
		{"a file that only its start can name is not either", fleet.Software{Platform: "OTHER", PlatformVersion: "1", JarFile: "%JAR%"}, "", nil},
		{"none recommended", fleet.Software{Platform: "NEW", JarFile: "s.jar"}, "", nil},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			m := Materials{Catalog: map[string]*content.CatalogPlatform{"PAPER": paper, "NEW": nothing}}
			got := Compose(fleet.Group{Spec: fleet.GroupSpec{Software: c.software, Command: c.command}}, m, 0).Artifact
			if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}
