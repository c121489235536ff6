package blobcache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
)

// tally is a shelf that records requests and can send other content.
type tally struct {
	shelf
	mu    sync.Mutex
	asked []string
	// send replaces the response to the nth request for a hash, unless it returns neither
	// error nor reader.
	send func(hash string, nth int) (io.Reader, error)
}

func newTally() *tally {
	return &tally{shelf: shelf{map[string]content.Manifest{}, map[string][]byte{}}}
}

func (s *tally) Blob(ctx context.Context, hash string) (io.ReadCloser, error) {
	s.mu.Lock()
	s.asked = append(s.asked, hash)
	nth := len(slices.DeleteFunc(slices.Clone(s.asked), func(h string) bool { return h != hash }))
	send := s.send
	s.mu.Unlock()
	if send != nil {
		if r, err := send(hash, nth); r != nil || err != nil {
			return io.NopCloser(r), err
		}
	}
	return s.shelf.Blob(ctx, hash)
}

// rows is a tally that sends up to most blobs per request.
type rows struct {
	*tally
	most int
	// sizes are the numbers of blobs per request.
	sizes []int
}

func (s *rows) Row(ctx context.Context, hashes []string) (io.ReadCloser, error) {
	s.mu.Lock()
	s.sizes = append(s.sizes, len(hashes))
	s.mu.Unlock()
	var parts []io.Reader
	for _, hash := range hashes[:min(s.most, len(hashes))] {
		body, err := s.Blob(ctx, hash)
		if err != nil {
			return nil, err
		}
		parts = append(parts, body)
	}
	return io.NopCloser(io.MultiReader(parts...)), nil
}

func (s *tally) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// askedFor takes the recorded requests, and fails if they are not exactly these, in any order.
func (s *tally) askedFor(t *testing.T, want ...string) {
	t.Helper()
	got := s.take()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("asked for %d chunks, not for the %d missing ones", len(got), len(want))
	}
}

// large adds a file made of chunks to the shelf and returns its entry.
func (s *tally) large(path string, pieces ...[]byte) content.ManifestEntry {
	whole := bytes.Join(pieces, nil)
	e := content.ManifestEntry{Path: path, Size: int64(len(whole)), SHA256: sum(whole)}
	for _, p := range pieces {
		s.contents[sum(p)] = p
		e.Chunks = append(e.Chunks, content.Chunk{SHA256: sum(p), Size: int64(len(p))})
	}
	return e
}

// random returns n different chunks.
func random(seed byte, n, size int) [][]byte {
	r := rand.NewChaCha8([32]byte{seed})
	all := make([][]byte, n)
	for i := range all {
		all[i] = make([]byte, size)
		_, _ = r.Read(all[i])
	}
	return all
}

func open(t *testing.T, dir string, s blobcache.Source) *blobcache.Cache {
	t.Helper()
	c, err := blobcache.Open(dir, s, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustHold(t *testing.T, c *blobcache.Cache, e content.ManifestEntry) {
	t.Helper()
	path, err := c.File(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || sum(b) != e.SHA256 {
		t.Errorf("%s holds something else: %v", e.Path, err)
	}
}

func TestFetchRunsConcurrently(t *testing.T) {
	s := newTally()
	var entries []content.ManifestEntry
	for i := range 100 {
		text := fmt.Appendf(nil, "content %d", i%50) // each twice
		s.contents[sum(text)] = text
		entries = append(entries, content.ManifestEntry{Path: fmt.Sprint(i), Size: int64(len(text)), SHA256: sum(text)})
	}
	const together = 8
	var arrived sync.WaitGroup
	arrived.Add(together)
	var once sync.Mutex
	begun := 0
	s.send = func(string, int) (io.Reader, error) {
		once.Lock()
		begun++
		first := begun <= together
		once.Unlock()
		if first { // all wait until that many run concurrently
			arrived.Done()
			arrived.Wait()
		}
		return nil, nil
	}
	c := open(t, t.TempDir(), s)
	if err := c.Fetch(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	if n := len(s.take()); n != 50 {
		t.Errorf("%d requests", n)
	}
}

func TestFetchErrorNamesTheFile(t *testing.T) {
	s := newTally()
	entries := []content.ManifestEntry{{Path: "dir", Kind: content.FileDir}, {Path: "deep/missing", Size: 1, SHA256: sum([]byte("x"))}}
	err := open(t, t.TempDir(), s).Fetch(t.Context(), entries)
	var of *blobcache.FileError
	if !errors.As(err, &of) || of.Path != "deep/missing" || !errs.Is(of.Err, errs.NotFound) {
		t.Errorf("got %v", err)
	}
}

func TestFailedTransferIsRetried(t *testing.T) {
	cases := map[string]func() io.Reader{
		"interrupted": func() io.Reader { return io.MultiReader(bytes.NewReader([]byte("con")), failing{}) },
		"truncated":   func() io.Reader { return bytes.NewReader([]byte("con")) },
		"corrupt":     func() io.Reader { return bytes.NewReader([]byte("kontent")) },
		"endless":     func() io.Reader { return endless{} },
	}
	for name, first := range cases {
		t.Run(name, func(t *testing.T) {
			s := newTally()
			body := []byte("content")
			s.contents[sum(body)] = body
			s.send = func(_ string, nth int) (io.Reader, error) {
				if nth == 1 {
					return first(), nil
				}
				return nil, nil
			}
			dir := t.TempDir()
			mustHold(t, open(t, dir, s), content.ManifestEntry{Path: "f", Size: 7, SHA256: sum(body)})
			if n := len(s.take()); n != 2 {
				t.Errorf("%d requests", n)
			}
			noTemporaryFiles(t, dir)
		})
	}
}

// failing is a connection that breaks; endless never stops sending.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
