package git_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
	"github.com/orreryhq/orrery/templatesvc/internal/sources/git"
)

var (
	token = content.SourceCredentials{Token: "token"}
	one   = content.TemplateRef{Group: "g", Name: "t"}
)

func told(t *testing.T, got []string, err error, want string) {
	t.Helper()
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v\nwant %s", got, err, want)
	}
}

func refused(t *testing.T, got []string, err error, kind errs.Kind, want string) {
	t.Helper()
	if got != nil || !errs.Is(err, kind) || !strings.Contains(errs.MessageOf(err), want) {
		t.Errorf("%v, %v (%s), want %s: …%s…", got, err, errs.KindOf(err), kind, want)
	}
}

func TestABranchATagAndACommitAreBrought(t *testing.T) {
	r := newRepository(t)
	first := r.push("f", "one")
	r.git("tag", "-a", "v1", "-m", "first")
	r.git("push", "--quiet", "origin", "v1")
	second := r.push("f", "two", "big", strings.Repeat("large ", 1<<20))
	r.git("rm", "--quiet", "big")
	third := r.push()
	url := r.serve().URL + "/r.git"
	for name, c := range map[string]struct {
		source         content.TemplateSource
		commit, wanted string
	}{
		"the default branch":             {content.TemplateSource{}, third, "two"},
		"a branch":                       {content.TemplateSource{Branch: "main"}, third, "two"},
		"an annotated tag":               {content.TemplateSource{Tag: "v1"}, first, "one"},
		"a commit a branch ends in":      {content.TemplateSource{Commit: third}, third, "two"},
		"a commit in a branch's history": {content.TemplateSource{Commit: first}, first, "one"},
	} {
		for kind, at := range map[string]string{"over HTTP": url, "on the own disk": "file://" + r.dir, "in a worktree": "file://" + r.worktree} {
			t.Run(name+" "+kind, func(t *testing.T) {
				s := c.source
				s.URL, s.Template = at, one
				got, revision, err := fetch(t, s, token, "")
				told(t, got, err, "[g/t/f  644 "+c.wanted+"]")
				if revision != c.commit {
					t.Errorf("revision %s, want %s", revision, c.commit)
				}
				if got, revision, err := fetch(t, s, token, c.commit); got != nil || revision != "" || err != nil {
					t.Errorf("what was brought is brought again: %v %s %v", got, revision, err)
				}
			})
		}
	}
	if second == third {
		t.Error("the commits are one")
	}
}

func TestAForcedPushAndADeletedBranch(t *testing.T) {
	r := newRepository(t)
	r.push("f", "one")
	url := r.serve().URL + "/r.git"
	s := content.TemplateSource{URL: url, Branch: "main", Template: one}
	_, before, err := fetch(t, s, token, "")
	if err != nil {
		t.Fatal(err)
	}
	r.git("checkout", "--quiet", "--orphan", "fresh")
	r.push("f", "another past")
	r.git("push", "--quiet", "--force", "origin", "HEAD:main")
	got, _, err := fetch(t, s, token, before)
	told(t, got, err, "[g/t/f  644 another past]")
	r.run(r.dir, "update-ref", "-d", "refs/heads/main")
	got, _, err = fetch(t, s, token, "")
	refused(t, got, err, errs.Invalid, "main does not exist in the repository")
}

func TestDirectoriesBecomeTemplates(t *testing.T) {
	r := newRepository(t)
	r.push("README.md", "about", "all/games/lobby/f", "1", "all/games/duel/sub/f", "2", "all/web/site/f", "3", "all/notes", "4", ".github/w/f", "5")
	if err := os.Symlink("sub/f", filepath.Join(r.worktree, "all/games/duel/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(r.worktree, "all/games/duel/sub/f"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.push()
	url := "file://" + r.dir
	for name, c := range map[string]struct {
		source content.TemplateSource
		want   string
	}{
		"by two levels": {content.TemplateSource{Path: "all"}, "[games/duel/link link 0 sub/f games/duel/sub/f  755 2 games/lobby/f  644 1 web/site/f  644 3]"},
		"of a group":    {content.TemplateSource{Path: "all/games", Group: "mine"}, "[mine/duel/link link 0 sub/f mine/duel/sub/f  755 2 mine/lobby/f  644 1]"},
		"as one":        {content.TemplateSource{Path: "all/web", Template: one}, "[g/t/site/f  644 3]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.source
			s.URL = url
			got, _, err := fetch(t, s, content.SourceCredentials{}, "")
			told(t, got, err, c.want)
		})
	}
	got, _, err := fetch(t, content.TemplateSource{URL: url, Path: "none"}, content.SourceCredentials{}, "")
	refused(t, got, err, errs.Invalid, "none is no directory of the repository")
}

func TestWhatARepositoryOnlyPointsToIsRefusedByName(t *testing.T) {
	r := newRepository(t)
	r.push("a/b/f", "1", "a/big/world.zip", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
	r.git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",a/sub/module")
	r.git("commit", "--quiet", "-m", "submodule")
	r.git("push", "--quiet", "origin", "HEAD")
	url := "file://" + r.dir
	for path, want := range map[string]string{"a/big": "a/big/world.zip is kept by Git LFS", "a/sub": "a/sub/module is a submodule"} {
		got, _, err := fetch(t, content.TemplateSource{URL: url, Path: path, Template: one}, content.SourceCredentials{}, "")
		refused(t, got, err, errs.Invalid, want)
	}
}

func TestAServerThatRefusesOrHangsIsToldInBoundedTime(t *testing.T) {
	r := newRepository(t)
	r.push("f", "one")
	server := r.serve()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	// A server that works until it sends the pack, and then hangs or sends half of it.
	half := func(cut bool) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			q.SetBasicAuth("git", "token")
			if !strings.HasSuffix(q.URL.Path, "/git-upload-pack") {
				server.Config.Handler.ServeHTTP(w, q)
				return
			}
			answer := httptest.NewRecorder()
			server.Config.Handler.ServeHTTP(answer, q)
			_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
			_ = http.NewResponseController(w).Flush()
			if !cut {
				<-q.Context().Done()
			}
		}))
		t.Cleanup(s.Close)
		return s
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer page.Close()
	for name, c := range map[string]struct {
		url  string
		with content.SourceCredentials
		kind errs.Kind
		want string
	}{
		"a wrong token":                       {server.URL + "/r.git", content.SourceCredentials{Token: "wrong"}, errs.Denied, "refuses the credentials"},
		"no such repository":                  {server.URL + "/none.git", token, errs.Invalid, "leads to no repository: "},
		"no repository at all":                {page.URL, token, errs.Invalid, "leads to no Git repository"},
		"nobody listens":                      {"http://127.0.0.1:1/r.git", token, errs.Unavailable, "cannot be reached"},
		"it accepts and says nothing":         {"http://" + silent.Addr().String() + "/r.git", token, errs.Unavailable, "does not answer in time"},
		"it stops in the middle":              {half(false).URL + "/r.git", token, errs.Unavailable, "does not answer in time"},
		"it breaks off in the middle":         {half(true).URL + "/r.git", token, errs.Unavailable, "not whole"},
		"nothing at the path on the own disk": {"file:///does/not/exist", token, errs.Invalid, "leads to no repository"},
	} {
		t.Run(name, func(t *testing.T) {
			by := sources.Dialer{Egress: egresstest.Loopback()}
			if c.want == "does not answer in time" {
				by = hasty
			}
			got, _, err := fetchBy(t, by, content.TemplateSource{URL: c.url, Template: one}, c.with, "")
			refused(t, got, err, c.kind, c.want)
		})
	}
}

func TestAnEmptyRepositoryIsToldAsSuch(t *testing.T) {
	r := newRepository(t)
	got, _, err := fetch(t, content.TemplateSource{URL: r.serve().URL + "/r.git", Template: one}, token, "")
	refused(t, got, err, errs.Invalid, "leads to an empty repository")
}

func TestTheCatalogIsDeclaredBesideTemplatesAllOrNone(t *testing.T) {
	r := newRepository(t)
	r.push("live/templates/games/lobby/f", "1", "live/catalog.yaml", `
platforms:
  PAPER:
    recommended: "1.21"
    versions:
      - {version: "1.20", downloadUrl: "https://host/1.20", sha256: "a"}
      - {version: "1.21", downloadUrl: "https://host/1.21", sha256: "b", category: SERVER}
  VELOCITY: {}
`)
	s := content.TemplateSource{Kind: content.SourceGit, URL: "file://" + r.dir, Path: "live", Declares: true}
	h, err := git.Fetch(t.Context(), sources.Request{Source: s, Spool: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, e := range h.Catalog {
		declared = append(declared, e.Name()+" "+string(e.Spec)+" "+e.File)
	}
	told(t, declared, nil, `[PAPER {"recommended":"1.21"} live/catalog.yaml`+
		` PAPER/1.20 {"downloadUrl":"https://host/1.20","sha256":"a"} live/catalog.yaml`+
		` PAPER/1.21 {"category":"SERVER","downloadUrl":"https://host/1.21","sha256":"b"} live/catalog.yaml`+
		` VELOCITY {"recommended":""} live/catalog.yaml]`)
	for name, c := range map[string]struct{ file, content, want string }{
		"a line that cannot be read": {"live/catalog.yaml", "platforms:\n\tx: [", "live/catalog.yaml cannot be read: yaml: line 2"},
		"another field":              {"live/catalog.yaml", "platform: {}\n", "line 1: field platform not found"},
		"nothing":                    {"live/catalog.yaml", "\n", "live/catalog.yaml declares no platform"},
		"an odd platform":            {"live/catalog.yaml", "platforms: {a/b: {}}\n", "is not a platform name"},
		"a version without quotes":   {"live/catalog.yaml", "platforms: {P: {versions: [{version: 1.20}]}}\n", "in quotes: 1.2 is none"},
		"an odd version":             {"live/catalog.yaml", "platforms: {P: {versions: [{version: \"../x\"}]}}\n", "is not a version"},
		"a version twice":            {"live/catalog.yaml", "platforms: {P: {versions: [{version: \"1\"}, {version: \"1\"}]}}\n", "declares P/1 a second time"},
		"a second file":              {"live/catalog.json", "{\"platforms\":{\"P\":{}}}", "a second time, after live/catalog.json"},
	} {
		t.Run(name, func(t *testing.T) {
			r.push(c.file, c.content)
			defer func() {
				r.git("reset", "--quiet", "--hard", "HEAD~1")
				r.push()
			}()
			got, _, err := fetch(t, s, content.SourceCredentials{}, "")
			if got != nil || err == nil || !strings.Contains(errs.MessageOf(err), c.want) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestGroupsAreDeclaredBesideTemplatesAllOrNone(t *testing.T) {
	r := newRepository(t)
	r.push("live/groups/lobby.yaml", "command: run\nmaxInstances: 3\n", "live/groups/duel.json", `{"command":"x"}`, "live/groups/README.md", "about",
		"live/templates/games/lobby/f", "1", "live/other/games/no/f", "2")
	s := content.TemplateSource{Kind: content.SourceGit, URL: "file://" + r.dir, Path: "live", Declares: true}
	got, _, err := fetch(t, s, content.SourceCredentials{}, "")
	told(t, got, err, "[games/lobby/f  644 1]")
	h, err := git.Fetch(t.Context(), sources.Request{Source: s, Spool: t.TempDir()})
	if err != nil || len(h.Groups) != 2 || h.Groups[0].Group != "duel" || string(h.Groups[1].Spec) != `{"command":"run","maxInstances":3}` || h.Groups[1].File != "live/groups/lobby.yaml" {
		t.Errorf("%+v, %v", h, err)
	}
	for name, c := range map[string]struct{ file, content, want string }{
		"a line that cannot be read": {"live/groups/bad.yaml", "command: run\n\tx: [", "live/groups/bad.yaml cannot be read: yaml: line 2"},
		"a field that stands twice":  {"live/groups/bad.yaml", "command: run\ncommand: run\n", "live/groups/bad.yaml cannot be read: line 2: mapping key \"command\" already defined"},
		"no fields":                  {"live/groups/bad.yaml", "- a\n- b\n", "live/groups/bad.yaml cannot be read"},
		"an odd name":                {"live/groups/a b.yaml", "command: run\n", "live/groups/a b.yaml: "},
		"a second file":              {"live/groups/lobby.yml", "command: run\n", "declares the group lobby a second time"},
		"too large":                  {"live/groups/big.json", "{\"command\":\"" + strings.Repeat("x", compose.MaxDeclaredBytes) + "\"}", "live/groups/big.json is larger than 256 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			r.push(c.file, c.content)
			defer func() {
				r.git("rm", "--quiet", c.file)
				r.push()
			}()
			got, _, err := fetch(t, s, content.SourceCredentials{}, "")
			if got != nil || err == nil || !strings.Contains(errs.MessageOf(err), c.want) {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
