package git_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
	"github.com/orreryhq/orrery/templatesvc/internal/sources/git"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// repository is a real repository, changed with the git command.
type repository struct {
	t        *testing.T
	root     string // directory that a server serves
	dir      string
	worktree string
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil && os.Getenv("ORRERY_CI") == "" {
		t.Skip("git is not installed")
	}
	root := t.TempDir()
	r := &repository{t: t, root: root, dir: filepath.Join(root, "r.git"), worktree: t.TempDir()}
	r.run(root, "init", "--quiet", "--bare", "--initial-branch=main", r.dir)
	r.run(root, "clone", "--quiet", r.dir, r.worktree)
	r.run(r.worktree, "checkout", "--quiet", "-B", "main")
	return r
}

func (r *repository) run(dir string, args ...string) string {
	r.t.Helper()
	c := exec.Command("git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := c.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *repository) git(args ...string) string { r.t.Helper(); return r.run(r.worktree, args...) }

// push commits and pushes files, given as alternating paths and contents. It returns the
// commit.
func (r *repository) push(files ...string) string {
	r.t.Helper()
	for pair := range slices.Chunk(files, 2) {
		name := filepath.Join(r.worktree, pair[0])
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(pair[1]), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	r.git("add", "-A")
	r.git("commit", "--quiet", "--allow-empty", "-m", "change")
	r.git("push", "--quiet", "--force", "origin", "HEAD")
	return r.git("rev-parse", "HEAD")
}

// serve serves the repository with git's own HTTP server, to clients with the token.
func (r *repository) serve() *httptest.Server {
	backend := &cgi.Handler{
		Path: filepath.Join(r.run(r.root, "--exec-path"), "git-http-backend"), Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + r.root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null"},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if _, password, _ := q.BasicAuth(); password != "token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, q)
	}))
	r.t.Cleanup(s.Close)
	return s
}

// fetch fetches a source completely and returns lines "<template>/<path> <kind> <mode>
// <content>".
func fetch(t *testing.T, s content.TemplateSource, c content.SourceCredentials, seen string) (told []string, revision string, err error) {
	t.Helper()
	return fetchBy(t, sources.Dialer{Egress: egresstest.Loopback()}, s, c, seen)
}

// hasty has a short timeout for silent servers.
var hasty = sources.Dialer{Idle: time.Second, Egress: egresstest.Loopback()}

func fetchBy(t *testing.T, by sources.Dialer, s content.TemplateSource, c content.SourceCredentials, seen string) (told []string, revision string, err error) {
	t.Helper()
	s.Kind = content.SourceGit
	r := sources.Request{Source: s, Credentials: c, Seen: seen, Spool: t.TempDir(), Dialer: by}
	h, err := git.Fetch(t.Context(), r)
	if h != nil {
		revision = h.Revision
		for _, one := range h.Templates {
			var m content.Manifest
			if m, err = one.Manifest(t.Context(), func(r io.Reader, _ int64) (content.Content, error) {
				b, err := io.ReadAll(r)
				return content.Content{Size: int64(len(b)), SHA256: string(b)}, err
			}); err != nil {
				break
			}
			for _, e := range m.Entries {
				told = append(told, fmt.Sprintf("%s/%s %s %o %s%s", one.Ref, e.Path, e.Kind, e.Mode, e.Target, e.SHA256))
			}
		}
		if h.Close != nil {
			h.Close()
		}
	}
	if left, _ := os.ReadDir(r.Spool); len(left) > 0 {
		t.Errorf("left on disk: %v", left)
	}
	return told, revision, err
}
