package blobcache_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
)

// published makes a cache hold a version with these files, as if a directory was built from it.
func (s *tally) published(t *testing.T, c *blobcache.Cache, entries ...content.ManifestEntry) {
	t.Helper()
	digest := s.manifest(t, content.Manifest{Entries: entries})
	m, err := c.Manifest(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Fetch(t.Context(), m.Entries); err != nil {
		t.Fatal(err)
	}
	c.MarkUsed(digest, m)
	c.Warm()
}

func TestChunksOfAnOlderVersionAreReused(t *testing.T) {
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
			s.askedFor(t, sum(fresh[0]), sum(fresh[1]))
			noTemporaryFiles(t, dir)
		})
	}
}

// TestChunksAreReusedAtAnyOffset moves the chunks by nothing, by a block and by other distances,
// because blocks can be cloned only at the same alignment.
func TestChunksAreReusedAtAnyOffset(t *testing.T) {
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
			t.Errorf("moved by %d bytes: asked for %d chunks", before, n)
		}
		noTemporaryFiles(t, dir)
	}
}

func TestChunksOfACorruptFileAreFetched(t *testing.T) {
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
	noTemporaryFiles(t, dir)
}

// TestChunksOfATruncatedFileAreFetched truncates an older file after it was found, before its
// chunks are copied concurrently.
func TestChunksOfATruncatedFileAreFetched(t *testing.T) {
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
	entries := []content.ManifestEntry{world}
	const together = 12 // fetched first, because they are larger
	for i, body := range random(3, together, int(world.Size)+1) {
		s.contents[sum(body)] = body
		entries = append(entries, content.ManifestEntry{Path: fmt.Sprint(i), Size: int64(len(body)), SHA256: sum(body)})
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
		t.Errorf("%d requests", n)
	}
	mustHold(t, c, world)
	mustHold(t, c, before)
	noTemporaryFiles(t, dir)
}
