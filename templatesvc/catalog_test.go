package templatesvc_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

func sumOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// shop starts an HTTP server for artifacts.
func shop(t *testing.T) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	mux := http.NewServeMux()
	mux.HandleFunc("/jar", func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); _, _ = io.WriteString(w, "jar") })
	mux.HandleFunc("/gone", http.NotFound)
	mux.HandleFunc("/busy", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "sorry", http.StatusServiceUnavailable) })
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/jar", http.StatusFound) })
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL, asked
}

// sell adds a hash to the catalog, with one URL or several.
func (w *world) sell(url, sum string, more ...string) {
	w.t.Helper()
	p := content.CatalogPlatform{Platform: "PAPER"}
	for n, url := range append([]string{url}, more...) {
		p.Versions = append(p.Versions, content.CatalogVersion{Version: fmt.Sprint(n + 1), URL: url, SHA256: sum, Category: content.CategoryServer})
	}
	have, err := store.Get(w.t.Context(), w.c, keys.CatalogPlatform("PAPER"))
	if err != nil && !errs.Is(err, errs.NotFound) {
		w.t.Fatal(err)
	}
	if _, err := w.c.Commit(w.t.Context(), store.Txn{Writes: []store.Write{store.Replace(keys.CatalogPlatform("PAPER"), p, have.ModRev)}}); err != nil {
		w.t.Fatal(err)
	}
}

// kept returns the artifacts on the disk.
func (w *world) kept() (names []string) {
	w.t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.blobs, "artifacts"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAnArtifactIsDownloadedOnceAndServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, _ := w.start("a")
	url, asked := shop(t)
	w.sell(url+"/moved", sumOf("jar"))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			r, err := clientOf(s).Artifact(t.Context(), sumOf("jar"))
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			if b, err := io.ReadAll(r); err != nil || string(b) != "jar" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("downloaded %d times", n)
	}
}

func TestEveryURLOfAHashIsTried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, _ := w.start("a")
	url, asked := shop(t)
	get := func(sum string) error {
		r, err := clientOf(s).Artifact(t.Context(), sum)
		if err == nil {
			err = r.Close()
		}
		return err
	}
	w.sell(url+"/jar", sumOf("another"), url+"/gone", url+"/busy")
	err := get(sumOf("another"))
	if !errs.Is(err, errs.Unavailable) { // one of the URLs may have it later
		t.Errorf("%v", err)
	}
	for _, says := range []string{"its URL has " + sumOf("jar"), "404", "503"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v says nothing of %s", err, says)
		}
	}
	before := asked.Load()
	w.sell(url+"/gone", sumOf("jar"), url+"/busy", url+"/moved", url+"/jar")
	if err := get(sumOf("jar")); err != nil {
		t.Errorf("%v", err)
	}
	if n := asked.Load() - before; n != 1 {
		t.Errorf("downloaded %d times", n)
	}
}

func TestWhatAURLHasInsteadOfAnArtifactIsToldAndNeverStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, _ := w.start("a")
	url, _ := shop(t)
	wrong := sumOf("another")
	cases := []struct {
		path string
		kind errs.Kind
		says string
	}{
		{"/jar", errs.Conflict, "the catalog says " + wrong + ", its URL has " + sumOf("jar")},
		{"/gone", errs.NotFound, "404"},
		{"/busy", errs.Unavailable, "503"},
		{"/cut", errs.Unavailable, "broke off"},
		{"/loop", errs.Invalid, "redirected more than 10 times"},
		{"/file", errs.Invalid, "redirected to file"},
	}
	for _, c := range cases {
		w.sell(url+c.path, wrong)
		_, err := clientOf(s).Artifact(t.Context(), wrong)
		if !errs.Is(err, c.kind) || !strings.Contains(errs.MessageOf(err), c.says) {
			t.Errorf("%s: %v, want %v that says %q", c.path, err, c.kind, c.says)
		}
	}
	if _, err := clientOf(s).Artifact(t.Context(), sumOf("nobody's")); !errs.Is(err, errs.NotFound) {
		t.Errorf("what the catalog does not name: %v", err)
	}
	if names := w.kept(); len(names) > 0 {
		t.Errorf("stored: %v", names)
	}
}

func TestAURLIsPinnedToWhatItHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, _ := w.start("a")
	url, asked := shop(t)
	var c content.Content
	await.That(t, "the replica knows that it may ask loopback addresses", func() (missing string) {
		var err error
		c, err = clientOf(s).Pin(t.Context(), url+"/jar")
		return await.Unless(err == nil, "%v", err)
	})
	if c.SHA256 != sumOf("jar") || c.Size != 3 {
		t.Fatalf("%+v", c)
	}
	w.sell(url+"/jar", c.SHA256)
	r, err := clientOf(s).Artifact(t.Context(), c.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	if n := asked.Load(); n != 1 {
		t.Errorf("downloaded %d times", n)
	}
	if _, err := clientOf(s).Pin(t.Context(), "file:///etc/passwd"); !errs.Is(err, errs.Invalid) {
		t.Errorf("a file: %v", err)
	}
}
