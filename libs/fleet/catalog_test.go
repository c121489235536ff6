package fleet

import "testing"

func TestTheArtifactOfAPlan(t *testing.T) {
	paper := &CatalogPlatform{Platform: "PAPER", Recommended: "2", Versions: []CatalogVersion{{Version: "1", URL: "http://x/1", SHA256: "h1"}, {Version: "2", URL: "http://x/2", SHA256: "h2"}}}
	nothing := &CatalogPlatform{Platform: "NEW", Versions: paper.Versions}
	cases := []struct {
		rule     string
		software Software
		command  string
		want     *Artifact
	}{
		{"a blank version is the recommended one", Software{Platform: "PAPER", JarFile: "s.jar"}, "", &Artifact{"PAPER", "2", "http://x/2", "h2", "s.jar"}},
		{"a version is that one", Software{Platform: "PAPER", PlatformVersion: "1", JarFile: "s.jar"}, "", &Artifact{"PAPER", "1", "http://x/1", "h1", "s.jar"}},
		{"one that went is named without a URL", Software{Platform: "PAPER", PlatformVersion: "0", JarFile: "s.jar"}, "", &Artifact{Platform: "PAPER", Version: "0", Path: "s.jar"}},
		{"a command brings its own", Software{Platform: "PAPER", JarFile: "s.jar"}, "run", nil},
		{"a platform that is not in the catalog is named without a URL", Software{Platform: "OTHER", PlatformVersion: "1", JarFile: "s.jar"}, "", &Artifact{Platform: "OTHER", Version: "1", Path: "s.jar"}},
		{"a platform without a version is not looked for", Software{Platform: "OTHER", JarFile: "s.jar"}, "", nil},
		{"a file that only its start can name is not either", Software{Platform: "OTHER", PlatformVersion: "1", JarFile: "%JAR%"}, "", nil},
		{"none recommended", Software{Platform: "NEW", JarFile: "s.jar"}, "", nil},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			m := Materials{Catalog: map[string]*CatalogPlatform{"PAPER": paper, "NEW": nothing}}
			got := Compose(Group{Spec: GroupSpec{Software: c.software, Command: c.command}}, m, 0).Artifact
			if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}
