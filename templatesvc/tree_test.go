package templatesvc_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/client"
)

func TestAVersionsFilesAreListedReadAndSearched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, _ := w.start("a")
	w.write("server.properties", "port=%PORT%\nmotd=Hello %WHO%\n", 0o644)
	w.write("plugins/a.yml", "hello: %PORT%\n", 0o600)
	w.write("plugins/b.jar", "\x00hello", 0o644)
	if err := os.Symlink("../server.properties", filepath.Join(w.dir, ref.Group, ref.Name, "plugins", "link")); err != nil {
		t.Fatal(err)
	}
	h := w.await("published", func(h content.TemplateHead, ok bool) bool { return ok && h.SizeBytes == 49 })
	c := clientOf(s)

	for _, l := range []struct {
		dir  string
		deep bool
		want string
	}{
		{"", false, "dir:plugins :server.properties "},
		{"plugins", false, ":plugins/a.yml :plugins/b.jar link:plugins/link "},
		{"", true, ":plugins/a.yml :plugins/b.jar link:plugins/link :server.properties "},
		{"plugins", true, ":plugins/a.yml :plugins/b.jar link:plugins/link "},
	} {
		list, err := c.Files(t.Context(), h.Digest, l.dir, l.deep)
		got := ""
		for _, e := range list {
			got += string(e.Kind) + ":" + e.Path + " "
		}
		if err != nil || got != l.want {
			t.Errorf("%q, %v: %s, %v", l.dir, l.deep, got, err)
		}
	}
	for p, want := range map[string]string{"plugins/b.jar": "\x00hello", "plugins/link": "port=%PORT%\nmotd=Hello %WHO%\n"} {
		f, err := c.File(t.Context(), h.Digest, p)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f.Body)
		if err != nil || string(b) != want || f.Size != int64(len(want)) || len(f.SHA256) != 64 || f.Mode != 0o644 {
			t.Errorf("%s: %q, %v, %+v", p, b, err, f)
		}
		_ = f.Body.Close()
	}
	found, err := c.Search(t.Context(), h.Digest, "HELLO", 10)
	if got := fmt.Sprint(found.Matches); err != nil || got != "[{plugins/a.yml 1 1 hello: %PORT%} {server.properties 2 6 motd=Hello %WHO%}]" {
		t.Errorf("found %s, %v", got, err)
	}
	if found, err = c.Search(t.Context(), h.Digest, "b.jar", 10); err != nil || fmt.Sprint(found.Matches) != "[{plugins/b.jar 0 0 plugins/b.jar}]" {
		t.Errorf("found %+v, %v", found, err)
	}
	keys, err := c.Placeholders(t.Context(), h.Digest)
	if got := fmt.Sprint(keys.Keys); err != nil || got != "[{PORT [{plugins/a.yml 1} {server.properties 1}]} {WHO [{server.properties 2}]}]" {
		t.Errorf("placeholders %s, %v", got, err)
	}
}

func TestWhatAVersionDoesNotHoldIsAskedOfOneReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, _ := w.start("a")
	b, _ := w.start("b")
	w.write("a", "x", 0o644)
	h := w.await("published", func(_ content.TemplateHead, ok bool) bool { return ok })
	asked := 0
	counting := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		asked++
		return http.DefaultTransport.RoundTrip(r)
	})}
	c := client.New(client.Config{Secret: secret, HTTP: counting, Resolve: func() []string { return []string{a.URL(), b.URL()} }})
	for p, kind := range map[string]errs.Kind{"none": errs.NotFound, "a/b": errs.NotFound, "../a": errs.Malformed, "": errs.Malformed, ".orrery-lock": errs.Malformed} {
		if _, err := c.File(t.Context(), h.Digest, p); !errs.Is(err, kind) || asked != 1 {
			t.Errorf("%q: %v, after %d calls", p, err, asked)
		}
		asked = 0
	}
	if _, err := c.Files(t.Context(), strings.Repeat("a", 64), "", false); !errs.Is(err, errs.NotFound) || asked != 2 {
		t.Errorf("an unknown version: %v, after %d calls", err, asked)
	}
	if _, err := c.Search(t.Context(), h.Digest, "", 1); !errs.Is(err, errs.Malformed) {
		t.Errorf("nothing to search for: %v", err)
	}
}

// roundTrip is a function that implements http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnExportOfWhatIsLostSaysWhichFileItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("first", "one", 0o644)
	w.write("plugins/lost.yml", "two", 0o644)
	s, _ := w.start("a")
	h, _ := w.head()
	c := clientOf(s)
	sum := content.DigestOf([]byte("two"))
	if err := os.Remove(filepath.Join(w.blobs, sum[:2], sum)); err != nil {
		t.Fatal(err)
	}
	_, readErr := c.File(t.Context(), h.Digest, "plugins/lost.yml")
	_, searchErr := c.Search(t.Context(), h.Digest, "anything", 10)
	_, exportErr := c.Archive(t.Context(), h.Digest, "", "zip")
	for what, err := range map[string]error{"read": readErr, "search": searchErr, "export": exportErr} {
		if message := errs.MessageOf(err); !strings.HasPrefix(message, "plugins/lost.yml ("+sum+"): ") || !strings.Contains(message, "publish its file again") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
