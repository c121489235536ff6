package templates_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/orreryhq/orrery/cli/internal/clitest"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/verbs/templates"
)

const (
	head   = "7b1acdba6af048c29d86abbcd18fc32ed689815871c912819c47181d6cf843e3"
	staged = "cb9c73a211bec973908315bebbf27b233b3854c3bef2130438f786cb4117d81f"
)

// server speaks the part of the API that push needs, and notes what is asked of it. The template has the files a.txt
// with "hi", b.txt and old/c.txt.
type server struct {
	*httptest.Server
	// draft is the number of edits in the user's draft, base its version.
	draft int
	base  string
	// missing says that the template does not exist; refuseUpload that uploads are refused.
	missing, refuseUpload bool

	mu    sync.Mutex
	calls []string
}

func newServer(t *testing.T) *server {
	s := &server{base: head}
	mux := http.NewServeMux()
	const one = "/api/v1/templates/lobby"
	mux.HandleFunc("GET "+one, s.template)
	mux.HandleFunc("GET "+one+"/draft", s.getDraft)
	mux.HandleFunc("DELETE "+one+"/draft", s.note(func(w http.ResponseWriter, _ *http.Request) { s.draft = 0; w.WriteHeader(http.StatusNoContent) }))
	mux.HandleFunc("GET "+one+"/files", s.files)
	mux.HandleFunc("DELETE "+one+"/files", s.note(func(w http.ResponseWriter, _ *http.Request) { s.draft++; w.WriteHeader(http.StatusNoContent) }))
	mux.HandleFunc("POST "+one+"/files/upload", s.note(s.upload))
	mux.HandleFunc("POST "+one+"/rehash", s.note(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"status":"published","hash":%q}`, staged)
	}))
	mux.HandleFunc("POST /api/v1/templates/import", s.note(s.upload))
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":"X","message":%q}}`, message)
}

// note notes a request that changes something: its method, the end of its path, and what it says.
func (s *server) note(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		call := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api/v1/templates/") + " " + r.URL.RawQuery
		if match := r.Header.Get("If-Match"); match != "" {
			call += " If-Match " + match
		}
		s.calls = append(s.calls, strings.TrimSpace(call))
		next(w, r)
	}
}

func (s *server) template(w http.ResponseWriter, _ *http.Request) {
	if s.missing {
		refuse(w, http.StatusNotFound, "there is no template lobby")
		return
	}
	fmt.Fprintf(w, `{"name":"lobby","hash":%q,"files":3}`, head)
}

func (s *server) getDraft(w http.ResponseWriter, _ *http.Request) {
	if s.draft == 0 {
		refuse(w, http.StatusNotFound, "you have no draft")
		return
	}
	w.Header().Set("ETag", `"77"`)
	fmt.Fprintf(w, `{"base":%q,"hash":%q,"edits":%d,"files":[]}`, s.base, staged, s.draft)
}

func (s *server) files(w http.ResponseWriter, r *http.Request) {
	const file = `{"path":%q,"size":2,"mode":"644","sha256":"8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4"}`
	if r.URL.Query().Get("path") == "old" {
		fmt.Fprintf(w, "["+file+"]", "old/c.txt")
		return
	}
	fmt.Fprintf(w, "["+file+","+file+`,{"path":"old","isDirectory":true}]`, "a.txt", "b.txt")
}

// upload notes the files of an archive.
func (s *server) upload(w http.ResponseWriter, r *http.Request) {
	if s.refuseUpload {
		refuse(w, http.StatusRequestEntityTooLarge, "the archive is larger than allowed")
		return
	}
	form, err := r.MultipartReader()
	for err == nil {
		part, partErr := form.NextPart()
		if err = partErr; err == nil && part.FileName() != "" {
			s.calls = append(s.calls, entriesOf(part)...)
		}
	}
	if !errors.Is(err, io.EOF) {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.draft++
	fmt.Fprintf(w, `{"status":"uploaded","name":"lobby","files":%s,"hash":%q,"sizeBytes":8}`, map[bool]string{true: "2", false: "[]"}[s.missing], staged)
}

func entriesOf(r io.Reader) []string {
	var all []string
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if err != nil {
			return all
		}
		all = append(all, fmt.Sprintf("  %s %o %d", header.Name, header.Mode, header.Size))
	}
}

// directory has a changed a.txt, the same b.txt, a new run.sh and no old/c.txt.
func directory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"a.txt": "hello", "b.txt": "hi", "run.sh": "#!/bin/sh\n"} {
		mode := os.FileMode(0o644)
		if name == "run.sh" {
			mode = 0o755
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func push(t *testing.T, s *server, args ...string) clitest.Result {
	t.Helper()
	return clitest.Run(t, templates.Commands, s.URL, "", slices.Concat([]string{"template", "push", "lobby", directory(t)}, args)...)
}

// expect compares the calls that a push made, its exit code and its output.
func expect(t *testing.T, s *server, got clitest.Result, code int, output string, calls ...string) {
	t.Helper()
	if got.Code != code || !strings.Contains(got.String(), output) {
		t.Errorf("exit code %d, want %d and %q in\n%s", got.Code, code, output, got)
	}
	if diff := cmp.Diff(calls, s.calls); diff != "" {
		t.Errorf("calls (-want +got)\n%s", diff)
	}
}

func TestPushUploadsOnlyWhatChangedAndPublishesOnce(t *testing.T) {
	s := newServer(t)
	expect(t, s, push(t, s, "-m", "new"), exit.OK, "template lobby is at version cb9c73a211bec973: 2 files written (15 B), 1 removed",
		"DELETE lobby/files path=old&rehash=false",
		"POST lobby/files/upload extract=true&rehash=false",
		"  a.txt 644 5", "  run.sh 755 10",
		`POST lobby/rehash  If-Match "77"`)
}

func TestPushCreatesATemplateInOneRequest(t *testing.T) {
	s := newServer(t)
	s.missing = true
	expect(t, s, push(t, s), exit.OK, "template lobby created with 2 files",
		"POST import", "  a.txt 644 5", "  b.txt 644 2", "  run.sh 755 10")
}

func TestDryRunOfPushChangesNothing(t *testing.T) {
	s := newServer(t)
	got := push(t, s, "--dry-run", "-o", "name")
	if got.Out != "a.txt\nold/c.txt\nrun.sh\n" {
		t.Errorf("printed %q", got.Out)
	}
	expect(t, s, got, exit.OK, "")
}

func TestPushRefusesToPublishADraftOfTheUser(t *testing.T) {
	s := newServer(t)
	s.draft = 2
	expect(t, s, push(t, s), exit.Conflict, "orrery template draft discard lobby")
}

func TestPushDiscardsWhatItStagedWhenAnUploadFails(t *testing.T) {
	s := newServer(t)
	s.refuseUpload = true
	expect(t, s, push(t, s), exit.Failed, "nothing was published, and the uploaded files were discarded",
		"DELETE lobby/files path=old&rehash=false",
		"POST lobby/files/upload extract=true&rehash=false",
		"DELETE lobby/draft")
}

func TestPushDoesNotPublishOverANewerVersion(t *testing.T) {
	s := newServer(t)
	s.base = staged
	expect(t, s, push(t, s), exit.Conflict, "somebody published another version of template lobby meanwhile",
		"DELETE lobby/files path=old&rehash=false",
		"POST lobby/files/upload extract=true&rehash=false",
		"  a.txt 644 5", "  run.sh 755 10",
		"DELETE lobby/draft")
}
