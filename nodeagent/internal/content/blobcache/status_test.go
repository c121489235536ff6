package blobcache_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/blobcache"
)

func TestWarmUpAndStatusOfVersions(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	a, b, damaged := s.tree(t, 1, 10), s.tree(t, 2, 5), s.tree(t, 3, 3)
	delete(s.contents, damaged.Entries[1].SHA256)
	nobody := sum([]byte("nobody has it"))
	c := openLimited(t, dir, s, 1<<20)
	got := c.WarmUp(t.Context(), []string{a.digest, nobody, damaged.digest, b.digest, a.digest, "x"})
	failed := map[int]errs.Kind{1: errs.NotFound, 2: errs.NotFound, 5: errs.Invalid}
	for n, w := range got {
		kind, fails := failed[n]
		if (w.Err != nil) != fails || fails && !errs.Is(w.Err, kind) {
			t.Errorf("%d: %+v", n, w)
		}
	}
	if got[0].Bytes+got[4].Bytes < 10*kib || got[3].Bytes != 5*kib {
		t.Errorf("fetched %d, %d and %d bytes", got[0].Bytes, got[3].Bytes, got[4].Bytes)
	}
	if warm := c.Warm(); len(warm) != 2 || !slices.Contains(warm, a.digest) || !slices.Contains(warm, b.digest) {
		t.Errorf("warm are %v", warm)
	}
	for _, c := range []*blobcache.Cache{c, openLimited(t, dir, s, 1<<20)} { // the same after a restart
		release := c.Pin([]string{b.digest}, b.Entries)
		st := c.Status(0)
		release()
		want := []client.CachedVersion{
			{Digest: a.digest, Bytes: 10 * kib, Complete: true},
			{Digest: b.digest, Bytes: 5 * kib, Complete: true, InUse: true},
			{Digest: damaged.digest, Bytes: 3 * kib},
		}
		byDigest := cmpopts.SortSlices(func(x, y client.CachedVersion) bool { return x.Digest < y.Digest })
		if diff := cmp.Diff(want, st.Versions, byDigest, cmpopts.IgnoreTypes(time.Time{})); diff != "" {
			t.Error(diff)
		}
		if st.LimitBytes != 1<<20 || st.TotalBytes != weight(t, dir) || c.Size() != st.TotalBytes {
			t.Errorf("%d (%d) of %d bytes, on the disk are %d", st.TotalBytes, c.Size(), st.LimitBytes, weight(t, dir))
		}
	}
}

func TestStatusListsArtifacts(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	c := openLimited(t, dir, s, 1<<20)
	first, second, gone := s.artifact([]byte("first")), s.artifact([]byte("the second")), s.artifact([]byte("gone"))
	for _, hash := range []string{first, second, gone} {
		if _, err := c.Artifact(t.Context(), hash); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, gone[:2], gone)); err != nil {
		t.Fatal(err)
	}
	got := c.Status(0).Artifacts
	want := []client.CachedArtifact{{SHA256: second, Bytes: 10}, {SHA256: first, Bytes: 5}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreTypes(time.Time{})); diff != "" {
		t.Error(diff)
	}
	for _, a := range got {
		if a.CachedAt.IsZero() || a.UsedAt.IsZero() {
			t.Errorf("without times: %+v", a)
		}
	}
	if more := c.Status(1).Artifacts; len(more) > 0 {
		t.Errorf("listed again on a later page: %v", more)
	}
}

func TestStatusPagesVersions(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	c := openLimited(t, dir, s, 0)
	const all = blobcache.MaxListed + 3
	for i := range all {
		m := content.Manifest{Entries: []content.ManifestEntry{{Path: fmt.Sprint(i), Kind: content.FileDir}}}
		if _, err := c.Manifest(t.Context(), s.manifest(t, m)); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for after := 0; ; {
		page := c.Status(after)
		for _, v := range page.Versions {
			seen[v.Digest] = true
		}
		after += len(page.Versions)
		if len(page.Versions) > blobcache.MaxListed || page.MoreVersions != all-after {
			t.Fatalf("%d of them, %d more", len(page.Versions), page.MoreVersions)
		}
		if page.MoreVersions == 0 {
			break
		}
	}
	if len(seen) != all {
		t.Errorf("%d were listed", len(seen))
	}
	if beyond := c.Status(all + 1); len(beyond.Versions) != 0 || beyond.MoreVersions != 0 {
		t.Errorf("beyond the end: %+v", beyond)
	}
}
