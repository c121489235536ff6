package blobcache_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// artifact puts an artifact on the shelf and returns its hash.
func (s *tally) artifact(content []byte) string {
	s.contents[sum(content)] = content
	return sum(content)
}

func (s *tally) Artifact(ctx context.Context, hash string) (io.ReadCloser, error) {
	return s.Blob(ctx, hash)
}

func TestArtifactUseTimeIsPrecise(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	hash := s.artifact([]byte("jar"))
	c := openLimited(t, dir, s, 30*kib)
	for range 50 { // the kernel's timestamps lag by up to 10 ms
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

func TestArtifactsAreEvictedLeastRecentlyUsedFirst(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		s, dir := newTally(), t.TempDir()
		old, young := s.artifact(bytes.Repeat([]byte("o"), 8*kib)), s.artifact(bytes.Repeat([]byte("y"), 8*kib))
		a, b := s.tree(t, 1, 8), s.tree(t, 2, 8)
		const limit = 30 * kib
		c := openLimited(t, dir, s, limit)
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
			c = openLimited(t, dir, s, limit)
		}
		build(t, c, b)()
		here := func(hash string) bool {
			_, err := os.Stat(filepath.Join(dir, hash[:2], hash))
			return err == nil
		}
		if here(old) || !here(young) || !complete(dir, a) || !complete(dir, b) {
			t.Errorf("cached: old %v, young %v, a %v, b %v", here(old), here(young), complete(dir, a), complete(dir, b))
		}
		for _, v := range c.Status(0).Versions {
			if v.Digest == old || v.Digest == young {
				t.Error("an artifact is listed as a version")
			}
		}
	}
}

func TestCorruptArtifactIsFetchedAgain(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	jar := s.artifact([]byte("jar"))
	for n, damage := range []string{"", "jam", "ja"} {
		c := openLimited(t, dir, s, 0)
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
		t.Errorf("%d requests", len(asked))
	}
}
