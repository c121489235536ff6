package blobcache_test

import (
	"bytes"
	"errors"
	"fmt"
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
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
)

const kib = 1 << 10

// tree is a version of files of one KiB each, and its digest.
type tree struct {
	digest string
	content.Manifest
}

func (s *tally) tree(t testing.TB, seed byte, files int) tree {
	var m content.Manifest
	for i, body := range random(seed, files, kib) {
		s.contents[sum(body)] = body
		m.Entries = append(m.Entries, content.ManifestEntry{Path: fmt.Sprint(i), Size: kib, SHA256: sum(body)})
	}
	return tree{digest: s.manifest(t, m), Manifest: m}
}

// build uses the cache as a build of a directory does, except for the release.
func build(t testing.TB, c *blobcache.Cache, v tree) (release func()) {
	t.Helper()
	if _, err := c.Manifest(t.Context(), v.digest); err != nil {
		t.Fatal(err)
	}
	release = c.Pin([]string{v.digest}, v.Entries)
	if err := c.Fetch(t.Context(), v.Entries); err != nil {
		t.Fatal(err)
	}
	c.MarkUsed(v.digest, v.Manifest)
	return release
}

func openLimited(t testing.TB, dir string, s blobcache.Source, limit int64) *blobcache.Cache {
	t.Helper()
	c, err := blobcache.Open(dir, s, limit)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// complete reports whether a version is completely in a cache's directory.
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

// weight returns the size of the files in a cache's directory, in bytes.
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

func TestLeastRecentlyUsedIsEvictedFirst(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprint("restarted ", restarted), func(t *testing.T) {
			s, dir := newTally(), t.TempDir()
			a, b, d := s.tree(t, 1, 10), s.tree(t, 2, 10), s.tree(t, 3, 10)
			const limit = 26 * kib
			c := openLimited(t, dir, s, limit)
			for _, v := range []tree{a, b, a} {
				build(t, c, v)()
			}
			if restarted {
				c.Warm() // saves the order of use
				c = openLimited(t, dir, s, limit)
			}
			build(t, c, d)()
			if complete(dir, b) || !complete(dir, a) || !complete(dir, d) {
				t.Errorf("complete are a %v, b %v, d %v", complete(dir, a), complete(dir, b), complete(dir, d))
			}
			if w := weight(t, dir); w > limit {
				t.Errorf("the cache holds %d bytes", w)
			}
			if warm := c.Warm(); slices.Contains(warm, b.digest) || !slices.Contains(warm, a.digest) || !slices.Contains(warm, d.digest) {
				t.Errorf("warm are %v", warm)
			}
			build(t, c, b)()
			if !complete(dir, b) {
				t.Error("the evicted version was not fetched again")
			}
		})
	}
}

func TestPinnedContentIsNotEvicted(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	a, b := s.tree(t, 1, 10), s.tree(t, 2, 10)
	const limit = 12 * kib
	c := openLimited(t, dir, s, limit)
	releaseA, releaseB := build(t, c, a), build(t, c, b)
	if !complete(dir, a) || !complete(dir, b) {
		t.Fatal("pinned content was evicted")
	}
	releaseB()
	releaseB() // a second release has no effect
	if !complete(dir, a) {
		t.Error("pinned content was evicted")
	}
	releaseA()
	if w := weight(t, dir); w > limit {
		t.Errorf("the cache holds %d bytes", w)
	}
}

func TestUnknownFilesAreEvictedFirst(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	stray := random(9, 1, 8*kib)[0]
	path := filepath.Join(dir, sum(stray)[:2], sum(stray))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, stray, 0o444)); err != nil {
		t.Fatal(err)
	}
	a, b := s.tree(t, 1, 10), s.tree(t, 2, 5)
	c := openLimited(t, dir, s, 20*kib)
	build(t, c, a)()
	build(t, c, b)()
	if _, err := os.Stat(path); err == nil || !complete(dir, a) || !complete(dir, b) {
		t.Errorf("the stray: %v; complete are %v, %v", err, complete(dir, a), complete(dir, b))
	}
}

func TestCacheKeepsItsLimitAndPinnedContent(t *testing.T) {
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
		c := openLimited(t, dir, s, limit)
		held := map[int]func(){}
		for range rapid.IntRange(1, 20).Draw(r, "steps") {
			n := rapid.IntRange(0, len(all)-1).Draw(r, "version")
			switch release, ok := held[n]; {
			case ok:
				release()
				delete(held, n)
			case len(held) == 0 && rapid.Bool().Draw(r, "restart"):
				c = openLimited(t, dir, s, limit)
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
			r.Fatalf("the cache holds %d bytes", w)
		}
	})
}

func TestFullDiskEvictsAndLeavesNoTemporaryFiles(t *testing.T) { disktest.Small(t, "512k", fillDisk) }

func fillDisk(t *testing.T, dir string) {
	s := newTally()
	c := openLimited(t, dir, s, 0)
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
	noTemporaryFiles(t, dir)
	world := s.large("world", random(4, 8, 128*kib)...)
	release := c.Pin(nil, []content.ManifestEntry{world})
	if err := c.Fetch(t.Context(), []content.ManifestEntry{world}); !errs.Is(err, errs.Exhausted) {
		t.Errorf("a file larger than the disk: %v", err)
	}
	release()
	noTemporaryFiles(t, dir)
	build(t, c, old)()
	if !complete(dir, old) {
		t.Error("nothing was evicted from the full disk")
	}
}

func TestNeededContentSurvivesRestartAndEviction(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	a, b, d := s.tree(t, 1, 10), s.tree(t, 2, 10), s.tree(t, 3, 10)
	jar := s.artifact(bytes.Repeat([]byte("j"), 4*kib))
	const limit = 18 * kib
	needs := blobcache.Needs{Versions: []string{a.digest, "", "no digest"}, Artifacts: []string{jar}}
	var c *blobcache.Cache
	for _, next := range []tree{b, d} { // with a restart before each
		c = openLimited(t, dir, s, limit)
		c.SetNeeds("aaaaaa", needs)
		if next.digest == b.digest {
			build(t, c, a)()
			if _, err := c.Artifact(t.Context(), jar); err != nil {
				t.Fatal(err)
			}
		}
		build(t, c, next)()
		if _, err := os.Stat(filepath.Join(dir, jar[:2], jar)); err != nil || !complete(dir, a) {
			t.Fatalf("needed content was evicted: %v, %v", err, complete(dir, a))
		}
		for _, v := range c.Status(0).Versions {
			if v.InUse != (v.Digest == a.digest) {
				t.Errorf("%.6s in use: %v", v.Digest, v.InUse)
			}
		}
	}
	c.SetNeeds("aaaaaa", blobcache.Needs{Versions: []string{b.digest}})
	c.SetNeeds("aaaaaa", blobcache.Needs{})
	c.Trim()
	if w := weight(t, dir); w > limit {
		t.Errorf("it still holds %d bytes that are not needed", w)
	}
}

func TestPinnedPartialFileStaysAndCounts(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	pieces := random(1, 20, 16*kib)
	e, other := s.large("world", pieces...), s.tree(t, 2, 10)
	s.failWhenAnotherCame(sum(pieces[7]))
	c := openLimited(t, dir, s, kib/2)
	release := c.Pin(nil, []content.ManifestEntry{e})
	if err := c.Fetch(t.Context(), []content.ManifestEntry{e}); !errs.Is(err, errs.Unavailable) {
		t.Fatalf("got %v", err)
	}
	came := chunksWritten(t, dir, e, pieces...)
	if bytes := c.Status(0).TotalBytes; came == 0 || bytes < int64(came)*16*kib || bytes >= e.Size {
		t.Fatalf("%d chunks were written, %d bytes are counted", came, bytes)
	}
	if bytes := openLimited(t, dir, s, 0).Status(0).TotalBytes; bytes < int64(came)*16*kib || bytes >= e.Size {
		t.Errorf("after a restart %d bytes are counted", bytes)
	}
	s.send = nil
	build(t, c, other)() // evicts
	if n := chunksWritten(t, dir, e, pieces...); n != came {
		t.Errorf("%d chunks of %d are left", n, came)
	}
	release()
	if left := tempPrefix(t, dir); len(left) > 0 {
		t.Errorf("not evicted after the release: %v", left)
	}
	if st := c.Status(0); st.TotalBytes > st.LimitBytes {
		t.Errorf("%d bytes are counted", st.TotalBytes)
	}
}

func TestTrimRemovesStalePartialFiles(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	pieces := random(1, 20, 16*kib)
	e := s.large("world", pieces...)
	s.failWhenAnotherCame(sum(pieces[7]))
	c := open(t, dir, s)
	release := c.Pin(nil, []content.ManifestEntry{e})
	if err := c.Fetch(t.Context(), []content.ManifestEntry{e}); !errs.Is(err, errs.Unavailable) {
		t.Fatalf("got %v", err)
	}
	left := func() int {
		c.Trim()
		return len(tempPrefix(t, dir))
	}
	long := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(tempPrefix(t, dir)[0], long, long); err != nil {
		t.Fatal(err)
	}
	if left() != 1 {
		t.Fatal("it was removed while it was pinned")
	}
	release()
	if err := os.Chtimes(tempPrefix(t, dir)[0], long, long.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if left() != 1 {
		t.Fatal("it was removed too early")
	}
	if err := os.Chtimes(tempPrefix(t, dir)[0], long, long); err != nil {
		t.Fatal(err)
	}
	if n, bytes := left(), c.Status(0).TotalBytes; n != 0 || bytes != 0 {
		t.Errorf("%d are left, %d bytes are counted", n, bytes)
	}
}

// TestNeedsSetDuringEvictionAreKept sets needs while Trim reads a manifest. The manifest is a
// named pipe, so that the test decides when the read ends.
func TestNeedsSetDuringEvictionAreKept(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	a := s.tree(t, 1, 10)
	build(t, openLimited(t, dir, s, 0), a)()
	slow := sum([]byte("a list"))
	pipe := filepath.Join(dir, slow[:2], slow)
	if err := errors.Join(os.MkdirAll(filepath.Dir(pipe), 0o755), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	c := openLimited(t, dir, s, kib)
	c.SetNeeds("aaaaaa", blobcache.Needs{Versions: []string{slow}})
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
	c.SetNeeds("bbbbbb", blobcache.Needs{Versions: []string{a.digest}})
	if err := list.Close(); err != nil {
		t.Fatal(err)
	}
	trimmed.Wait()
	if !complete(dir, a) {
		t.Error("needed content was evicted")
	}
}
