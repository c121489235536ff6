package templatesvc_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/egress/egresstest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/templatesvc"
	"github.com/orreryhq/orrery/templatesvc/client"
)

const (
	secret = "0123456789abcdef0123456789abcdef"
)

var ref = content.TemplateRef{Group: "g", Name: "t"}

// world is an etcd, a template directory and a service that uses both.
type world struct {
	t          *testing.T
	c          *store.Client
	dir, blobs string
	// still is the quiet time of the directory; 0 means a short one.
	still time.Duration
	// ahead is how far the clock of the service is ahead.
	ahead time.Duration
}

func (w *world) quiet() time.Duration { return cmp.Or(w.still, 50*time.Millisecond) }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, c: storetest.New(t), dir: t.TempDir(), blobs: t.TempDir()}
	egresstest.AllowLoopback(t, w.c) // for the servers of the tests
	return w
}

func (w *world) start(replica string) (s *templatesvc.Service, stop func()) {
	w.t.Helper()
	s, err := templatesvc.New(templatesvc.Config{
		Store: w.c, Dir: w.dir, Quiet: w.quiet(), BlobDir: w.blobs, ClusterSecret: secret, Replica: replica, Takeover: true,
		Now: func() time.Time { return time.Now().Add(w.ahead) }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	select {
	case <-s.Synced():
	case <-time.After(await.Patience):
		w.t.Fatal("the first scan did not end")
	}
	return s, stop
}

func (w *world) write(name, content string, mode os.FileMode) {
	w.t.Helper()
	path := filepath.Join(w.dir, ref.Group, ref.Name, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) head() (content.TemplateHead, bool) {
	w.t.Helper()
	h, err := store.Get(w.t.Context(), w.c, keys.TemplateHead(ref))
	if err != nil && !errs.Is(err, errs.NotFound) {
		w.t.Fatal(err)
	}
	return h, err == nil
}

func (w *world) await(what string, ok func(h content.TemplateHead, exists bool) bool) (h content.TemplateHead) {
	w.t.Helper()
	await.That(w.t, what, func() string {
		exists := false
		h, exists = w.head()
		return await.Unless(ok(h, exists), "%+v", h)
	})
	return h
}

func (w *world) versions() int {
	w.t.Helper()
	v, _, err := store.List(w.t.Context(), w.c, keys.TemplateVersions(ref))
	if err != nil {
		w.t.Fatal(err)
	}
	return len(v)
}

func clientOf(services ...*templatesvc.Service) *client.Client {
	return client.New(client.Config{Secret: secret, Resolve: func() (urls []string) {
		for _, s := range services {
			urls = append(urls, s.URL())
		}
		return urls
	}})
}

// manifest reads a version's manifest through the client and checks its digest.
func manifest(t *testing.T, c *client.Client, digest string) (m content.Manifest, err error) {
	t.Helper()
	r, err := c.Manifest(t.Context(), digest)
	if err != nil {
		return m, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return m, err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != digest {
		t.Errorf("manifest %s does not have its digest", digest)
	}
	return m, json.Unmarshal(b, &m)
}

// contentOf reads a version's file through the client and checks its hash.
func contentOf(t *testing.T, c *client.Client, digest, name string) (string, content.ManifestEntry) {
	t.Helper()
	m, err := manifest(t, c, digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range m.Entries {
		if e.Path != name {
			continue
		}
		r, err := c.Blob(t.Context(), e.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != e.SHA256 {
			t.Errorf("%s does not have its hash", name)
		}
		return string(b), e
	}
	t.Fatalf("no %s in %+v", name, m)
	return "", content.ManifestEntry{}
}

func TestADroppedInTemplateIsPublishedAndServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, _ := w.start("a")
	binary := "\x00\xff" + strings.Repeat("compressible ", 1000)
	w.write("dir/run.sh", binary, 0o755)
	h := w.await("published", func(_ content.TemplateHead, ok bool) bool { return ok })
	got, e := contentOf(t, clientOf(s), h.Digest, "dir/run.sh")
	if got != binary || e.Mode != 0o755 {
		t.Errorf("%d bytes, mode %o", len(got), e.Mode)
	}
}

func TestAnEditIsAVersionAndTheSameContentIsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("f", "one", 0o644)
	_, stop := w.start("a")
	first, _ := w.head()
	w.write("f", "two", 0o644)
	second := w.await("moved", func(h content.TemplateHead, _ bool) bool { return h.Digest != first.Digest })
	w.write("f", "one", 0o644)
	w.await("back", func(h content.TemplateHead, _ bool) bool { return h.Digest == first.Digest })
	if n := w.versions(); n != 2 {
		t.Errorf("%d versions of two contents (%s, %s)", n, first.Digest, second.Digest)
	}
	stop()
	before, _ := w.head()
	w.start("a")
	if after, _ := w.head(); after.ModRev != before.ModRev {
		t.Error("a restart over the same content wrote the head again")
	}
}

func TestARollbackStaysUntilTheDirectoryChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("f", "one", 0o644)
	s, stop := w.start("a")
	first, _ := w.head()
	w.write("f", "two", 0o644)
	second := w.await("moved", func(h content.TemplateHead, _ bool) bool { return h.Digest != first.Digest })
	c := clientOf(s)
	back, err := c.Rollback(t.Context(), ref, client.RollbackRequest{}, client.Asked{Author: "me"})
	if err != nil || back.Digest != first.Digest {
		t.Fatalf("rolled back to %s, %v", back.Digest, err)
	}
	if got, _ := contentOf(t, c, back.Digest, "f"); got != "one" {
		t.Errorf("content %q", got)
	}
	stop()
	s, _ = w.start("a") // reads the directory again, which still holds "two"
	if h, _ := w.head(); h.Digest != first.Digest {
		t.Error("a restart undid the rollback")
	}
	if _, err := clientOf(s).Rollback(t.Context(), ref, client.RollbackRequest{Digest: second.Digest}, client.Asked{}); err != nil {
		t.Errorf("forward again: %v", err)
	}
	if _, err := clientOf(s).Rollback(t.Context(), ref, client.RollbackRequest{Digest: strings.Repeat("0", 64)}, client.Asked{}); !errs.Is(err, errs.NotFound) {
		t.Errorf("an unknown version: %v", err)
	}
	w.write("f", "three", 0o644)
	w.await("published anew", func(h content.TemplateHead, _ bool) bool {
		return h.Digest != first.Digest && h.Digest != second.Digest
	})
}

func TestATemplateIsRetractedOnlyWithItsOwnDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("f", "one", 0o644)
	_, stop := w.start("a")
	stop()
	away := w.dir + ".away"
	if err := os.Rename(w.dir, away); err != nil {
		t.Fatal(err)
	}
	h, _ := w.head()
	if err := os.WriteFile(w.dir, nil, 0o600); err != nil { // cannot be read as a directory
		t.Fatal(err)
	}
	if _, err := templatesvc.New(templatesvc.Config{Store: w.c, Dir: w.dir, BlobDir: w.blobs, ClusterSecret: secret, Replica: "a", Log: slog.New(slog.DiscardHandler)}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a source that is no directory: %v", err)
	}
	if now, ok := w.head(); !ok || now.ModRev != h.ModRev {
		t.Error("a source that was away as a whole took its templates along")
	}
	if err := os.Remove(w.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, w.dir); err != nil {
		t.Fatal(err)
	}
	drop(t, w.dir, "g/stays")
	w.start("a")
	if err := os.RemoveAll(filepath.Join(w.dir, ref.Group, ref.Name)); err != nil {
		t.Fatal(err)
	}
	w.await("retracted", func(_ content.TemplateHead, ok bool) bool { return !ok })
	if n := w.versions(); n != 1 {
		t.Errorf("%d versions are left, want the one there was", n)
	}
}

func TestALinkThatLeadsOutIsNotPublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("f", "one", 0o644)
	w.start("a")
	h, _ := w.head()
	if err := os.Symlink("../../../etc/passwd", filepath.Join(w.dir, ref.Group, ref.Name, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(w.dir, ref.Group, ref.Name, "f")); err != nil {
		t.Fatal(err)
	}
	other := content.TemplateRef{Group: "g", Name: "later"} // published after the refused one was read
	if err := os.MkdirAll(filepath.Join(w.dir, "g", "later", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the later template", func() string {
		_, err := store.Get(t.Context(), w.c, keys.TemplateHead(other))
		return await.Unless(err == nil, "%v", err)
	})
	if now, _ := w.head(); now.ModRev != h.ModRev {
		t.Error("the head moved to a tree with a link that leads out")
	}
}

func TestReadersSeeOneVersionWhileOthersArePublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("a", "0", 0o644)
	w.write("b", "0", 0o644)
	s, _ := w.start("a")
	c := clientOf(s)
	seen := map[string]bool{}
	for n := 1; n <= 10; n++ {
		before, _ := w.head()
		// Both files change; a reader of a version must see the same state of both.
		tmp := filepath.Join(w.dir, ref.Group, ".next")
		for _, f := range []string{"a", "b"} {
			if err := os.MkdirAll(tmp, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(tmp, f), fmt.Append(nil, n), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		live := filepath.Join(w.dir, ref.Group, ref.Name)
		if err := os.Rename(live, live+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, live); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(live + ".old"); err != nil {
			t.Fatal(err)
		}
		h := w.await("moved", func(h content.TemplateHead, ok bool) bool { return ok && h.Digest != before.Digest })
		a, _ := contentOf(t, c, h.Digest, "a")
		b, _ := contentOf(t, c, h.Digest, "b")
		if a != b {
			t.Errorf("version %s has a=%q b=%q", h.Digest, a, b)
		}
		seen[h.Digest] = true
	}
	if len(seen) != 10 {
		t.Errorf("%d versions seen", len(seen))
	}
}

func TestStrangersAreRefusedAndAnotherReplicaHelps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("f", "one", 0o644)
	s, _ := w.start("a")
	h, _ := w.head()
	stranger := client.New(client.Config{Secret: "wrong", Resolve: func() []string { return []string{s.URL()} }})
	if _, err := manifest(t, stranger, h.Digest); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("with a wrong secret: %v", err)
	}
	half := client.New(client.Config{Secret: secret, Resolve: func() []string { return []string{"http://127.0.0.1:1", s.URL()} }})
	for range 5 { // in random order
		if _, err := manifest(t, half, h.Digest); err != nil {
			t.Errorf("with one replica down: %v", err)
		}
	}
	none := client.New(client.Config{Secret: secret, Resolve: func() []string { return nil }})
	if _, err := manifest(t, none, h.Digest); !errs.Is(err, errs.Unavailable) {
		t.Errorf("with no replica: %v", err)
	}
	for _, bad := range []string{"..", "abc", strings.Repeat("g", 64)} {
		if _, err := clientOf(s).Blob(t.Context(), bad); err == nil {
			t.Errorf("blob %q was served", bad)
		}
	}
}

func TestACorruptManifestIsNotServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("f", "one", 0o644)
	s, _ := w.start("a")
	h, _ := w.head()
	if err := os.WriteFile(filepath.Join(w.blobs, h.Digest[:2], h.Digest), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := manifest(t, clientOf(s), h.Digest); err == nil {
		t.Error("a corrupt manifest was served")
	}
}

func TestAHeadSaysHowLargeItsFilesAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("f", "one", 0o644)
	s, _ := w.start("a")
	first, _ := w.head()
	w.write("f", "twice", 0o644)
	second := w.await("moved", func(h content.TemplateHead, _ bool) bool { return h.Digest != first.Digest })
	if first.SizeBytes != 3 || second.SizeBytes != 5 {
		t.Errorf("%d and %d bytes, want 3 and 5", first.SizeBytes, second.SizeBytes)
	}
	if _, err := clientOf(s).Rollback(t.Context(), ref, client.RollbackRequest{}, client.Asked{}); err != nil {
		t.Fatal(err)
	}
	if h, _ := w.head(); h.SizeBytes != 3 {
		t.Errorf("%d bytes after the rollback, want 3", h.SizeBytes)
	}
}
