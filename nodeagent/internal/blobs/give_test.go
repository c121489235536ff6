package blobs_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/blobs"
)

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
