package blobs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/disktest"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/blobs"
)

const kib = 1 << 10

// tree is a version of some files of a KiB each and its digest.
type tree struct {
	digest string
	fleet.Manifest
}

func (s *tally) tree(t testing.TB, seed byte, files int) tree {
	var m fleet.Manifest
	for i, content := range random(seed, files, kib) {
		s.contents[sum(content)] = content
		m.Entries = append(m.Entries, fleet.ManifestEntry{Path: fmt.Sprint(i), Size: kib, SHA256: sum(content)})
	}
	return tree{digest: s.manifest(t, m), Manifest: m}
}

// build does what building a directory does to the cache, but for the release.
func build(t testing.TB, c *blobs.Cache, v tree) (release func()) {
	t.Helper()
	if _, err := c.Manifest(t.Context(), v.digest); err != nil {
		t.Fatal(err)
	}
	release = c.Hold([]string{v.digest}, v.Entries)
	if err := c.Fetch(t.Context(), v.Entries); err != nil {
		t.Fatal(err)
	}
	c.Used(v.digest, v.Manifest)
	return release
}

func openBound(t testing.TB, dir string, s blobs.Source, limit int64) *blobs.Cache {
	t.Helper()
	c, err := blobs.Open(dir, s, limit)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// complete reports whether all of a version stands in a cache's directory.
func complete(dir string, v tree) bool {
	for _, hash := range append(hashes(v), v.digest) {
		if _, err := os.Stat(filepath.Join(dir, hash[:2], hash)); err != nil {
			return false
		}
	}
	return true
}

func hashes(v tree) (all []string) {
	for _, e := range v.Entries {
		all = append(all, e.SHA256)
	}
	return all
}

// weight is what a cache's directory holds, in bytes.
func weight(t testing.TB, dir string) (bytes int64) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Base(path) == "warm" {
			return err
		}
		fi, err := d.Info()
		bytes += fi.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func TestWhatWasNotUsedForLongestGoesFirst(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprint("restarted ", restarted), func(t *testing.T) {
			s, dir := newTally(), t.TempDir()
			a, b, d := s.tree(t, 1, 10), s.tree(t, 2, 10), s.tree(t, 3, 10)
			const limit = 26 * kib
			c := openBound(t, dir, s, limit)
			for _, v := range []tree{a, b, a} {
				build(t, c, v)()
			}
			if restarted {
				c.Warm() // as the reporter asks
				c = openBound(t, dir, s, limit)
			}
			build(t, c, d)()
			if complete(dir, b) || !complete(dir, a) || !complete(dir, d) {
				t.Errorf("complete are a %v, b %v, d %v", complete(dir, a), complete(dir, b), complete(dir, d))
			}
			if w := weight(t, dir); w > limit {
				t.Errorf("it holds %d bytes", w)
			}
			if warm := c.Warm(); slices.Contains(warm, b.digest) || !slices.Contains(warm, a.digest) || !slices.Contains(warm, d.digest) {
				t.Errorf("warm are %v", warm)
			}
			build(t, c, b)() // and it comes again
			if !complete(dir, b) {
				t.Error("what went does not come again")
			}
		})
	}
}

func TestWhatSomebodyHoldsStays(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	a, b := s.tree(t, 1, 10), s.tree(t, 2, 10)
	const limit = 12 * kib
	c := openBound(t, dir, s, limit)
	releaseA, releaseB := build(t, c, a), build(t, c, b)
	if !complete(dir, a) || !complete(dir, b) {
		t.Fatal("it went while it was held")
	}
	releaseB()
	releaseB() // more than once does no harm
	if !complete(dir, a) {
		t.Error("it went while it was held")
	}
	releaseA()
	if w := weight(t, dir); w > limit {
		t.Errorf("it holds %d bytes", w)
	}
}

func TestWhatBelongsToNothingGoesFirst(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	stray := random(9, 1, 8*kib)[0]
	path := filepath.Join(dir, sum(stray)[:2], sum(stray))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, stray, 0o444)); err != nil {
		t.Fatal(err)
	}
	a, b := s.tree(t, 1, 10), s.tree(t, 2, 5)
	c := openBound(t, dir, s, 20*kib)
	build(t, c, a)()
	build(t, c, b)()
	if _, err := os.Stat(path); err == nil || !complete(dir, a) || !complete(dir, b) {
		t.Errorf("the stray: %v; complete are %v, %v", err, complete(dir, a), complete(dir, b))
	}
}

func TestACacheKeepsItsLimitAndWhatIsHeld(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := newTally()
		dir, err := os.MkdirTemp("", "orrery-cache-")
		if err != nil {
			r.Fatal(err)
		}
		defer os.RemoveAll(dir)
		var all []tree
		for i := range 5 {
			all = append(all, s.tree(t, byte(i), i+1))
		}
		const limit = 12 * kib
		c := openBound(t, dir, s, limit)
		held := map[int]func(){}
		for range rapid.IntRange(1, 20).Draw(r, "steps") {
			n := rapid.IntRange(0, len(all)-1).Draw(r, "version")
			switch release, ok := held[n]; {
			case ok:
				release()
				delete(held, n)
			case len(held) == 0 && rapid.Bool().Draw(r, "restart"):
				c = openBound(t, dir, s, limit)
			default:
				held[n] = build(t, c, all[n])
			}
			for n := range held {
				if !complete(dir, all[n]) {
					r.Fatalf("version %d is held and not whole", n)
				}
			}
		}
		for release := range maps.Values(held) {
			release()
		}
		if w := weight(t, dir); w > limit {
			r.Fatalf("it holds %d bytes", w)
		}
	})
}

func TestAFullDiskIsMadeRoomOnAndLeftClean(t *testing.T) { disktest.Small(t, "512k", fillDisk) }

func fillDisk(t *testing.T, dir string) {
	s := newTally()
	c := openBound(t, dir, s, 0)
	old := s.tree(t, 1, 100)
	build(t, c, old)()
	next := s.tree(t, 2, 100)
	build(t, c, next)()
	if complete(dir, old) || !complete(dir, next) {
		t.Errorf("complete are the old one %v, the next one %v", complete(dir, old), complete(dir, next))
	}
	large := s.tree(t, 3, 600)
	if _, err := c.Manifest(t.Context(), large.digest); err != nil {
		t.Fatal(err)
	}
	if err := c.Fetch(t.Context(), large.Entries); !errs.Is(err, errs.Exhausted) {
		t.Errorf("more than the disk holds: %v", err)
	}
	nothingUnderway(t, dir)
	world := s.large("world", random(4, 8, 128*kib)...)
	release := c.Hold(nil, []fleet.ManifestEntry{world})
	if err := c.Fetch(t.Context(), []fleet.ManifestEntry{world}); !errs.Is(err, errs.Exhausted) {
		t.Errorf("a file larger than the disk: %v", err)
	}
	release()
	nothingUnderway(t, dir)
	build(t, c, old)()
	if !complete(dir, old) {
		t.Error("the disk is full for ever")
	}
}

// artifact puts an artifact on the shelf and returns its hash.
func (s *tally) artifact(content []byte) string {
	s.contents[sum(content)] = content
	return sum(content)
}

func (s *tally) Artifact(ctx context.Context, hash string) (io.ReadCloser, error) {
	return s.Blob(ctx, hash)
}

func TestWhatSomebodyNeedsStaysAlsoForTheNextAgent(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	a, b, d := s.tree(t, 1, 10), s.tree(t, 2, 10), s.tree(t, 3, 10)
	jar := s.artifact(bytes.Repeat([]byte("j"), 4*kib))
	const limit = 18 * kib
	needs := blobs.Needs{Versions: []string{a.digest, "", "no digest"}, Artifacts: []string{jar}}
	var c *blobs.Cache
	for _, next := range []tree{b, d} { // each time another agent
		c = openBound(t, dir, s, limit)
		c.Keep("aaaaaa", needs)
		if next.digest == b.digest {
			build(t, c, a)()
			if _, err := c.Artifact(t.Context(), jar); err != nil {
				t.Fatal(err)
			}
		}
		build(t, c, next)()
		if _, err := os.Stat(filepath.Join(dir, jar[:2], jar)); err != nil || !complete(dir, a) {
			t.Fatalf("what is needed went: %v, %v", err, complete(dir, a))
		}
		for _, v := range c.Status(0).Versions {
			if v.InUse != (v.Digest == a.digest) {
				t.Errorf("%.6s in use: %v", v.Digest, v.InUse)
			}
		}
	}
	c.Keep("aaaaaa", blobs.Needs{Versions: []string{b.digest}})
	c.Keep("aaaaaa", blobs.Needs{})
	c.Trim()
	if w := weight(t, dir); w > limit {
		t.Errorf("it holds %d bytes though nobody needs them", w)
	}
}

func TestTheFirstUseOfAnArtifactIsNotedToTheMoment(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	hash := s.artifact([]byte("jar"))
	c := openBound(t, dir, s, 30*kib)
	for range 50 { // the file system's own clock is mostly behind, by up to 10 ms
		mark := filepath.Join(dir, "artifacts", hash)
		if err := os.RemoveAll(mark); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		if _, err := c.Artifact(t.Context(), hash); err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(mark)
		if err != nil {
			t.Fatal(err)
		}
		if fi.ModTime().Before(before) {
			t.Fatalf("used after %v, noted is %v", before, fi.ModTime())
		}
	}
}

func TestAnArtifactCountsAndGoesInItsTurn(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		s, dir := newTally(), t.TempDir()
		old, young := s.artifact(bytes.Repeat([]byte("o"), 8*kib)), s.artifact(bytes.Repeat([]byte("y"), 8*kib))
		a, b := s.tree(t, 1, 8), s.tree(t, 2, 8)
		const limit = 30 * kib
		c := openBound(t, dir, s, limit)
		mustBring := func(hash string) {
			t.Helper()
			if _, err := c.Artifact(t.Context(), hash); err != nil {
				t.Fatal(err)
			}
		}
		mustBring(old)
		build(t, c, a)()
		mustBring(young)
		if restarted {
			c = openBound(t, dir, s, limit)
		}
		build(t, c, b)()
		here := func(hash string) bool {
			_, err := os.Stat(filepath.Join(dir, hash[:2], hash))
			return err == nil
		}
		if here(old) || !here(young) || !complete(dir, a) || !complete(dir, b) {
			t.Errorf("here are old %v, young %v, a %v, b %v", here(old), here(young), complete(dir, a), complete(dir, b))
		}
		for _, v := range c.Status(0).Versions {
			if v.Digest == old || v.Digest == young {
				t.Error("an artifact is listed as a version")
			}
		}
	}
}

func TestADamagedArtifactIsFetchedAnew(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	jar := s.artifact([]byte("jar"))
	for n, damage := range []string{"", "jam", "ja"} {
		c := openBound(t, dir, s, 0)
		path := filepath.Join(dir, jar[:2], jar)
		if damage != "" {
			if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte(damage), 0o444)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := c.Artifact(t.Context(), jar)
		if err != nil {
			t.Fatal(n, err)
		}
		if b, err := os.ReadFile(got); string(b) != "jar" {
			t.Errorf("it holds %q, %v", b, err)
		}
	}
	if asked := s.take(); len(asked) != 3 {
		t.Errorf("it was asked for %d times", len(asked))
	}
}

func TestALargeFileOnItsWayStaysWhileItIsHeldAndCounts(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	pieces := random(1, 20, 16*kib)
	e, other := s.large("world", pieces...), s.tree(t, 2, 10)
	s.failWhenAnotherCame(sum(pieces[7]))
	c := openBound(t, dir, s, kib/2)
	release := c.Hold(nil, []fleet.ManifestEntry{e})
	if err := c.Fetch(t.Context(), []fleet.ManifestEntry{e}); !errs.Is(err, errs.Unavailable) {
		t.Fatalf("got %v", err)
	}
	came := arrived(t, dir, e, pieces...)
	if bytes := c.Status(0).Bytes; came == 0 || bytes < int64(came)*16*kib || bytes >= e.Size {
		t.Fatalf("%d pieces came, %d bytes are counted", came, bytes)
	}
	if bytes := openBound(t, dir, s, 0).Status(0).Bytes; bytes < int64(came)*16*kib || bytes >= e.Size {
		t.Errorf("the next agent counts %d bytes", bytes)
	}
	s.send = nil
	build(t, c, other)() // makes room
	if n := arrived(t, dir, e, pieces...); n != came {
		t.Errorf("%d pieces of %d are left", n, came)
	}
	release()
	if left := underway(t, dir); len(left) > 0 {
		t.Errorf("nobody holds it: %v", left)
	}
	if st := c.Status(0); st.Bytes > st.Limit {
		t.Errorf("%d bytes are counted", st.Bytes)
	}
}

func TestALargeFileThatNobodyBringsOnGoesInTheEndWithoutALimitToo(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	pieces := random(1, 20, 16*kib)
	e := s.large("world", pieces...)
	s.failWhenAnotherCame(sum(pieces[7]))
	c := open(t, dir, s)
	release := c.Hold(nil, []fleet.ManifestEntry{e})
	if err := c.Fetch(t.Context(), []fleet.ManifestEntry{e}); !errs.Is(err, errs.Unavailable) {
		t.Fatalf("got %v", err)
	}
	left := func() int {
		c.Trim()
		return len(underway(t, dir))
	}
	long := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(underway(t, dir)[0], long, long); err != nil {
		t.Fatal(err)
	}
	if left() != 1 {
		t.Fatal("it went while it was held")
	}
	release()
	if err := os.Chtimes(underway(t, dir)[0], long, long.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if left() != 1 {
		t.Fatal("it went before the next attempt could take it up")
	}
	if err := os.Chtimes(underway(t, dir)[0], long, long); err != nil {
		t.Fatal(err)
	}
	if n, bytes := left(), c.Status(0).Bytes; n != 0 || bytes != 0 {
		t.Errorf("%d are left, %d bytes are counted", n, bytes)
	}
}

func TestAnOldVersionGivesItsPiecesBeforeItGoes(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	old, fresh := random(1, 20, 10*kib), random(2, 1, 10*kib)
	c := openBound(t, dir, s, 300*kib) // for one of them, and something else
	s.published(t, c, s.large("world", old...))
	other := s.tree(t, 3, 50)
	build(t, c, other)()
	s.take()
	e := s.large("world", slices.Concat(old[:5], fresh, old[6:])...)
	release := c.Hold(nil, []fleet.ManifestEntry{e})
	defer release()
	if err := c.Fetch(t.Context(), []fleet.ManifestEntry{e}); err != nil {
		t.Fatal(err)
	}
	if got := s.take(); !slices.Equal(got, []string{sum(fresh[0])}) {
		t.Errorf("asked for %d pieces, of which one has changed", len(got))
	}
	if st := c.Status(0); st.Bytes > st.Limit || !complete(dir, other) {
		t.Errorf("%d of %d bytes; what was used later is here: %v", st.Bytes, st.Limit, complete(dir, other))
	}
}

// TestWhatIsNeededFromNowOnStaysWhileRoomIsMade has somebody need a version while the
// cache reads what others need, of a list that stands in a pipe and so is not read
// before the test wants it.
func TestWhatIsNeededFromNowOnStaysWhileRoomIsMade(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	a := s.tree(t, 1, 10)
	build(t, openBound(t, dir, s, 0), a)()
	slow := sum([]byte("a list"))
	pipe := filepath.Join(dir, slow[:2], slow)
	if err := errors.Join(os.MkdirAll(filepath.Dir(pipe), 0o755), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	c := openBound(t, dir, s, kib)
	c.Keep("aaaaaa", blobs.Needs{Versions: []string{slow}})
	var trimmed sync.WaitGroup
	trimmed.Go(c.Trim)
	var list *os.File
	await.That(t, "the cache reads the list", func() string {
		var err error
		if list, err = os.OpenFile(pipe, os.O_WRONLY|unix.O_NONBLOCK, 0); err != nil {
			return err.Error()
		}
		return ""
	})
	c.Keep("bbbbbb", blobs.Needs{Versions: []string{a.digest}})
	if err := list.Close(); err != nil {
		t.Fatal(err)
	}
	trimmed.Wait()
	if !complete(dir, a) {
		t.Error("it went though somebody needs it")
	}
}

func TestTheListsOfVersionsAreReadOnce(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	const limit = 40 * kib
	c := openBound(t, dir, s, limit)
	kept := fleet.Manifest{}
	for i := range 2000 {
		kept.Entries = append(kept.Entries, fleet.ManifestEntry{Path: fmt.Sprint(i), Kind: fleet.FileDir})
	}
	old := s.manifest(t, kept)
	if _, err := c.Manifest(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	c.Keep("aaaaaa", blobs.Needs{Versions: []string{old}})
	lists, err := os.Stat(filepath.Join(dir, old[:2], old))
	if err != nil {
		t.Fatal(err)
	}
	build(t, c, s.tree(t, 1, 30))() // room is made
	before := bytesRead(t)
	build(t, c, s.tree(t, 2, 30))()
	if read := bytesRead(t) - before; read > lists.Size() {
		t.Errorf("%d bytes were read, of the old list %d", read, lists.Size())
	}
	if w := weight(t, dir); w > limit+lists.Size() {
		t.Errorf("it holds %d bytes", w)
	}
}

// bytesRead is what this process has read so far, from files and all else.
func bytesRead(t *testing.T) (n int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err == nil {
		_, err = fmt.Sscanf(string(b), "rchar: %d", &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAFileGivesItsPiecesInPlaceOfRoomOnlyWhereItGoesThen has a large file come of which
// another one holds pieces that is not in its turn to go, or not worth its room.
func TestAFileGivesItsPiecesInPlaceOfRoomOnlyWhereItGoesThen(t *testing.T) {
	old, fresh := random(1, 10, 10*kib), random(2, 10, 10*kib)
	most, little := slices.Concat(old[:9], fresh[:1]), slices.Concat(old[:1], fresh[:9])
	cases := map[string]struct {
		pieces     [][]byte
		limit      int64
		worldFirst bool // the file with the pieces was used before what else is here
		needed     bool // somebody needs it
		beside     bool // it stands in the new version too
		world      bool // it is here while the new one comes
		other      bool // all else is
		asked      int
	}{
		"it goes, for them":           {most, 250 * kib, true, false, false, true, true, 1},
		"it was used later":           {most, 250 * kib, false, false, false, true, false, 1},
		"somebody needs it":           {most, 250 * kib, true, true, false, true, false, 1},
		"it is of the version itself": {most, 250 * kib, true, false, true, true, false, 1},
		"little of it is wanted":      {little, 250 * kib, true, false, false, false, true, 10},
		"there is room beside it":     {most, 400 * kib, true, false, false, true, true, 1},
	}
	for name, k := range cases {
		t.Run(name, func(t *testing.T) {
			s, dir := newTally(), t.TempDir()
			c := openBound(t, dir, s, k.limit)
			world, other := s.large("world", old...), s.tree(t, 3, 100)
			if k.worldFirst {
				s.published(t, c, world)
			}
			build(t, c, other)()
			if !k.worldFirst {
				s.published(t, c, world)
			}
			s.take()
			if k.needed {
				c.Keep("aaaaaa", blobs.Needs{Versions: []string{s.manifest(t, fleet.Manifest{Entries: []fleet.ManifestEntry{world}})}})
			}
			entries := []fleet.ManifestEntry{s.large("new world", k.pieces...)}
			if k.beside {
				entries = append(entries, world)
			}
			var once sync.Once
			s.send = func(string, int) (io.Reader, error) {
				once.Do(func() {
					_, err := os.Stat(filepath.Join(dir, world.SHA256[:2], world.SHA256))
					if others := complete(dir, other); others != k.other || (err == nil) != k.world {
						t.Errorf("while it comes, all else is here: %v, the file with the pieces: %v", others, err)
					}
				})
				return nil, nil
			}
			defer c.Hold(nil, entries)()
			if err := c.Fetch(t.Context(), entries); err != nil {
				t.Fatal(err)
			}
			if n := len(s.take()); n != k.asked {
				t.Errorf("asked for %d pieces", n)
			}
			if st := c.Status(0); st.Bytes > st.Limit {
				t.Errorf("%d of %d bytes", st.Bytes, st.Limit)
			}
		})
	}
}

// TestWhatGivesItsPiecesAndGoesThenCostsOthersNothing has room be made for something else
// while a large file comes that an old one gives pieces to.
func TestWhatGivesItsPiecesAndGoesThenCostsOthersNothing(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	old, fresh := random(1, 20, 10*kib), random(2, 1, 10*kib)
	c := openBound(t, dir, s, 265*kib)
	s.published(t, c, s.large("world", old...))
	other, third := s.tree(t, 3, 50), s.tree(t, 4, 20)
	build(t, c, other)()
	if _, err := c.Manifest(t.Context(), third.digest); err != nil {
		t.Fatal(err)
	}
	s.take()
	e := s.large("world", slices.Concat(old[:12], fresh)...)
	defer c.Hold(nil, []fleet.ManifestEntry{e})()
	defer c.Hold([]string{third.digest}, third.Entries)()
	s.send = func(hash string, _ int) (io.Reader, error) {
		if hash == sum(fresh[0]) {
			return nil, c.Fetch(t.Context(), third.Entries)
		}
		return nil, nil
	}
	if err := c.Fetch(t.Context(), []fleet.ManifestEntry{e}); err != nil {
		t.Fatal(err)
	}
	if n := len(s.take()); n != 1+20 {
		t.Errorf("asked %d times", n)
	}
	if st := c.Status(0); st.Bytes > st.Limit || !complete(dir, other) || !complete(dir, third) {
		t.Errorf("%d of %d bytes; what was used later is here: %v, %v", st.Bytes, st.Limit, complete(dir, other), complete(dir, third))
	}
}
