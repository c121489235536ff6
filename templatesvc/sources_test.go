package templatesvc_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// record writes a source as the gateway does.
func (w *world) record(s content.TemplateSource, c content.SourceCredentials) {
	w.t.Helper()
	key := keys.TemplateSource(s.Name)
	old, err := store.Get(w.t.Context(), w.c, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		w.t.Fatal(err)
	}
	if c != (content.SourceCredentials{}) {
		box := seal.NewBox(secret, content.SourceCredentialsKind)
		plain, err := json.Marshal(c)
		if err != nil {
			w.t.Fatal(err)
		}
		s.Sealed = box.Seal(plain)
	}
	if _, err := w.c.Commit(w.t.Context(), store.Txn{Writes: []store.Write{store.Replace(key, s, old.ModRev)}}); err != nil {
		w.t.Fatal(err)
	}
}

// status waits for the status of a source's latest record.
func (w *world) status(name string, want content.SourceState) (st content.SourceStatus) {
	w.t.Helper()
	await.That(w.t, "source "+name+" "+string(want), func() string {
		s, err := store.Get(w.t.Context(), w.c, keys.TemplateSource(name))
		if err == nil {
			st, err = store.Get(w.t.Context(), w.c, keys.TemplateSourceStatus(name))
		}
		return await.Unless(err == nil && st.Observed == s.ModRev && st.State == want, "%+v, %v", st, err)
	})
	return st
}

// server serves content by path to clients with the token, and counts requests.
type server struct {
	mu    sync.Mutex
	files map[string][]byte
	asked int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	b, ok := s.files[r.URL.Path]
	if !ok || r.Header.Get("Authorization") != "Bearer token" {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(b)
}

func zipOf(t *testing.T, name, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f, err := z.Create(name)
	if err == nil {
		_, err = io.WriteString(f, content)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func TestASourceOfAnArtifactIsPublishedAndFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := zipOf(t, "f", "one"), zipOf(t, "f", "two")
	web := &server{files: map[string][]byte{"/one.zip": one, "/two.zip": two}}
	s := httptest.NewServer(web)
	defer s.Close()
	token := content.SourceCredentials{Token: "token"}
	source := content.TemplateSource{Name: "web", Kind: content.SourceHTTP, URL: s.URL + "/one.zip", SHA256: hashOf(one), Template: ref}
	w.record(source, token)
	svc, _ := w.start("a")
	st := w.status("web", content.SourceInSync)
	first, ok := w.head()
	if !ok || first.Origin != "web" || st.Revision != hashOf(one) || len(st.Items) != 1 || st.Items[0].Digest != first.Digest {
		t.Fatalf("%+v, %+v", first, st)
	}
	if got, _ := contentOf(t, clientOf(svc), first.Digest, "f"); got != "one" {
		t.Errorf("content %q", got)
	}

	// A wrong hash changes nothing. The message has both hashes.
	source.URL = s.URL + "/two.zip"
	w.record(source, token)
	if st = w.status("web", content.SourceFailed); !strings.Contains(st.Message, "expected "+hashOf(one)+", got "+hashOf(two)) || len(st.Items) != 1 {
		t.Errorf("%+v", st)
	}
	if h, _ := w.head(); h.ModRev != first.ModRev {
		t.Error("the head moved")
	}

	source.SHA256 = hashOf(two)
	w.record(source, token)
	w.status("web", content.SourceInSync)
	second, _ := w.head()
	if got, _ := contentOf(t, clientOf(svc), second.Digest, "f"); got != "two" {
		t.Errorf("content %q", got)
	}

	// A template that somebody removed is published again at the next look.
	if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Remove(keys.TemplateHead(ref), second.ModRev)}}); err != nil {
		t.Fatal(err)
	}
	source.Asked++
	w.record(source, token)
	w.await("brought again", func(h content.TemplateHead, ok bool) bool { return ok && h.Digest == second.Digest })

	// Credentials of another cluster, and a paused source.
	w.status("web", content.SourceInSync)
	source.Sealed = []byte("not sealed by this cluster's secret")
	w.record(source, content.SourceCredentials{})
	if st = w.status("web", content.SourceFailed); !strings.Contains(st.Message, "cannot decrypt this cluster's keys") {
		t.Errorf("%+v", st)
	}
	source.Paused = true
	w.record(source, content.SourceCredentials{})
	w.status("web", content.SourcePaused)
}

func TestAnArtifactWithoutAHashFollowsItsURL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	var body, hash atomic.Value
	body.Store("one")
	hash.Store("")
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		text := body.Load().(string)
		if r.URL.Path == "/f.sha256" {
			text = hash.Load().(string)
		}
		_, _ = io.WriteString(rw, text)
	}))
	t.Cleanup(s.Close)
	source := content.TemplateSource{Name: "web", Kind: content.SourceHTTP, URL: s.URL + "/f", File: "f", Template: ref}
	ask := func() { source.Asked++; w.record(source, content.SourceCredentials{}) }
	ask()
	svc, _ := w.start("a")
	brings := func(text string, before string) string {
		t.Helper()
		head := w.await("with "+text, func(h content.TemplateHead, ok bool) bool { return ok && h.Digest != before })
		if got, _ := contentOf(t, clientOf(svc), head.Digest, "f"); got != text {
			t.Errorf("content %q, want %q", got, text)
		}
		return head.Digest
	}
	first := brings("one", "")
	body.Store("two")
	ask()
	second := brings("two", first)

	source.HashURL = s.URL + "/f.sha256"
	hash.Store(hashOf([]byte("three")))
	ask()
	if st := w.status("web", content.SourceFailed); !strings.Contains(st.Message, hashOf([]byte("three"))) {
		t.Errorf("another hash than the content's: %+v", st)
	}
	body.Store("three")
	ask()
	brings("three", second)
}

// newRepository creates a local repository. git runs commands in it; commit commits all
// files.
func newRepository(t *testing.T) (dir string, git func(args ...string), commit func()) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil && os.Getenv("ORRERY_CI") == "" {
		t.Skip("git is not installed")
	}
	dir = t.TempDir()
	git = func(args ...string) {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	commit = func() { t.Helper(); git("add", "-A"); git("commit", "--quiet", "--allow-empty", "-m", "change") }
	git("init", "--quiet", "--initial-branch=main")
	return dir, git, commit
}

func TestTheTemplatesOfARepositoryComeAndGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	repository, git, commit := newRepository(t)
	for _, name := range []string{"t", "u"} {
		at := filepath.Join(repository, ref.Group, name)
		if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, "f"), []byte(name), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	commit()
	source := content.TemplateSource{Name: "repo", Kind: content.SourceGit, URL: "file://" + repository, Branch: "main"}
	ask := func() { source.Asked++; w.record(source, content.SourceCredentials{}) }
	ask()
	w.start("a")
	if st := w.status("repo", content.SourceInSync); len(st.Items) != 2 {
		t.Errorf("%+v", st)
	}
	if err := os.RemoveAll(filepath.Join(repository, ref.Group, ref.Name)); err != nil {
		t.Fatal(err)
	}
	commit()
	ask()
	if st := w.status("repo", content.SourceInSync); len(st.Items) != 1 || st.Items[0].Template.Name != "u" {
		t.Errorf("%+v", st)
	}
	if _, ok := w.head(); ok {
		t.Error("a template that the repository has no more is still there")
	}

	// An empty repository is treated as a mistake, not as a removal.
	git("rm", "-r", "--quiet", ".")
	commit()
	ask()
	if st := w.status("repo", content.SourceFailed); !strings.Contains(st.Message, "holds no template") {
		t.Errorf("%+v", st)
	}
	heads, _, err := store.List(t.Context(), w.c, keys.TemplateHeads())
	if err != nil || len(heads) != 1 {
		t.Errorf("%v, %v", heads, err)
	}
}

func TestASourceTakesNoTemplateOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := zipOf(t, "f", "one")
	s := httptest.NewServer(&server{files: map[string][]byte{"/a.zip": b}})
	defer s.Close()
	w.write("f", "mine", 0o644)
	w.start("a")
	before, _ := w.head()
	w.record(content.TemplateSource{Name: "web", Kind: content.SourceHTTP, URL: s.URL + "/a.zip", SHA256: hashOf(b), Template: ref}, content.SourceCredentials{Token: "token"})
	st := w.status("web", content.SourceFailed)
	if len(st.Items) != 1 || !strings.Contains(st.Items[0].Message, "template g/t is published by source directory") {
		t.Errorf("%+v", st)
	}
	if h, _ := w.head(); h.Digest != before.Digest {
		t.Error("the head moved")
	}
}

func TestASourceHasOneOwnerAndAnotherAfterIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	one, two := zipOf(t, "f", "one"), zipOf(t, "f", "two")
	web := &server{files: map[string][]byte{"/one.zip": one, "/two.zip": two}}
	s := httptest.NewServer(web)
	defer s.Close()
	token := content.SourceCredentials{Token: "token"}
	stops := map[string]func(){}
	for _, name := range []string{"a", "b"} {
		_, stops[name] = w.start(name)
	}
	shard := keys.Shard("templatesvc", fleet.ShardOf("web"))
	owner := func() (o cluster.Shard) {
		await.That(t, "an owner, beside another", func() string {
			all, _, err := store.List(t.Context(), w.c, keys.Shards("templatesvc"))
			by := map[string]int{}
			for _, s := range all {
				by[s.Replica]++
			}
			if err == nil && len(all) == fleet.ShardCount && len(by) == len(stops) {
				o, err = store.Get(t.Context(), w.c, shard)
				return await.Unless(err == nil, "%v", err)
			}
			return await.Unless(false, "%v, %v", by, err)
		})
		return o
	}
	first := owner()
	source := content.TemplateSource{Name: "web", Kind: content.SourceHTTP, URL: s.URL + "/one.zip", SHA256: hashOf(one), Template: ref}
	w.record(source, token)
	w.status("web", content.SourceInSync)
	if web.mu.Lock(); web.asked != 1 {
		t.Errorf("two replicas asked %d times", web.asked)
	}
	web.mu.Unlock()
	stops[first.Replica]()
	delete(stops, first.Replica)
	if second := owner(); second.Replica == first.Replica {
		t.Fatal("the owner left and is still there")
	}
	source.URL, source.SHA256 = s.URL+"/two.zip", hashOf(two)
	w.record(source, token)
	w.status("web", content.SourceInSync)
}

func TestDeclaredGroupsAreRecordedAndTheirRemovalOrdered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	repository, git, commit := newRepository(t)
	if err := os.Mkdir(filepath.Join(repository, "groups"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		if err := os.WriteFile(filepath.Join(repository, "groups", fmt.Sprintf("g%d.yaml", i)), []byte("command: run\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commit()
	source := content.TemplateSource{Name: "repo", Kind: content.SourceGit, URL: "file://" + repository, Declares: true}
	ask := func() { source.Asked++; w.record(source, content.SourceCredentials{}) }
	declared := func() (text string) {
		all, _, err := store.List(t.Context(), w.c, keys.DeclaredGroupsOf("repo"))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			text += fmt.Sprintf("%s %v %s;", d.Group, d.Removed, d.Spec)
		}
		return text
	}
	ask()
	w.start("a")
	st := w.status("repo", content.SourceInSync)
	all := declared()
	if strings.Count(all, `false {"command":"run"};`) != 6 {
		t.Errorf("declared %s", all)
	}

	// One invalid file prevents the whole commit from being applied.
	bad := filepath.Join(repository, "groups", "g0.yaml")
	if err := errors.Join(os.WriteFile(bad, []byte("command: [\n"), 0o644), os.WriteFile(filepath.Join(repository, "groups", "g1.yaml"), []byte("command: other\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	commit()
	ask()
	if st = w.status("repo", content.SourceFailed); !strings.Contains(st.Message, "groups/g0.yaml cannot be read: yaml: line 1") || declared() != all {
		t.Errorf("%s, declared %s", st.Message, declared())
	}

	// Removing one group happens at once; removing most groups waits for confirmation.
	git("rm", "--quiet", "-f", "groups/g0.yaml")
	commit()
	ask()
	w.status("repo", content.SourceInSync)
	if got := declared(); !strings.Contains(got, "g0 true") || !strings.Contains(got, `g1 false {"command":"other"};`) {
		t.Errorf("declared %s", got)
	}
	if err := os.WriteFile(filepath.Join(repository, "groups", "last.yaml"), []byte("command: run\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// A group that failed and does not exist, and one that belongs to another source, do
	// not count as removals.
	for name, state := range map[string]compose.DeclaredState{"g1": compose.DeclaredFailed, "g2": compose.DeclaredConflict} {
		d, err := store.Get(t.Context(), w.c, keys.DeclaredGroup("repo", fleet.GroupName(name)))
		if err != nil {
			t.Fatal(err)
		}
		st := compose.DeclaredStatus{Source: "repo", Group: d.Group, Observed: d.ModRev, State: state}
		if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.DeclaredStatus("repo", d.Group), st)}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		if err := os.WriteFile(filepath.Join(repository, "groups", fmt.Sprintf("h%d.yaml", i)), []byte("command: run\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commit()
	ask()
	w.status("repo", content.SourceInSync)
	git("rm", "--quiet", "groups/h0.yaml", "groups/h1.yaml", "groups/g1.yaml", "groups/g2.yaml", "groups/g3.yaml", "groups/g4.yaml", "groups/g5.yaml")
	commit()
	ask()
	if st = w.status("repo", content.SourceHeld); !strings.Contains(st.Message, "held: 5 of 6 groups would be removed (g3, g4, g5, h0, h1)") || strings.Count(declared(), "true") != 1 {
		t.Errorf("%s, declared %s", st.Message, declared())
	}
	source.Confirmed = st.Held
	ask()
	w.status("repo", content.SourceInSync)
	if got := declared(); strings.Count(got, "true") != 8 || !strings.Contains(got, "last false") {
		t.Errorf("declared %s", got)
	}
}

func TestACommitRemovesTheLastGroupWithItsLastTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dir = ""
	repository, git, commit := newRepository(t)
	at := filepath.Join(repository, "templates", ref.Group, ref.Name)
	if err := errors.Join(os.Mkdir(filepath.Join(repository, "groups"), 0o755), os.MkdirAll(at, 0o755),
		os.WriteFile(filepath.Join(repository, "groups", "g.yaml"), []byte("command: run\n"), 0o644), os.WriteFile(filepath.Join(at, "f"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	commit()
	source := content.TemplateSource{Name: "repo", Kind: content.SourceGit, URL: "file://" + repository, Declares: true}
	ask := func() { source.Asked++; w.record(source, content.SourceCredentials{}) }
	ask()
	w.start("a")
	w.status("repo", content.SourceInSync)
	git("rm", "-r", "--quiet", ".")
	commit()
	ask()
	if st := w.status("repo", content.SourceInSync); st.Message != "" || len(st.Items) != 0 {
		t.Errorf("%+v", st)
	}
	d, err := store.Get(t.Context(), w.c, keys.DeclaredGroup("repo", "g"))
	if _, there := w.head(); err != nil || !d.Removed || there {
		t.Errorf("group %+v, %v, its template is there: %v", d, err, there)
	}

	// An empty repository at another place removes nothing.
	other, _, start := newRepository(t)
	start()
	source.URL = "file://" + other
	ask()
	w.status("repo", content.SourceFailed)
}

func TestNoSourceHasWhatIsOrrerysOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := content.AvatarTemplate.String()
	drop(t, w.dir, own, "g/t")
	var source content.TemplateSource
	dir, ask := w.follow(&source)
	tree(t, dir, own+"/a", "games/x/a")
	ask()
	svc, _ := w.start("a")
	if st := w.status("repo", content.SourceFailed); !strings.Contains(st.Message, "1 of 2 templates are not published, the first is "+own) || !strings.Contains(st.Message, "Orrery's own") {
		t.Errorf("%+v", st)
	}
	if told := w.directory("a", content.SourceFailed, own+" is not published"); len(told.Items) != 1 {
		t.Errorf("%+v", told)
	}
	w.has("g/t games/x")

	// A head with the origin of a source does not change that.
	put := func(name string) content.TemplateHead {
		t.Helper()
		_, err := clientOf(svc).PutFile(t.Context(), client.Change{Ref: content.AvatarTemplate, Create: true, Path: name, Asked: client.Asked{Author: "a"}}, 0, false, strings.NewReader(name))
		if err != nil {
			t.Fatal(err)
		}
		head, err := store.Get(t.Context(), w.c, keys.TemplateHead(content.AvatarTemplate))
		if err != nil {
			t.Fatal(err)
		}
		return head
	}
	for _, origin := range []string{"repo", content.DirectoryOrigin} {
		head := put(origin)
		head.Origin, head.SourceDigest = origin, head.Digest
		if _, err := w.c.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Replace(keys.TemplateHead(content.AvatarTemplate), head, head.ModRev)}}); err != nil {
			t.Fatal(err)
		}
		put(origin + " again")
	}
	if err := os.RemoveAll(filepath.Join(w.dir, content.AvatarTemplate.Group)); err != nil {
		t.Fatal(err)
	}
	w.confirm("")
	w.directory("a", content.SourceInSync, "")
	tree(t, dir, "games/x/a")
	ask()
	w.status("repo", content.SourceInSync)
	w.has(own + " g/t games/x")
	if head := put("last"); head.Files != 5 {
		t.Errorf("%+v", head)
	}
}
