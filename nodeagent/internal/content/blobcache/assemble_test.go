package blobcache_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
)

// noTemporaryFiles fails if an incomplete file was left behind.
func noTemporaryFiles(t *testing.T, dir string) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(dir, "*", ".new-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if left := tempPrefix(t, dir); len(left) > 0 {
		t.Errorf("partial files left behind: %v", left)
	}
}

// partialFiles returns the incomplete large files.
func tempPrefix(t *testing.T, dir string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "partial", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// chunksWritten counts the chunks that were written to an incomplete file.
func chunksWritten(t *testing.T, dir string, e content.ManifestEntry, pieces ...[]byte) (n int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "partial", e.SHA256))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pieces {
		if bytes.HasPrefix(b, p) {
			n++
		}
		b = b[len(p):]
	}
	return n
}

func TestLargeFileIsAssembledFromChunks(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	pieces := random(1, 10, 10_000)
	pieces = append(pieces, pieces[3], pieces[3]) // duplicates
	e := s.large("world", pieces...)
	mustHold(t, open(t, dir, s), e)
	if n := len(s.take()); n != 10 {
		t.Errorf("asked for %d chunks", n)
	}
	noTemporaryFiles(t, dir)
}

// failWhenAnotherCame makes requests for one hash fail after other content was completely
// sent, because a fetch of several files stops at its first failure.
func (s *tally) failWhenAnotherCame(hash string) {
	came, once := make(chan struct{}), sync.Once{}
	s.send = func(asked string, _ int) (io.Reader, error) {
		if asked == hash {
			<-came
			return nil, errs.New(errs.Unavailable, "nobody is there")
		}
		return io.MultiReader(bytes.NewReader(s.contents[asked]), &told{tell: func() { once.Do(func() { close(came) }) }}), nil
	}
}

// told is an empty reader that calls tell when it is read.
type told struct{ tell func() }

func (r *told) Read([]byte) (int, error) {
	r.tell()
	return 0, io.EOF
}

func TestFetchedChunksSurviveFailure(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	pieces := random(1, 20, 1000)
	e := s.large("world", pieces...)
	s.failWhenAnotherCame(sum(pieces[7]))
	if _, err := open(t, dir, s).File(t.Context(), e); !errs.Is(err, errs.Unavailable) {
		t.Fatalf("got %v", err)
	}
	came := chunksWritten(t, dir, e, pieces...)
	if came == 0 {
		t.Fatal("no chunk is left")
	}
	s.take()
	s.send = nil
	mustHold(t, open(t, dir, s), e) // after a restart
	if n := len(s.take()); n != len(pieces)-came {
		t.Errorf("%d requests, %d chunks were written", n, came)
	}
	noTemporaryFiles(t, dir)
}

// TestPartialFileIsVerifiedBeforeReuse damages a partial file as a power cut does: one chunk
// has zeros, and the end is missing.
func TestPartialFileIsVerifiedBeforeReuse(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	pieces := random(1, 5, 100_000)
	e := s.large("world", pieces...)
	left := bytes.Join(pieces, nil)
	clear(left[150_000:160_000])
	left = left[:333_333]
	path := filepath.Join(dir, "partial", e.SHA256)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, left, 0o444)); err != nil {
		t.Fatal(err)
	}
	mustHold(t, open(t, dir, s), e)
	s.askedFor(t, sum(pieces[1]), sum(pieces[3]), sum(pieces[4]))
	noTemporaryFiles(t, dir)
}

func TestCorruptChunkIsReportedAndFetchedAgain(t *testing.T) {
	pieces := random(1, 40, 300_000)
	cases := map[string]func(p []byte) io.Reader{
		"other bytes":              func(p []byte) io.Reader { return bytes.NewReader(make([]byte, len(p))) },
		"too short":                func(p []byte) io.Reader { return bytes.NewReader(p[:len(p)-1]) },
		"too long":                 func(p []byte) io.Reader { return io.MultiReader(bytes.NewReader(p), endless{}) },
		"interrupted":              func(p []byte) io.Reader { return io.MultiReader(bytes.NewReader(p[:290_000]), failing{}) },
		"other bytes, interrupted": func(p []byte) io.Reader { return io.MultiReader(bytes.NewReader(make([]byte, 290_000)), failing{}) },
	}
	for name, damaged := range cases {
		t.Run(name, func(t *testing.T) {
			s, dir := newTally(), t.TempDir()
			e := s.large("world", pieces...)
			bad := map[string][]byte{sum(pieces[0]): pieces[0], sum(pieces[17]): pieces[17]}
			s.send = func(hash string, nth int) (io.Reader, error) {
				if p, ok := bad[hash]; ok && nth == 1 {
					return damaged(p), nil
				}
				return nil, nil
			}
			mustHold(t, open(t, dir, s), e)
			if n := len(s.take()); n != len(pieces)+len(bad) {
				t.Errorf("%d requests", n)
			}
			noTemporaryFiles(t, dir)
		})
	}
}

func TestConsecutiveChunksShareARequest(t *testing.T) {
	for _, most := range []int{100, 7, 1} {
		s, dir := &rows{tally: newTally(), most: most}, t.TempDir()
		c := open(t, dir, s)
		old := random(1, 50, 10_000)
		s.published(t, c, s.large("world", old[:3]...))
		s.take()
		s.sizes = nil
		pieces := slices.Concat(random(2, 20, 100_000), old[:3], random(3, 1, 5), random(4, 20, 600_000))
		mustHold(t, c, s.large("world", pieces...))
		if n := len(s.take()); n != 41 {
			t.Errorf("asked for %d chunks", n)
		}
		if requests := len(s.sizes); most == 100 && requests != 4 || slices.Max(s.sizes) > 16 {
			t.Errorf("asked for %v at a time", s.sizes)
		}
		noTemporaryFiles(t, dir)
	}
}

func TestCorruptChunkInARunIsFound(t *testing.T) {
	pieces := random(1, 40, 100_000)
	first := sum(pieces[17])
	cases := map[string]func() io.Reader{
		"other bytes": func() io.Reader { return bytes.NewReader(make([]byte, 100_000)) },
		"too short":   func() io.Reader { return bytes.NewReader(pieces[17][:99_000]) },
		"too long":    func() io.Reader { return bytes.NewReader(append(slices.Clone(pieces[17]), 5)) },
		"interrupted": func() io.Reader { return io.MultiReader(bytes.NewReader(pieces[17][:9000]), failing{}) },
	}
	for name, damaged := range cases {
		s, dir := &rows{tally: newTally(), most: 100}, t.TempDir()
		e := s.large("world", pieces...)
		s.send = func(hash string, nth int) (io.Reader, error) {
			if hash == first && nth == 1 {
				return damaged(), nil
			}
			return nil, nil
		}
		mustHold(t, open(t, dir, s), e)
		if n := len(s.take()); n <= len(pieces) || n > len(pieces)+16 {
			t.Errorf("%s: asked for %d chunks", name, n)
		}
		noTemporaryFiles(t, dir)
	}
}

// TestRewrittenBytesAreHashedAgain interrupts a correct chunk, and sends one with another
// beginning next: the bytes that were hashed are overwritten.
func TestRewrittenBytesAreHashedAgain(t *testing.T) {
	pieces := random(1, 3, 600_000)
	for n, first := range pieces {
		s, dir := newTally(), t.TempDir()
		e := s.large("world", pieces...)
		s.send = func(hash string, nth int) (io.Reader, error) {
			switch {
			case hash != sum(first):
			case nth == 1:
				return io.MultiReader(bytes.NewReader(first[:590_000]), failing{}), nil
			case nth == 2:
				return io.MultiReader(bytes.NewReader(make([]byte, 500_000)), bytes.NewReader(first[500_000:])), nil
			}
			return nil, nil
		}
		mustHold(t, open(t, dir, s), e)
		if asked := len(s.take()); asked != 5 {
			t.Errorf("piece %d: asked %d times", n, asked)
		}
		noTemporaryFiles(t, dir)
	}
}

// TestLargeFileMatchesItsHashDespiteFaults sends correct, corrupt, truncated, too long and
// interrupted responses, and restarts the agent now and then.
func TestLargeFileMatchesItsHashDespiteFaults(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp("", "orrery-cache-")
		if err != nil {
			r.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s := &rows{tally: newTally(), most: rapid.IntRange(1, 16).Draw(r, "at a time")}
		var pieces [][]byte
		for i, size := range rapid.SliceOfN(rapid.SampledFrom([]int{1, 5000, 262_144, 300_001}), 1, 6).Draw(r, "sizes") {
			pieces = append(pieces, random(byte(rapid.IntRange(0, i).Draw(r, "seed")), 1, size)...)
		}
		e := s.large("world", pieces...)
		bad := rapid.SliceOfN(rapid.IntRange(0, 7), 64, 64).Draw(r, "answers")
		places := rapid.SliceOfN(rapid.IntRange(0, 300_000), 64, 64).Draw(r, "places")
		asked := atomic.Int32{}
		s.send = func(hash string, _ int) (io.Reader, error) {
			n := int(asked.Add(1)) - 1
			if n >= len(bad) {
				return nil, nil
			}
			b := bytes.Clone(s.contents[hash])
			at := places[n] % len(b)
			switch bad[n] {
			case 0:
				clear(b[at:])
			case 1:
				clear(b[:at])
			case 2:
				return bytes.NewReader(b[:at]), nil
			case 3:
				return bytes.NewReader(append(b, b[:at]...)), nil
			case 4:
				return io.MultiReader(bytes.NewReader(b[:at]), failing{}), nil
			}
			return nil, nil
		}
		for range 64 {
			c, err := blobcache.Open(dir, s, 0)
			if err != nil {
				r.Fatal(err)
			}
			path, err := c.File(t.Context(), e)
			if err != nil {
				continue
			}
			if b, err := os.ReadFile(path); err != nil || sum(b) != e.SHA256 {
				r.Fatalf("it holds something else: %v", err)
			}
			return
		}
		r.Fatal("it never came")
	})
}

func TestPersistentlyCorruptChunkFailsTheFetch(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	pieces := random(1, 40, 10_000)
	e := s.large("world", pieces...)
	s.send = func(hash string, _ int) (io.Reader, error) {
		if hash == sum(pieces[20]) {
			return bytes.NewReader(make([]byte, 10_000)), nil
		}
		return nil, nil
	}
	if _, err := open(t, dir, s).File(t.Context(), e); !errs.Is(err, errs.Unavailable) {
		t.Errorf("got %v", err)
	}
	if n := len(s.take()); n != 42 {
		t.Errorf("%d requests", n)
	}
	s.send = nil
	mustHold(t, open(t, dir, s), e)
	if asked := s.take(); len(asked) != 1 {
		t.Errorf("asked again for %d chunks", len(asked))
	}
}

func TestInvalidChunkListsAreRejected(t *testing.T) {
	s := newTally()
	c := open(t, t.TempDir(), s)
	pieces := random(1, 3, 100)
	sound := s.large("f", pieces...)
	cases := map[string]struct {
		change func(*content.ManifestEntry)
		kind   errs.Kind
	}{
		"wrong order":      {func(e *content.ManifestEntry) { slices.Reverse(e.Chunks) }, errs.Unavailable},
		"wrong total size": {func(e *content.ManifestEntry) { e.Size++ }, errs.Invalid},
		"empty chunk":      {func(e *content.ManifestEntry) { e.Chunks = append(e.Chunks, content.Chunk{SHA256: sum(nil)}) }, errs.Invalid},
		"chunk too large":  {func(e *content.ManifestEntry) { e.Chunks[0].Size = 1 << 40 }, errs.Invalid},
		"hash is a path":   {func(e *content.ManifestEntry) { e.Chunks[0].SHA256 = "../../x" }, errs.Invalid},
	}
	for name, k := range cases {
		t.Run(name, func(t *testing.T) {
			e := sound
			e.Chunks = slices.Clone(sound.Chunks)
			k.change(&e)
			if _, err := c.File(t.Context(), e); !errs.Is(err, k.kind) {
				t.Errorf("got %v", err)
			}
		})
	}
}
