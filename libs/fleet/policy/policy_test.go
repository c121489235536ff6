package policy_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/policy"
)

const (
	hash  = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	other = "sha256:ffff456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func TestOnlyAPlainProcessAndAPlainContainerNeedNoSetting(t *testing.T) {
	cases := []struct {
		rule string
		ask  policy.Ask
		// refused is the setting that refuses it; empty if it is admitted.
		refused string
	}{
		{"a process as the node's default user", policy.Ask{}, ""},
		{"a container of any image", policy.Ask{Image: "ghcr.io/team/server:1"}, ""},
		{"no network", policy.Ask{Network: "none"}, ""},
		{"the engine's default network by its name", policy.Ask{Network: "bridge"}, ""},
		{"the engine's default network by the word", policy.Ask{Network: "default"}, ""},
		{"another user", policy.Ask{User: "games"}, policy.SettingUsers},
		{"root", policy.Ask{User: "0"}, policy.SettingUsers},
		{"another user in the container", policy.Ask{ContainerUser: "1000:1000"}, policy.SettingContainerUsers},
		{"the host's network", policy.Ask{Network: "host"}, policy.SettingNetworks},
		{"a network of the engine", policy.Ask{Network: "games"}, policy.SettingNetworks},
		{"a directory of the host", policy.Ask{Volumes: []string{"/srv/maps"}}, policy.SettingVolumes},
		{"a volume of the engine", policy.Ask{Volumes: []string{"maps"}}, policy.SettingVolumes},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			switch r := (&policy.Policy{}).Check(c.ask); {
			case r == nil && c.refused != "":
				t.Errorf("it is admitted, and not refused by %s", c.refused)
			case r != nil && r.Setting != c.refused:
				t.Errorf("refused by %s, want %q", r.Setting, c.refused)
			}
			if r := (*policy.Policy)(nil).Check(c.ask); r != nil {
				t.Errorf("the policy of an older agent refuses: %+v", r)
			}
		})
	}
}

func TestAnEntryAdmitsWhatItNamesAndNothingElse(t *testing.T) {
	cases := map[string]struct {
		have             policy.Policy
		admits, excludes []policy.Ask
	}{
		"users": {
			policy.Policy{Users: []string{"games", "1001"}},
			[]policy.Ask{{User: "games"}, {User: "1001"}},
			[]policy.Ask{{User: "game"}, {User: "games2"}, {User: "100"}, {User: "01001"}, {ContainerUser: "games"}},
		},
		"users in containers": {
			policy.Policy{ContainerUsers: []string{"1000", "0:0"}},
			[]policy.Ask{{ContainerUser: "1000"}, {ContainerUser: "0:0"}},
			[]policy.Ask{{ContainerUser: "1000:0"}, {ContainerUser: "0"}, {User: "1000"}, {User: "0"}},
		},
		"volumes": {
			policy.Policy{Volumes: []string{"/srv/maps", "worlds"}},
			volumes("/srv/maps", "/srv/maps/a/b", "/srv/maps/./a", "/srv//maps/a", "/srv/x/../maps", "worlds"),
			volumes("/srv", "/", "/srv/maps2", "/srv/mapsa/b", "/srv/maps/../secrets", "/srv/maps/a/../../../etc", "/srv/maps/..", "maps", "world", "srv/maps", "/worlds"),
		},
		"every directory":                     {policy.Policy{Volumes: []string{"/"}}, volumes("/", "/etc", "/a/b"), volumes("worlds")},
		"a directory with a slash at its end": {policy.Policy{Volumes: []string{"/srv/"}}, volumes("/srv", "/srv/a"), volumes("/srv2")},
		"networks": {
			policy.Policy{Networks: []string{"games"}},
			[]policy.Ask{{Network: "games"}, {Network: ""}},
			[]policy.Ask{{Network: "game"}, {Network: "host"}, {Network: "Games"}},
		},
		"everything": {
			policy.Policy{Users: []string{"*"}, ContainerUsers: []string{"*"}, Volumes: []string{"*"}, Networks: []string{"*"}, Images: []string{"*"}},
			[]policy.Ask{{User: "root", ContainerUser: "0", Network: "host", Volumes: []string{"/", "x"}, Image: "x"}},
			nil,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, a := range c.admits {
				if r := c.have.Check(a); r != nil {
					t.Errorf("%+v is refused: %+v", a, r)
				}
			}
			for _, a := range c.excludes {
				if c.have.Check(a) == nil {
					t.Errorf("%+v is admitted", a)
				}
			}
		})
	}
}

func volumes(each ...string) (all []policy.Ask) {
	for _, v := range each {
		all = append(all, policy.Ask{Volumes: []string{v}})
	}
	return all
}

func TestImagesAreComparedAsTheEngineReadsThem(t *testing.T) {
	cases := []struct {
		pattern          string
		admits, excludes []string
	}{
		{
			"debian",
			[]string{"debian", "debian:12", "debian:latest", "docker.io/debian", "docker.io/library/debian:12", "index.docker.io/library/debian", "library/debian", "debian@" + hash, "debian:12@" + hash},
			[]string{"debian2", "team/debian", "ghcr.io/debian", "ghcr.io/library/debian", "localhost/debian", "Debian", "debian/x", "docker.io:443/library/debian"},
		},
		{"docker.io/library/debian:12", []string{"debian:12"}, []string{"debian", "debian:11", "debian:12@" + hash, "debian@" + hash}},
		{"debian:latest", []string{"debian", "debian:latest"}, []string{"debian:12"}},
		{"debian@" + hash, []string{"debian@" + hash, "debian:12@" + hash}, []string{"debian", "debian@" + other, "team/debian@" + hash}},
		{"debian:12@" + hash, []string{"debian@" + hash, "debian:11@" + hash}, []string{"debian:12"}},
		{"team/server", []string{"team/server:1", "docker.io/team/server"}, []string{"server", "team/server/x", "library/team/server"}},
		{"ghcr.io/team/*", []string{"ghcr.io/team/a", "ghcr.io/team/a/b:1", "ghcr.io/team/a@" + hash}, []string{"ghcr.io/team", "ghcr.io/team2/a", "ghcr.io/teams", "team/a", "ghcr.io.evil/team/a", "ghcr.io/team/../evil/a", "ghcr.io/team//a"}},
		{"ghcr.io/*", []string{"ghcr.io/a", "ghcr.io/a/b"}, []string{"a", "ghcr.io:443/a", "docker.io/ghcr.io/a", "ghcr.io.evil.org/a"}},
		{"docker.io/*", []string{"x", "a/b", "docker.io/a/b"}, []string{"ghcr.io/a", "deadbeef", hash}},
		{"docker.io/library/*", []string{"debian", "library/debian"}, []string{"team/debian", "0123456789ab", hash}},
		{"team/*", []string{"team/a", "docker.io/team/a"}, []string{"team", "ghcr.io/team/a"}},
		{"localhost:5000/*", []string{"localhost:5000/a:1"}, []string{"localhost/a", "localhost:5001/a"}},
		{"docker.io/library/cafe", []string{"docker.io/library/cafe:1", "cafe:1", "library/cafe"}, []string{"cafe"}},
		{"x", nil, []string{"", " ", "x y", "x:", "x@", "x@sha256:1", "x:1:2", ":1", "/x", "x/", "%X%", "x%X%"}},
	}
	for _, c := range cases {
		t.Run(c.pattern, func(t *testing.T) {
			p := &policy.Policy{Images: []string{c.pattern}}
			for _, err := range p.Validate() {
				t.Error(err)
			}
			for _, image := range c.admits {
				if r := p.Check(policy.Ask{Image: image}); r != nil {
					t.Errorf("%s is refused: %+v", image, r)
				}
			}
			for _, image := range c.excludes {
				if image != "" && p.Check(policy.Ask{Image: image}) == nil {
					t.Errorf("%q is admitted", image)
				}
			}
		})
	}
}

func TestARefusalNamesTheSettingAndTheValueToAdd(t *testing.T) {
	p := &policy.Policy{Images: []string{"debian"}}
	cases := map[string]policy.Ask{
		"policy.users of n1 does not admit games: add games to this setting of its agent and restart the agent, or change confine.user":                                       {User: "games"},
		"policy.volumes of n1 does not admit /etc: add /etc to this setting of its agent and restart the agent, or change container.volumes":                                  {Volumes: []string{"/etc"}},
		"policy.images of n1 does not admit ghcr.io/a: add ghcr.io/a to this setting of its agent and restart the agent, or change container.image or CUSTOM_IMAGE":           {Image: "ghcr.io/a"},
		"policy.images of n1 does not admit cafe, which the engine may take for the id of another image: give its repository and tag: change container.image or CUSTOM_IMAGE": {Image: "cafe"},
	}
	for want, ask := range cases {
		if r := p.Check(ask); r == nil || r.On("n1") != want {
			t.Errorf("%+v: %+v, want %s", ask, r, want)
		}
	}
}

func TestWrongEntriesAreRefusedWithTheirSetting(t *testing.T) {
	long := strings.Repeat("a", 2000)
	many := make([]string, 300)
	for i := range many {
		many[i] = "a"
	}
	for setting, c := range map[string]struct {
		bad []string
		of  func([]string) policy.Policy
	}{
		policy.SettingUsers:          {[]string{"", "A b", "a:b", "-a", long, "..", "**"}, func(l []string) policy.Policy { return policy.Policy{Users: l} }},
		policy.SettingContainerUsers: {[]string{"", "a b", "a:b:c", ":a", "a/b"}, func(l []string) policy.Policy { return policy.Policy{ContainerUsers: l} }},
		policy.SettingVolumes:        {[]string{"", "a/b", "./a", "/a/../b", "/a/", "/a//b", "/a:b", "/a\n", "/" + long, "a b", "/a/*"}, func(l []string) policy.Policy { return policy.Policy{Volumes: l} }},
		policy.SettingNetworks:       {[]string{"", "a b", "container:a", "/a", "a*"}, func(l []string) policy.Policy { return policy.Policy{Networks: l} }},
		policy.SettingImages:         {[]string{"", "A", "a b", "*/a", "a*", "a/*/b", "/*", "a:*", "a@" + hash[:20], "cafe", hash, "a//b", "a/../b", "-a/*", "https://ghcr.io/a"}, func(l []string) policy.Policy { return policy.Policy{Images: l} }},
	} {
		for _, entry := range c.bad {
			if problems := c.of([]string{entry}).Validate(); len(problems) != 1 || errs.FieldOf(problems[0]) != setting || !errs.Is(problems[0], errs.Invalid) {
				t.Errorf("%s with %.40q: %v", setting, entry, problems)
			}
		}
		if problems := c.of(many).Validate(); len(problems) != 1 {
			t.Errorf("%s with too many entries: %v", setting, problems)
		}
	}
}

func TestAnAskHasTheContainersSettingsOnlyWithRuntimeDocker(t *testing.T) {
	f, c := isolation.Confine{User: "games"}, isolation.Container{User: "1", Network: "host", Volumes: []string{"/a:/b:ro", "v:/c"}}
	if diff := cmp.Diff(policy.Ask{User: "games"}, policy.AskOf(false, f, c, "debian")); diff != "" {
		t.Error(diff)
	}
	want := policy.Ask{User: "games", Image: "debian", ContainerUser: "1", Network: "host", Volumes: []string{"/a", "v"}}
	if diff := cmp.Diff(want, policy.AskOf(true, f, c, "debian")); diff != "" {
		t.Error(diff)
	}
}

var anyPath = rapid.Custom(func(t *rapid.T) string {
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "..", ".", ""}), 0, 6).Draw(t, "parts")
	return "/" + strings.Join(parts, "/")
})

// An admitted path is, component by component, at or below an entry.
func TestNoPathEscapesTheDirectoriesOfAPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &policy.Policy{Volumes: rapid.SliceOfN(anyPath, 0, 3).Draw(t, "entries")}
		asked := anyPath.Draw(t, "asked")
		below := slices.ContainsFunc(p.Volumes, func(dir string) bool {
			at := path.Clean(asked)
			for at != path.Clean(dir) && at != "/" {
				at = path.Dir(at)
			}
			return at == path.Clean(dir)
		})
		if admitted := p.Check(policy.Ask{Volumes: []string{asked}}) == nil; admitted != below {
			t.Fatalf("%v admits %s: %v", p.Volumes, asked, admitted)
		}
	})
}

// Adding an entry never refuses more, except the first image; and adding what a refusal names admits it.
func TestAddingTheRefusedValueAdmitsTheGroup(t *testing.T) {
	word := rapid.SampledFrom([]string{"a", "b", "host", "0", "1000"})
	rapid.Check(t, func(t *rapid.T) {
		list := func(label string) []string { return rapid.SliceOfN(word, 0, 2).Draw(t, label) }
		p := &policy.Policy{Users: list("users"), ContainerUsers: list("containerUsers"), Networks: list("networks"), Volumes: list("volumes"), Images: []string{"docker.io/team/x"}}
		ask := policy.Ask{
			User: word.Draw(t, "user"), ContainerUser: word.Draw(t, "containerUser"), Network: word.Draw(t, "network"),
			Volumes: []string{word.Draw(t, "volume"), path.Clean(anyPath.Draw(t, "path"))}, Image: "ghcr.io/" + rapid.StringMatching(`[a-z]{1,4}(:[a-z0-9]{1,3})?`).Draw(t, "image"),
		}
		for range 6 {
			r := p.Check(ask)
			if r == nil {
				break
			}
			into := map[string]*[]string{
				policy.SettingUsers: &p.Users, policy.SettingContainerUsers: &p.ContainerUsers, policy.SettingNetworks: &p.Networks,
				policy.SettingVolumes: &p.Volumes, policy.SettingImages: &p.Images,
			}[r.Setting]
			*into = append(*into, r.Value)
		}
		if r := p.Check(ask); r != nil {
			t.Fatalf("%+v still refuses %+v: %+v", p, ask, r)
		}
		if problems := p.Validate(); len(problems) > 0 {
			t.Fatalf("what refusals named is not valid: %v", problems)
		}
	})
}

// An entry that ends in /* admits only images whose full name begins with the same registry and path.
func FuzzNoImageLeavesItsRegistry(f *testing.F) {
	for _, s := range []string{"ghcr.io/team/a:1", "ghcr.io/team/../x", "team/a", "GHCR.io/team/a", "ghcr.io/team/a@" + hash, "[::1]:5000/a", "ghcr.io:443/team/a"} {
		f.Add(s)
	}
	p := &policy.Policy{Images: []string{"ghcr.io/team/*"}}
	f.Fuzz(func(t *testing.T, image string) {
		if image != "" && p.Check(policy.Ask{Image: image}) == nil && (!strings.HasPrefix(image, "ghcr.io/team/") || strings.Contains(image, "..")) {
			t.Errorf("%q is admitted", image)
		}
	})
}
