package blobs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

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

// nothingUnderway fails if a file that is not whole was left behind.
func nothingUnderway(t *testing.T, dir string) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(dir, "*", ".new-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if left := underway(t, dir); len(left) > 0 {
		t.Errorf("left behind on their way: %v", left)
	}
}

// underway are the large files that are not whole.
func underway(t *testing.T, dir string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "partial", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// arrived is how many of a large file's pieces stand in it that is not whole.
func arrived(t *testing.T, dir string, e fleet.ManifestEntry, pieces ...[]byte) (n int) {
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

func TestALargeFileIsJoinedFromItsPieces(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	pieces := random(1, 10, 10_000)
	pieces = append(pieces, pieces[3], pieces[3]) // the same ones again
	e := s.large("world", pieces...)
	mustHold(t, open(t, dir, s), e)
	if n := len(s.take()); n != 10 {
		t.Errorf("asked for %d pieces", n)
	}
	nothingUnderway(t, dir)
}

// published has a cache hold a version with these files, as if a directory had been built of it.
func (s *tally) published(t *testing.T, c *blobs.Cache, entries ...fleet.ManifestEntry) {
	t.Helper()
	digest := s.manifest(t, fleet.Manifest{Entries: entries})
	m, err := c.Manifest(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Fetch(t.Context(), m.Entries); err != nil {
		t.Fatal(err)
	}
	c.Used(digest, m)
	c.Warm()
}

func TestWhatAnOlderVersionHasIsNotFetched(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprint("restarted ", restarted), func(t *testing.T) {
			s, dir := newTally(), t.TempDir()
			c := open(t, dir, s)
			old, fresh := random(1, 20, 10_000), random(2, 2, 7_000)
			s.published(t, c, s.large("world", old...))
			s.take()
			if restarted {
				c = open(t, dir, s)
			}
			changed := s.large("world", slices.Concat(old[:5], fresh, old[6:])...)
			mustHold(t, c, changed)
			want := []string{sum(fresh[0]), sum(fresh[1])}
			got := s.take()
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("asked for %d pieces", len(got))
			}
			nothingUnderway(t, dir)
		})
	}
}

// TestPiecesOfAnOlderVersionAreTakenWhereverTheyLieInIt has them lie as they did, a block
// further and anywhere, which is what sharing blocks with them depends on.
func TestPiecesOfAnOlderVersionAreTakenWhereverTheyLieInIt(t *testing.T) {
	old := slices.Concat(random(1, 5, 100_000), random(2, 3, 700_001), random(3, 4, 4096), random(4, 3, 10))
	for _, before := range []int{0, 1, 4095, 4096, 4097, 1 << 19} {
		s, dir := newTally(), t.TempDir()
		c := open(t, dir, s)
		s.published(t, c, s.large("world", old...))
		s.take()
		var fresh [][]byte
		if before > 0 {
			fresh = random(5, 1, before)
		}
		mustHold(t, c, s.large("world", slices.Concat(fresh, old, random(6, 1, 77))...))
		if n := len(s.take()); n != len(fresh)+1 {
			t.Errorf("%d bytes further: asked for %d pieces", before, n)
		}
		nothingUnderway(t, dir)
	}
}

func TestADamagedOlderVersionGivesNothing(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	c := open(t, dir, s)
	old := random(1, 5, 10_000)
	before := s.large("world", old...)
	s.published(t, c, before)
	path := filepath.Join(dir, before.SHA256[:2], before.SHA256)
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, make([]byte, before.Size), 0o600)); err != nil {
		t.Fatal(err)
	}
	mustHold(t, c, s.large("world", slices.Concat(old, random(2, 1, 10))...))
	mustHold(t, c, before)
	nothingUnderway(t, dir)
}

// TestPiecesOfAFileThatIsCutMeanwhileAreFetched has an older version's file be found, and
// then be cut, before its pieces are taken by several at once.
func TestPiecesOfAFileThatIsCutMeanwhileAreFetched(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	c := open(t, dir, s)
	old, fresh := random(1, 64, 1000), random(2, 64, 1000)
	before := s.large("world", old...)
	s.published(t, c, before)
	s.take()
	var pieces [][]byte
	for i := range old {
		pieces = append(pieces, fresh[i], old[i])
	}
	world := s.large("new world", pieces...)
	entries := []fleet.ManifestEntry{world}
	const together = 12 // which come first, since they are larger
	for i, content := range random(3, together, int(world.Size)+1) {
		s.contents[sum(content)] = content
		entries = append(entries, fleet.ManifestEntry{Path: fmt.Sprint(i), Size: int64(len(content)), SHA256: sum(content)})
	}
	first := map[string]bool{}
	for _, e := range entries[1:] {
		first[e.SHA256] = true
	}
	var entered atomic.Int32
	cut := make(chan struct{})
	s.send = func(hash string, _ int) (io.Reader, error) {
		if first[hash] {
			if entered.Add(1) == together {
				path := filepath.Join(dir, before.SHA256[:2], before.SHA256)
				if err := errors.Join(os.Chmod(path, 0o600), os.Truncate(path, 500)); err != nil {
					t.Error(err)
				}
				close(cut)
			}
			<-cut
		}
		return nil, nil
	}
	if err := c.Fetch(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	if n := len(s.take()); n != together+128 {
		t.Errorf("asked %d times", n)
	}
	mustHold(t, c, world)
	mustHold(t, c, before)
	nothingUnderway(t, dir)
}

// failWhenAnotherCame has one hash fail, but not before some other content came whole: who
// fetches several at once ends with the first failure.
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

// told is an empty reader that tells when it is read.
type told struct{ tell func() }

func (r *told) Read([]byte) (int, error) {
	r.tell()
	return 0, io.EOF
}

func TestPiecesThatHaveComeAreNotFetchedAgain(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	pieces := random(1, 20, 1000)
	e := s.large("world", pieces...)
	s.failWhenAnotherCame(sum(pieces[7]))
	if _, err := open(t, dir, s).File(t.Context(), e); !errs.Is(err, errs.Unavailable) {
		t.Fatalf("got %v", err)
	}
	came := arrived(t, dir, e, pieces...)
	if came == 0 {
		t.Fatal("nothing of it is left")
	}
	s.take()
	s.send = nil
	mustHold(t, open(t, dir, s), e) // a later agent
	if n := len(s.take()); n != len(pieces)-came {
		t.Errorf("asked for %d pieces, %d had come", n, came)
	}
	nothingUnderway(t, dir)
}

// TestWhatStandsInAFileOnItsWayIsHashedBeforeItCounts damages what a former agent left as
// a power cut does: here zeros where a piece was written, there the end of it is missing.
func TestWhatStandsInAFileOnItsWayIsHashedBeforeItCounts(t *testing.T) {
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
	want := []string{sum(pieces[1]), sum(pieces[3]), sum(pieces[4])}
	got := s.take()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("asked for %d pieces", len(got))
	}
	nothingUnderway(t, dir)
}

func TestADamagedPieceIsFoundToldAndFetchedAnew(t *testing.T) {
	pieces := random(1, 40, 300_000)
	cases := map[string]func(p []byte) io.Reader{
		"other bytes":   func(p []byte) io.Reader { return bytes.NewReader(make([]byte, len(p))) },
		"too few":       func(p []byte) io.Reader { return bytes.NewReader(p[:len(p)-1]) },
		"too many":      func(p []byte) io.Reader { return io.MultiReader(bytes.NewReader(p), endless{}) },
		"broken off":    func(p []byte) io.Reader { return io.MultiReader(bytes.NewReader(p[:290_000]), failing{}) },
		"other, broken": func(p []byte) io.Reader { return io.MultiReader(bytes.NewReader(make([]byte, 290_000)), failing{}) },
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
				t.Errorf("asked %d times", n)
			}
			nothingUnderway(t, dir)
		})
	}
}

func TestPiecesThatFollowEachOtherAreAskedForTogether(t *testing.T) {
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
			t.Errorf("asked for %d pieces", n)
		}
		if requests := len(s.sizes); most == 100 && requests != 4 || slices.Max(s.sizes) > 16 {
			t.Errorf("asked for %v at a time", s.sizes)
		}
		nothingUnderway(t, dir)
	}
}

func TestDamageAmongPiecesThatComeTogetherIsFound(t *testing.T) {
	pieces := random(1, 40, 100_000)
	first := sum(pieces[17])
	cases := map[string]func() io.Reader{
		"other bytes": func() io.Reader { return bytes.NewReader(make([]byte, 100_000)) },
		"too few":     func() io.Reader { return bytes.NewReader(pieces[17][:99_000]) },
		"too many":    func() io.Reader { return bytes.NewReader(append(slices.Clone(pieces[17]), 5)) },
		"broken off":  func() io.Reader { return io.MultiReader(bytes.NewReader(pieces[17][:9000]), failing{}) },
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
			t.Errorf("%s: asked for %d pieces", name, n)
		}
		nothingUnderway(t, dir)
	}
}

// TestWhatIsWrittenAgainIsHashedAgain has a piece break off that is sound so far, and then
// come with another beginning: what was hashed is not what stands there.
func TestWhatIsWrittenAgainIsHashedAgain(t *testing.T) {
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
		nothingUnderway(t, dir)
	}
}

// TestALargeFileIsWhatItsHashSaysWhateverComes has answers be sound, damaged, cut, too long
// or broken off at any place, and the agent be another one now and then.
func TestALargeFileIsWhatItsHashSaysWhateverComes(t *testing.T) {
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
			c, err := blobs.Open(dir, s, 0)
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

func TestAPieceThatStaysDamagedFailsAndTheOthersStay(t *testing.T) {
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
		t.Errorf("asked %d times", n)
	}
	s.send = nil
	mustHold(t, open(t, dir, s), e)
	if asked := s.take(); len(asked) != 1 {
		t.Errorf("asked for %d pieces again", len(asked))
	}
}

func TestWhatFormerAgentsKeptPiecesInGoes(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "chunks", "ab")
	if err := errors.Join(os.MkdirAll(old, 0o755), os.WriteFile(filepath.Join(old, sum(nil)), nil, 0o444)); err != nil {
		t.Fatal(err)
	}
	open(t, dir, newTally())
	if _, err := os.Stat(filepath.Join(dir, "chunks")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there still: %v", err)
	}
}

func TestPiecesThatDoNotGiveTheirFileAreRefused(t *testing.T) {
	s := newTally()
	c := open(t, t.TempDir(), s)
	pieces := random(1, 3, 100)
	sound := s.large("f", pieces...)
	cases := map[string]struct {
		change func(*fleet.ManifestEntry)
		kind   errs.Kind
	}{
		"in another order":   {func(e *fleet.ManifestEntry) { slices.Reverse(e.Chunks) }, errs.Unavailable},
		"of another size":    {func(e *fleet.ManifestEntry) { e.Size++ }, errs.Invalid},
		"with an empty one":  {func(e *fleet.ManifestEntry) { e.Chunks = append(e.Chunks, fleet.Chunk{SHA256: sum(nil)}) }, errs.Invalid},
		"with one too large": {func(e *fleet.ManifestEntry) { e.Chunks[0].Size = 1 << 40 }, errs.Invalid},
		"with a false name":  {func(e *fleet.ManifestEntry) { e.Chunks[0].SHA256 = "../../x" }, errs.Invalid},
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

func TestFieldsThisAgentDoesNotKnowChangeNoDigest(t *testing.T) {
	body := []byte(`{"entries":[{"path":"f","kind":"dir","future":[1,2]}],"more":{}}`)
	s := raw{sum(body): body}
	m, err := open(t, t.TempDir(), s).Manifest(t.Context(), sum(body))
	if err != nil || len(m.Entries) != 1 || m.Entries[0].Path != "f" {
		t.Errorf("%+v, %v", m, err)
	}
}

// raw is a source of bytes by their hash.
type raw map[string][]byte

func (s raw) Manifest(ctx context.Context, digest string) (io.ReadCloser, error) {
	return s.Blob(ctx, digest)
}

func (s raw) Blob(_ context.Context, hash string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(s[hash])), nil
}

// Row has one blob at a time alone.
func (raw) Row(context.Context, []string) (io.ReadCloser, error) {
	return nil, errs.New(errs.NotFound, "one at a time")
}

func (raw) Suspect(context.Context, string) error { return nil }

// Artifact is content as any other here.
func (s raw) Artifact(ctx context.Context, hash string) (io.ReadCloser, error) {
	return s.Blob(ctx, hash)
}

func TestAListThatMustNotBePlacedIsRefused(t *testing.T) {
	hash := sum([]byte("x"))
	entry := func(path string) string { return `{"path":"` + path + `","size":1,"sha256":"` + hash + `"}` }
	cases := map[string]struct {
		entries string
		kind    errs.Kind
	}{
		"a name that is not UTF-8":        {entry("a\xff"), errs.Invalid},
		"a way out":                       {entry("../x"), errs.Invalid},
		"an absolute path":                {entry("/x"), errs.Invalid},
		"a control character":             {entry("a\\u0007"), errs.Invalid},
		"a name given twice":              {entry("a") + "," + entry("a"), errs.Invalid},
		"a file above another":            {entry("a") + "," + entry("a/b"), errs.Invalid},
		"a link that leads out":           {`{"path":"l","kind":"symlink","target":"../../etc"}`, errs.Invalid},
		"a device":                        {`{"path":"d","kind":"device"}`, errs.Invalid},
		"a mode that makes another's":     {`{"path":"s","mode":2541,"size":1,"sha256":"` + hash + `"}`, errs.Invalid},
		"no hash":                         {`{"path":"a","size":1,"sha256":"../../x"}`, errs.Invalid},
		"more than a file may hold":       {`{"path":"a","size":1099511627776,"sha256":"` + hash + `"}`, errs.TooLarge},
		"names that differ only in case":  {entry("A") + "," + entry("a"), 0},
		"a name in another normalisation": {entry("\u00e9") + "," + entry("e\u0301"), 0},
	}
	for name, c := range cases {
		body := []byte(`{"entries":[` + c.entries + `]}`)
		_, err := open(t, t.TempDir(), raw{sum(body): body}).Manifest(t.Context(), sum(body))
		if c.kind == 0 && err != nil || c.kind != 0 && !errs.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheListsOfOlderVersionsAreReadOnceForAllLargeFiles(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	before, after := fleet.Manifest{}, []fleet.ManifestEntry{}
	for i := range 30 {
		pieces := random(byte(i), 2, 1000)
		before.Entries = append(before.Entries, s.large(fmt.Sprint("r", i), pieces...))
		after = append(after, s.large(fmt.Sprint("r", i), append(pieces, []byte{byte(i)})...))
	}
	for i := range 2000 {
		before.Entries = append(before.Entries, fleet.ManifestEntry{Path: fmt.Sprint(i), Kind: fleet.FileDir})
	}
	digest := s.manifest(t, before)
	s.published(t, open(t, dir, s), before.Entries...)
	s.take()
	c := open(t, dir, s) // which knows of it from its file alone
	c.Warm()
	fi, err := os.Stat(filepath.Join(dir, digest[:2], digest))
	if err != nil {
		t.Fatal(err)
	}
	began := bytesRead(t)
	if err := c.Fetch(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	if read := bytesRead(t) - began; read > 5*fi.Size() {
		t.Errorf("%d bytes were read, the list has %d", read, fi.Size())
	}
	if n := len(s.take()); n != len(after) {
		t.Errorf("asked for %d pieces", n)
	}
}
