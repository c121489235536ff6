package blobs_test

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
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/blobs"
)

// tally is a shelf that knows what was asked for, and may send something else instead.
type tally struct {
	shelf
	mu    sync.Mutex
	asked []string
	// send replaces what is sent when a hash is asked for the nth time; nil error and
	// reader leave it.
	send func(hash string, nth int) (io.Reader, error)
}

func newTally() *tally {
	return &tally{shelf: shelf{map[string]fleet.Manifest{}, map[string][]byte{}}}
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

// rows is a tally that sends up to so many blobs at a time.
type rows struct {
	*tally
	most int
	// asked is how many were asked for each time.
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

// askedFor takes what was asked for, and fails when it was anything but these, in any order.
func (s *tally) askedFor(t *testing.T, want ...string) {
	t.Helper()
	got := s.take()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("asked for %d pieces, which are not the %d that were missing", len(got), len(want))
	}
}

// large puts a file of pieces on the shelf and returns its entry.
func (s *tally) large(path string, pieces ...[]byte) fleet.ManifestEntry {
	whole := bytes.Join(pieces, nil)
	e := fleet.ManifestEntry{Path: path, Size: int64(len(whole)), SHA256: sum(whole)}
	for _, p := range pieces {
		s.contents[sum(p)] = p
		e.Chunks = append(e.Chunks, fleet.Chunk{SHA256: sum(p), Size: int64(len(p))})
	}
	return e
}

// random are pieces that are never alike.
func random(seed byte, n, size int) [][]byte {
	r := rand.NewChaCha8([32]byte{seed})
	all := make([][]byte, n)
	for i := range all {
		all[i] = make([]byte, size)
		_, _ = r.Read(all[i])
	}
	return all
}

func open(t *testing.T, dir string, s blobs.Source) *blobs.Cache {
	t.Helper()
	c, err := blobs.Open(dir, s, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustHold(t *testing.T, c *blobs.Cache, e fleet.ManifestEntry) {
	t.Helper()
	path, err := c.File(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || sum(b) != e.SHA256 {
		t.Errorf("%s holds something else: %v", e.Path, err)
	}
}

func TestAllMissingContentIsFetchedAtOnce(t *testing.T) {
	s := newTally()
	var entries []fleet.ManifestEntry
	for i := range 100 {
		text := fmt.Appendf(nil, "content %d", i%50) // each of them twice
		s.contents[sum(text)] = text
		entries = append(entries, fleet.ManifestEntry{Path: fmt.Sprint(i), Size: int64(len(text)), SHA256: sum(text)})
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
		if first { // none goes on before so many are here
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
		t.Errorf("asked %d times", n)
	}
}

func TestTheFirstFailureNamesItsFile(t *testing.T) {
	s := newTally()
	entries := []fleet.ManifestEntry{{Path: "dir", Kind: fleet.FileDir}, {Path: "deep/missing", Size: 1, SHA256: sum([]byte("x"))}}
	err := open(t, t.TempDir(), s).Fetch(t.Context(), entries)
	var of *blobs.FileError
	if !errors.As(err, &of) || of.Path != "deep/missing" || !errs.Is(of.Err, errs.NotFound) {
		t.Errorf("got %v", err)
	}
}

func TestWhatBreaksOffOrIsDamagedIsAskedForAgain(t *testing.T) {
	cases := map[string]func() io.Reader{
		"broken off":     func() io.Reader { return io.MultiReader(bytes.NewReader([]byte("con")), failing{}) },
		"cut short":      func() io.Reader { return bytes.NewReader([]byte("con")) },
		"damaged":        func() io.Reader { return bytes.NewReader([]byte("kontent")) },
		"without an end": func() io.Reader { return endless{} },
	}
	for name, first := range cases {
		t.Run(name, func(t *testing.T) {
			s := newTally()
			content := []byte("content")
			s.contents[sum(content)] = content
			s.send = func(_ string, nth int) (io.Reader, error) {
				if nth == 1 {
					return first(), nil
				}
				return nil, nil
			}
			dir := t.TempDir()
			mustHold(t, open(t, dir, s), fleet.ManifestEntry{Path: "f", Size: 7, SHA256: sum(content)})
			if n := len(s.take()); n != 2 {
				t.Errorf("asked %d times", n)
			}
			nothingUnderway(t, dir)
		})
	}
}

// failing is a connection that breaks; endless one that sends for ever.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
