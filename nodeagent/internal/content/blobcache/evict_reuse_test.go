package blobcache_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
)

func TestEvictionWaitsUntilChunksAreReused(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	old, fresh := random(1, 20, 10*kib), random(2, 1, 10*kib)
	c := openLimited(t, dir, s, 300*kib) // enough for one of them and the other files
	s.published(t, c, s.large("world", old...))
	other := s.tree(t, 3, 50)
	build(t, c, other)()
	s.take()
	e := s.large("world", slices.Concat(old[:5], fresh, old[6:])...)
	release := c.Pin(nil, []content.ManifestEntry{e})
	defer release()
	if err := c.Fetch(t.Context(), []content.ManifestEntry{e}); err != nil {
		t.Fatal(err)
	}
	if got := s.take(); !slices.Equal(got, []string{sum(fresh[0])}) {
		t.Errorf("asked for %d chunks, one has changed", len(got))
	}
	if st := c.Status(0); st.TotalBytes > st.LimitBytes || !complete(dir, other) {
		t.Errorf("%d of %d bytes; the file used later is cached: %v", st.TotalBytes, st.LimitBytes, complete(dir, other))
	}
}

func TestEvictionReadsManifestsOnce(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	const limit = 40 * kib
	c := openLimited(t, dir, s, limit)
	kept := content.Manifest{}
	for i := range 2000 {
		kept.Entries = append(kept.Entries, content.ManifestEntry{Path: fmt.Sprint(i), Kind: content.FileDir})
	}
	old := s.manifest(t, kept)
	if _, err := c.Manifest(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	c.SetNeeds("aaaaaa", blobcache.Needs{Versions: []string{old}})
	lists, err := os.Stat(filepath.Join(dir, old[:2], old))
	if err != nil {
		t.Fatal(err)
	}
	build(t, c, s.tree(t, 1, 30))() // evicts
	before := bytesRead(t)
	build(t, c, s.tree(t, 2, 30))()
	if read := bytesRead(t) - before; read > lists.Size() {
		t.Errorf("%d bytes were read, the old manifest has %d", read, lists.Size())
	}
	if w := weight(t, dir); w > limit+lists.Size() {
		t.Errorf("the cache holds %d bytes", w)
	}
}

// bytesRead returns how many bytes this process has read, from files and anything else.
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

// TestEvictionIsDeferredOnlyWhenWorthIt fetches a large file that shares chunks with a cached
// one, and checks which cached files exist during the fetch.
func TestEvictionIsDeferredOnlyWhenWorthIt(t *testing.T) {
	old, fresh := random(1, 10, 10*kib), random(2, 10, 10*kib)
	most, little := slices.Concat(old[:9], fresh[:1]), slices.Concat(old[:1], fresh[:9])
	cases := map[string]struct {
		pieces     [][]byte
		limit      int64
		worldFirst bool // the old file was used before the other files
		needed     bool // the old file is needed
		beside     bool // the old file is part of the new version too
		world      bool // the old file is cached during the fetch
		other      bool // the other files are
		asked      int
	}{
		"due for eviction":        {most, 250 * kib, true, false, false, true, true, 1},
		"used later than others":  {most, 250 * kib, false, false, false, true, false, 1},
		"needed":                  {most, 250 * kib, true, true, false, true, false, 1},
		"part of the new version": {most, 250 * kib, true, false, true, true, false, 1},
		"few chunks are shared":   {little, 250 * kib, true, false, false, false, true, 10},
		"fits below the limit":    {most, 400 * kib, true, false, false, true, true, 1},
	}
	for name, k := range cases {
		t.Run(name, func(t *testing.T) {
			s, dir := newTally(), t.TempDir()
			c := openLimited(t, dir, s, k.limit)
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
				c.SetNeeds("aaaaaa", blobcache.Needs{Versions: []string{s.manifest(t, content.Manifest{Entries: []content.ManifestEntry{world}})}})
			}
			entries := []content.ManifestEntry{s.large("new world", k.pieces...)}
			if k.beside {
				entries = append(entries, world)
			}
			var once sync.Once
			s.send = func(string, int) (io.Reader, error) {
				once.Do(func() {
					_, err := os.Stat(filepath.Join(dir, world.SHA256[:2], world.SHA256))
					if others := complete(dir, other); others != k.other || (err == nil) != k.world {
						t.Errorf("during the fetch: others cached: %v, old file: %v", others, err)
					}
				})
				return nil, nil
			}
			defer c.Pin(nil, entries)()
			if err := c.Fetch(t.Context(), entries); err != nil {
				t.Fatal(err)
			}
			if n := len(s.take()); n != k.asked {
				t.Errorf("asked for %d chunks", n)
			}
			if st := c.Status(0); st.TotalBytes > st.LimitBytes {
				t.Errorf("%d of %d bytes", st.TotalBytes, st.LimitBytes)
			}
		})
	}
}

// TestDeferredEvictionSparesOtherFiles fetches something else, which evicts, while a large file
// is assembled from a file whose eviction is deferred.
func TestDeferredEvictionSparesOtherFiles(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	old, fresh := random(1, 20, 10*kib), random(2, 1, 10*kib)
	c := openLimited(t, dir, s, 265*kib)
	s.published(t, c, s.large("world", old...))
	other, third := s.tree(t, 3, 50), s.tree(t, 4, 20)
	build(t, c, other)()
	if _, err := c.Manifest(t.Context(), third.digest); err != nil {
		t.Fatal(err)
	}
	s.take()
	e := s.large("world", slices.Concat(old[:12], fresh)...)
	defer c.Pin(nil, []content.ManifestEntry{e})()
	defer c.Pin([]string{third.digest}, third.Entries)()
	s.send = func(hash string, _ int) (io.Reader, error) {
		if hash == sum(fresh[0]) {
			return nil, c.Fetch(t.Context(), third.Entries)
		}
		return nil, nil
	}
	if err := c.Fetch(t.Context(), []content.ManifestEntry{e}); err != nil {
		t.Fatal(err)
	}
	if n := len(s.take()); n != 1+20 {
		t.Errorf("%d requests", n)
	}
	if st := c.Status(0); st.TotalBytes > st.LimitBytes || !complete(dir, other) || !complete(dir, third) {
		t.Errorf("%d of %d bytes; files used later are cached: %v, %v", st.TotalBytes, st.LimitBytes, complete(dir, other), complete(dir, third))
	}
}
