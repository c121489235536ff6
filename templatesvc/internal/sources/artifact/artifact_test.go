package artifact_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
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
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
	"github.com/orreryhq/orrery/templatesvc/internal/sources/artifact"
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

// fetch fetches an artifact completely and returns its files in told. It checks that
// nothing is left on the disk.
func fetch(t *testing.T, s content.TemplateSource, c content.SourceCredentials, seen string) (told []string, h *sources.Holding, err error) {
	t.Helper()
	return fetchBy(t, sources.Dialer{Egress: egresstest.Loopback()}, s, c, seen)
}

// hasty has a short timeout for silent servers.
var hasty = sources.Dialer{Idle: 200 * time.Millisecond, Egress: egresstest.Loopback()}

func fetchBy(t *testing.T, by sources.Dialer, s content.TemplateSource, c content.SourceCredentials, seen string) (told []string, h *sources.Holding, err error) {
	t.Helper()
	s.Kind, s.Template = content.SourceHTTP, content.TemplateRef{Group: "g", Name: "t"}
	r := sources.Request{Source: s, Credentials: c, Seen: seen, Spool: t.TempDir(), Dialer: by}
	h, err = artifact.Fetch(t.Context(), r)
	if h != nil {
		for _, one := range h.Templates {
			var m content.Manifest
			m, err = one.Manifest(t.Context(), func(r io.Reader, _ int64) (content.Content, error) {
				b, err := io.ReadAll(r)
				return content.Content{Size: int64(len(b)), SHA256: string(b)}, err
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
	token := content.SourceCredentials{Token: "token"}
	for _, path := range []string{"/a.zip", "/moved"} {
		told, h, err := fetch(t, content.TemplateSource{URL: s.URL + path, SHA256: hashOf(b)}, token, "")
		if err != nil || fmt.Sprint(told) != "[g/t/conf/a.yml=a: 1\n]" || h.Revision != hashOf(b) {
			t.Errorf("%s: %v, %v", path, told, err)
		}
	}
	told, _, err := fetch(t, content.TemplateSource{URL: s.URL + "/a.zip", SHA256: hashOf(b), File: "server.jar"}, token, "")
	if err != nil || fmt.Sprint(told) != "[g/t/server.jar="+string(b)+"]" {
		t.Errorf("as a file: %v, %v", told, err)
	}
	before := asked
	if _, h, err := fetch(t, content.TemplateSource{URL: s.URL + "/a.zip", SHA256: hashOf(b)}, token, hashOf(b)); h != nil || err != nil || asked != before {
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
			by := sources.Dialer{Egress: egresstest.Loopback()}
			if path == "/slow" {
				by = hasty
			}
			told, _, err := fetchBy(t, by, content.TemplateSource{URL: s.URL + path, SHA256: hashOf(b)}, content.SourceCredentials{}, "")
			if told != nil || !errs.Is(err, c.kind) || !strings.Contains(errs.MessageOf(err), c.want) {
				t.Errorf("%v, %v (%s)", told, err, errs.KindOf(err))
			}
		})
	}
	t.Run("no archive", func(t *testing.T) {
		page := []byte("<html>log in first</html>")
		if _, _, err := fetch(t, content.TemplateSource{URL: s.URL + "/page", SHA256: hashOf(page)}, content.SourceCredentials{}, ""); !errs.Is(err, errs.Malformed) {
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
	_, _, err = fetchBy(t, hasty, content.TemplateSource{URL: "http://" + l.Addr().String(), SHA256: strings.Repeat("0", 64)}, content.SourceCredentials{}, "")
	if !errs.Is(err, errs.Unavailable) || !strings.Contains(errs.MessageOf(err), "does not answer in time") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := artifact.Fetch(ctx, sources.Request{Source: content.TemplateSource{URL: "http://" + l.Addr().String(), SHA256: "x"}, Spool: t.TempDir()}); !errs.Is(err, errs.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestADowngradeIsNotFollowed(t *testing.T) {
	check := sources.Dialer{Egress: egresstest.Loopback()}.Client().CheckRedirect
	to, from := httptest.NewRequest("GET", "http://host/", nil), httptest.NewRequest("GET", "https://host/", nil)
	if err := check(to, []*http.Request{from}); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	if err := check(from, []*http.Request{to}); err != nil {
		t.Errorf("the other way: %v", err)
	}
}

// files serves files that a test may change, with their headers.
type files struct {
	*httptest.Server
	content map[string]string
	header  map[string]http.Header
	// brought counts the answers with a body.
	brought map[string]int
	tokens  map[string]string
}

func serving(t *testing.T) *files {
	t.Helper()
	f := &files{content: map[string]string{}, header: map[string]http.Header{}, brought: map[string]int{}, tokens: map[string]string{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := f.content[r.URL.Path]
		f.tokens[r.URL.Path] = r.Header.Get("Authorization")
		h := f.header[r.URL.Path]
		switch {
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			return
		case h.Get("ETag") != "" && r.Header.Get("If-None-Match") == h.Get("ETag"),
			h.Get("Last-Modified") != "" && r.Header.Get("If-Modified-Since") == h.Get("Last-Modified"):
			w.WriteHeader(http.StatusNotModified)
			return
		}
		for name, values := range h {
			w.Header()[name] = values
		}
		f.brought[r.URL.Path]++
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(f.Close)
	return f
}

func TestAURLWithoutAHashIsFollowed(t *testing.T) {
	const old = "Sat, 01 Jan 2022 00:00:00 GMT"
	for name, h := range map[string]func(version string) http.Header{
		"that has an ETag": func(version string) http.Header { return http.Header{"Etag": {`"` + version + `"`}} },
		"that has a time": func(version string) http.Header {
			return http.Header{"Last-Modified": {strings.Replace(old, "2022", "202"+version, 1)}}
		},
		"that has a time of this minute": func(string) http.Header {
			return http.Header{"Last-Modified": {time.Now().UTC().Format(http.TimeFormat)}}
		},
		"that has neither": func(string) http.Header { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t)
			source := content.TemplateSource{URL: s.URL + "/server.jar", File: "server.jar"}
			s.content["/server.jar"], s.header["/server.jar"] = "one", h("1")
			told, first, err := fetch(t, source, content.SourceCredentials{}, "")
			if err != nil || fmt.Sprint(told) != "[g/t/server.jar=one]" {
				t.Fatalf("%v, %v", told, err)
			}
			if _, again, err := fetch(t, source, content.SourceCredentials{}, first.Revision); again != nil || err != nil {
				t.Errorf("what has not changed was brought: %+v, %v", again, err)
			}
			if validated := strings.Contains(first.Revision, " "); validated != (s.brought["/server.jar"] == 1) {
				t.Errorf("revision %q, and it was sent %d times", first.Revision, s.brought["/server.jar"])
			}
			s.content["/server.jar"], s.header["/server.jar"] = "two", h("3")
			told, next, err := fetch(t, source, content.SourceCredentials{}, first.Revision)
			if err != nil || fmt.Sprint(told) != "[g/t/server.jar=two]" || next.Revision == first.Revision {
				t.Errorf("the change: %v, %+v, %v", told, next, err)
			}
		})
	}
}

func TestAHashThatIsPublishedIsFollowedAndHeld(t *testing.T) {
	s := serving(t)
	source := content.TemplateSource{URL: s.URL + "/v/server.jar", HashURL: s.URL + "/hashes", File: "server.jar"}
	s.content["/v/server.jar"] = "one"
	token := content.SourceCredentials{Token: "t"}
	revisions := map[string]bool{}
	for _, text := range []string{
		hashOf([]byte("one")), strings.ToUpper(hashOf([]byte("one"))) + "\n", hashOf([]byte("one")) + " *dir/server.jar\n",
		hashOf([]byte("other")) + "  other.jar\n" + hashOf([]byte("one")) + "  server.jar\n",
		fmt.Sprintf("%x", md5.Sum([]byte("one"))), fmt.Sprintf("%x", sha1.Sum([]byte("one"))), fmt.Sprintf("%x  server.jar", sha512.Sum512([]byte("one"))),
	} {
		s.content["/hashes"] = text
		told, h, err := fetch(t, source, token, "")
		if err != nil || fmt.Sprint(told) != "[g/t/server.jar=one]" {
			t.Fatalf("%q: %v, %v", text, told, err)
		}
		revisions[h.Revision] = true
		before := s.brought["/v/server.jar"]
		if _, again, err := fetch(t, source, token, h.Revision); again != nil || err != nil || s.brought["/v/server.jar"] != before {
			t.Errorf("%q: what has the hash was asked for again: %v", text, err)
		}
	}
	if len(revisions) != 4 || s.tokens["/hashes"] != "Bearer t" {
		t.Errorf("revisions %v, token %q", revisions, s.tokens["/hashes"])
	}

	s.content["/v/server.jar"] = "two"
	if _, _, err := fetch(t, source, token, ""); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "hashUrl" || !strings.Contains(err.Error(), "sha512") {
		t.Errorf("other bytes than the hash says: %v", err)
	}
	for _, text := range []string{"", "<html>", "abc", hashOf([]byte("a")) + "  a\n" + hashOf([]byte("b")) + "  b\n", strings.Repeat("x\n", 1<<16)} {
		s.content["/hashes"] = text
		if _, _, err := fetch(t, source, token, ""); err == nil || !strings.Contains(errs.MessageOf(err), "hashUrl") && errs.FieldOf(err) != "hashUrl" {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	delete(s.content, "/hashes")
	if _, _, err := fetch(t, source, token, ""); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a hash that is not there: %v", err)
	}
	elsewhere := serving(t)
	elsewhere.content["/hashes"], source.HashURL = hashOf([]byte("two")), elsewhere.URL+"/hashes"
	if told, _, err := fetch(t, source, token, ""); err != nil || len(told) != 1 || elsewhere.tokens["/hashes"] != "" {
		t.Errorf("a hash of another server: %v, %v, the token went there: %q", told, err, elsewhere.tokens["/hashes"])
	}
}

func TestAWebPageIsNoFileUnlessItsHashIsKnown(t *testing.T) {
	s := serving(t)
	s.content["/server.jar"], s.header["/server.jar"] = "<html>busy</html>", http.Header{"Content-Type": {"text/html; charset=utf-8"}}
	source := content.TemplateSource{URL: s.URL + "/server.jar", File: "server.jar"}
	if _, _, err := fetch(t, source, content.SourceCredentials{}, ""); !errs.Is(err, errs.Invalid) || !strings.Contains(errs.MessageOf(err), "web page") {
		t.Errorf("err = %v", err)
	}
	source.SHA256 = hashOf([]byte(s.content["/server.jar"]))
	if _, _, err := fetch(t, source, content.SourceCredentials{}, ""); err != nil {
		t.Error(err)
	}
	source.SHA256, source.File = "", "www/index.html"
	if _, _, err := fetch(t, source, content.SourceCredentials{}, ""); err != nil {
		t.Error(err)
	}
}
