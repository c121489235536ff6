package blobcache_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gated serves one blob when its gate opens, and counts the calls.
type gated struct {
	content []byte
	gate    chan struct{}
	// entered receives a value per call.
	entered chan struct{}
	calls   atomic.Int32
	// suspected is the last hash that was reported as corrupt.
	suspected atomic.Pointer[string]
}

func (g *gated) Manifest(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(`{"entries":[{"path":"forged"}]}`)), nil
}

func (g *gated) Suspect(_ context.Context, hash string) error {
	g.suspected.Store(&hash)
	return nil
}

// Row reports that it sends only single blobs.
func (g *gated) Row(context.Context, []string) (io.ReadCloser, error) {
	return nil, errs.New(errs.NotFound, "one at a time")
}

func (g *gated) Blob(ctx context.Context, _ string) (io.ReadCloser, error) {
	g.calls.Add(1)
	if g.entered != nil {
		g.entered <- struct{}{}
	}
	select {
	case <-g.gate:
		return io.NopCloser(bytes.NewReader(g.content)), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func entryOf(hash string, body []byte) content.ManifestEntry {
	return content.ManifestEntry{SHA256: hash, Size: int64(len(body))}
}

func TestCacheDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	for _, when := range []string{"new", "of an earlier agent"} {
		if _, err := blobcache.Open(dir, nil, 0); err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", when, fi.Mode(), err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConcurrentRequestsShareOneFetch(t *testing.T) {
	g := &gated{content: []byte("content"), gate: make(chan struct{})}
	cache, err := blobcache.Open(t.TempDir(), g, 0)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(g.content)
	hash := hex.EncodeToString(sum[:])
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			path, err := cache.File(t.Context(), entryOf(hash, g.content))
			if err != nil {
				t.Error(err)
				return
			}
			if b, err := os.ReadFile(path); string(b) != "content" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	close(g.gate)
	all.Wait()
	if n := g.calls.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
}

func TestCanceledFetchDoesNotFailOtherCallers(t *testing.T) {
	g := &gated{content: []byte("content"), gate: make(chan struct{}), entered: make(chan struct{})}
	cache, err := blobcache.Open(t.TempDir(), g, 0)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(g.content)
	hash := hex.EncodeToString(sum[:])
	ctx, cancel := context.WithCancel(t.Context())
	var first, second sync.WaitGroup
	first.Go(func() {
		if _, err := cache.File(ctx, entryOf(hash, g.content)); !errs.Is(err, errs.Canceled) {
			t.Errorf("the canceled caller: %v", err)
		}
	})
	<-g.entered
	second.Go(func() {
		if _, err := cache.File(t.Context(), entryOf(hash, g.content)); err != nil {
			t.Errorf("the other caller: %v", err)
		}
	})
	cancel()
	first.Wait()
	<-g.entered
	close(g.gate)
	second.Wait()
}

func TestContentWithWrongHashIsRejected(t *testing.T) {
	g := &gated{content: []byte("other"), gate: make(chan struct{})}
	close(g.gate)
	cache, err := blobcache.Open(t.TempDir(), g, 0)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("content"))
	hash := hex.EncodeToString(sum[:])
	if _, err := cache.File(t.Context(), entryOf(hash, g.content)); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a blob: %v", err)
	}
	if told := g.suspected.Load(); told == nil || *told != hash {
		t.Error("the corrupt blob was not reported")
	}
	if _, err := cache.Manifest(t.Context(), hash); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a manifest: %v", err)
	}
	for _, bad := range []string{"", "../../etc/passwd", "ABC"} {
		if _, err := cache.File(t.Context(), entryOf(bad, g.content)); !errs.Is(err, errs.Invalid) {
			t.Errorf("hash %q: %v", bad, err)
		}
	}
}

// Artifact serves the blob.
func (g *gated) Artifact(ctx context.Context, hash string) (io.ReadCloser, error) {
	return g.Blob(ctx, hash)
}
