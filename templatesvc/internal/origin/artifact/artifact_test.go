package artifact_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/origin"
	"github.com/orreryhq/orrery/templatesvc/internal/origin/artifact"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func zipped(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.Create("conf/a.yml")
	if err == nil {
		_, err = io.WriteString(f, "a: 1\n")
	}
	if err == nil {
		err = w.Close()
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

// fetch brings an artifact wholly; what it gave is left in told. Nothing of it may be
// left on disk.
func fetch(t *testing.T, s fleet.TemplateSource, c fleet.SourceCredentials, seen string) (told []string, h *origin.Holding, err error) {
	t.Helper()
	return fetchBy(t, origin.Dialer{Egress: egresstest.Loopback()}, s, c, seen)
}

// hasty gives a server that says nothing up soon.
var hasty = origin.Dialer{Idle: 200 * time.Millisecond, Egress: egresstest.Loopback()}

func fetchBy(t *testing.T, by origin.Dialer, s fleet.TemplateSource, c fleet.SourceCredentials, seen string) (told []string, h *origin.Holding, err error) {
	t.Helper()
	s.Kind, s.Template = fleet.SourceHTTP, fleet.TemplateRef{Group: "g", Name: "t"}
	r := origin.Request{Source: s, Credentials: c, Seen: seen, Spool: t.TempDir(), Dialer: by}
	h, err = artifact.Fetch(t.Context(), r)
	if h != nil {
		for _, one := range h.Templates {
			var m fleet.Manifest
			m, err = one.Manifest(t.Context(), func(r io.Reader, _ int64) (fleet.Content, error) {
				b, err := io.ReadAll(r)
				return fleet.Content{Size: int64(len(b)), SHA256: string(b)}, err
			})
			for _, e := range m.Entries {
				told = append(told, fmt.Sprintf("%s/%s=%s", one.Ref, e.Path, e.SHA256))
			}
		}
		h.Close()
	}
	if left, _ := os.ReadDir(r.Spool); len(left) > 0 {
		t.Errorf("left on disk: %v", left)
	}
	return told, h, err
}

func TestAnArtifactIsBroughtByItsHash(t *testing.T) {
	b := zipped(t)
	asked := 0
	mux := http.NewServeMux()
	mux.HandleFunc("/a.zip", func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("Authorization") != "Bearer token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write(b)
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/a.zip", http.StatusFound) })
	s := httptest.NewServer(mux)
	defer s.Close()
	token := fleet.SourceCredentials{Token: "token"}
	for _, path := range []string{"/a.zip", "/moved"} {
		told, h, err := fetch(t, fleet.TemplateSource{URL: s.URL + path, SHA256: hashOf(b)}, token, "")
		if err != nil || fmt.Sprint(told) != "[g/t/conf/a.yml=a: 1\n]" || h.Revision != hashOf(b) {
			t.Errorf("%s: %v, %v", path, told, err)
		}
	}
	told, _, err := fetch(t, fleet.TemplateSource{URL: s.URL + "/a.zip", SHA256: hashOf(b), File: "server.jar"}, token, "")
	if err != nil || fmt.Sprint(told) != "[g/t/server.jar="+string(b)+"]" {
		t.Errorf("as a file: %v, %v", told, err)
	}
	before := asked
	if _, h, err := fetch(t, fleet.TemplateSource{URL: s.URL + "/a.zip", SHA256: hashOf(b)}, token, hashOf(b)); h != nil || err != nil || asked != before {
		t.Errorf("what was brought was asked for again: %v, %v", h, err)
	}
}

func TestWhatIsNotTheArtifactIsRefused(t *testing.T) {
	b := zipped(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such file", http.StatusNotFound) })
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>log in first</html>") })
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		_, _ = w.Write(b[:len(b)/2])
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(b[:10])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	for path, c := range map[string]struct {
		kind errs.Kind
		want string
	}{
		"/error": {errs.Unavailable, "answers 404 Not Found"},
		"/page":  {errs.Invalid, "expected " + hashOf(b) + ", got " + hashOf([]byte("<html>log in first</html>"))},
		"/loop":  {errs.Unavailable, "redirects more than 10 times"},
		"/file":  {errs.Invalid, "redirects to a file URL"},
		"/cut":   {errs.Unavailable, "cannot be reached"},
		"/slow":  {errs.Unavailable, "does not answer in time"},
	} {
		t.Run(path, func(t *testing.T) {
			by := origin.Dialer{Egress: egresstest.Loopback()}
			if path == "/slow" {
				by = hasty
			}
			told, _, err := fetchBy(t, by, fleet.TemplateSource{URL: s.URL + path, SHA256: hashOf(b)}, fleet.SourceCredentials{}, "")
			if told != nil || !errs.Is(err, c.kind) || !strings.Contains(errs.MessageOf(err), c.want) {
				t.Errorf("%v, %v (%s)", told, err, errs.KindOf(err))
			}
		})
	}
	t.Run("no archive", func(t *testing.T) {
		page := []byte("<html>log in first</html>")
		if _, _, err := fetch(t, fleet.TemplateSource{URL: s.URL + "/page", SHA256: hashOf(page)}, fleet.SourceCredentials{}, ""); !errs.Is(err, errs.Malformed) {
			t.Errorf("%v", err)
		}
	})
}

func TestAServerThatAcceptsAndSaysNothingIsGivenUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, _, err = fetchBy(t, hasty, fleet.TemplateSource{URL: "http://" + l.Addr().String(), SHA256: strings.Repeat("0", 64)}, fleet.SourceCredentials{}, "")
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "does not answer in time") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := artifact.Fetch(ctx, origin.Request{Source: fleet.TemplateSource{URL: "http://" + l.Addr().String(), SHA256: "x"}, Spool: t.TempDir()}); !errs.Is(err, errs.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestADowngradeIsNotFollowed(t *testing.T) {
	check := origin.Dialer{Egress: egresstest.Loopback()}.Client().CheckRedirect
	to, from := httptest.NewRequest("GET", "http://host/", nil), httptest.NewRequest("GET", "https://host/", nil)
	if err := check(to, []*http.Request{from}); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	if err := check(from, []*http.Request{to}); err != nil {
		t.Errorf("the other way: %v", err)
	}
}
