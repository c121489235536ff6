package blobcache_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
)

// shelf serves templates from memory.
type shelf struct {
	manifests map[string]content.Manifest
	contents  map[string][]byte
}

func (s shelf) Manifest(_ context.Context, digest string) (io.ReadCloser, error) {
	m, ok := s.manifests[digest]
	if !ok {
		return nil, errs.New(errs.NotFound, "no manifest %s", digest)
	}
	b, err := json.Marshal(m)
	return io.NopCloser(bytes.NewReader(b)), err
}

func (s shelf) Suspect(context.Context, string) error { return nil }

// Row reports that it sends only single blobs.
func (s shelf) Row(context.Context, []string) (io.ReadCloser, error) {
	return nil, errs.New(errs.NotFound, "one at a time")
}

func (s shelf) Blob(_ context.Context, hash string) (io.ReadCloser, error) {
	b, ok := s.contents[hash]
	if !ok {
		return nil, errs.New(errs.NotFound, "no blob %s", hash)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// add adds a template of files with these contents.
func (s shelf) add(t *testing.T, contents ...string) string {
	m := content.Manifest{Entries: []content.ManifestEntry{{Path: "dir", Kind: content.FileDir}}}
	for i, text := range contents {
		s.contents[sum([]byte(text))] = []byte(text)
		m.Entries = append(m.Entries, content.ManifestEntry{Path: fmt.Sprint(i), Size: int64(len(text)), SHA256: sum([]byte(text))})
	}
	return s.manifest(t, m)
}

// manifest adds a version.
func (s shelf) manifest(t testing.TB, m content.Manifest) string {
	t.Helper()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	s.manifests[sum(b)] = m
	return sum(b)
}

// use fetches the first n files of a template and marks it as used.
func use(t *testing.T, c *blobcache.Cache, digest string, n int) {
	t.Helper()
	m, err := c.Manifest(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range m.Entries[1 : n+1] {
		if _, err := c.File(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	c.MarkUsed(digest, m)
}

func openShelf(t *testing.T) (shelf, string, func() *blobcache.Cache) {
	s, dir := shelf{map[string]content.Manifest{}, map[string][]byte{}}, t.TempDir()
	return s, dir, func() *blobcache.Cache {
		c, err := blobcache.Open(dir, s, 0)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func sameSet(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestVersionIsWarmWhenComplete(t *testing.T) {
	s, _, open := openShelf(t)
	whole, part, empty := s.add(t, "a", "b"), s.add(t, "c", "d"), s.add(t)
	c := open()
	sameSet(t, "before anything was used", c.Warm())
	use(t, c, whole, 2)
	use(t, c, part, 1)
	use(t, c, empty, 0)
	sameSet(t, "what was used wholly", c.Warm(), whole, empty)
	use(t, c, part, 2)
	sameSet(t, "with the rest", c.Warm(), whole, empty, part)
}

func TestMostRecentlyUsedStayWarm(t *testing.T) {
	s, _, open := openShelf(t)
	c := open()
	var all []string
	for i := range reports.MaxWarm {
		all = append(all, s.add(t, fmt.Sprint("content ", i)))
		use(t, c, all[i], 1)
	}
	sameSet(t, "as many as may be", c.Warm(), all...)
	use(t, c, all[0], 1) // so that the second is the least recently used
	more := s.add(t, "one more")
	use(t, c, more, 1)
	sameSet(t, "one more", c.Warm(), append(slices.Delete(slices.Clone(all), 1, 2), more)...)
}

func TestWarmVersionsSurviveRestart(t *testing.T) {
	s, dir, open := openShelf(t)
	kept, damaged, gone := s.add(t, "kept"), s.add(t, "damaged"), s.add(t, "gone", "kept")
	c := open()
	for _, d := range []string{kept, damaged, gone} {
		use(t, c, d, 1)
	}
	use(t, c, gone, 2)
	sameSet(t, "at first", c.Warm(), kept, damaged, gone)
	at := func(text string) string { h := sum([]byte(text)); return filepath.Join(dir, h[:2], h) }
	if err := os.Chmod(at("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("damaged"), []byte("damaged by more"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(at("gone")); err != nil {
		t.Fatal(err)
	}
	c = open()
	fresh := s.add(t, "fresh")
	use(t, c, fresh, 1)
	sameSet(t, "after a restart", c.Warm(), kept, fresh)
	for _, nonsense := range []string{``, `{`, `["../../etc/passwd","x"]`, `[5]`} {
		if err := os.WriteFile(filepath.Join(dir, "warm"), []byte(nonsense), 0o644); err != nil {
			t.Fatal(err)
		}
		sameSet(t, fmt.Sprintf("after %q", nonsense), open().Warm())
	}
}

func TestWarmWritesOnlyChanges(t *testing.T) {
	s, dir, open := openShelf(t)
	c := open()
	one, two := s.add(t, "one"), s.add(t, "two")
	use(t, c, one, 1)
	use(t, c, two, 1)
	first := c.Warm()
	if err := os.Remove(filepath.Join(dir, "warm")); err != nil {
		t.Fatal(err)
	}
	use(t, c, one, 1) // another order
	if again := c.Warm(); !slices.Equal(first, again) {
		t.Errorf("%v, then %v", first, again)
	}
	if _, err := os.Stat(filepath.Join(dir, "warm")); !os.IsNotExist(err) {
		t.Errorf("it was written again: %v", err)
	}
}

// Artifact serves content like any other.
func (s shelf) Artifact(ctx context.Context, hash string) (io.ReadCloser, error) {
	return s.Blob(ctx, hash)
}
