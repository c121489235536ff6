package blobcache_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// full is a tally that returns Exhausted for manifests and artifacts.
type full struct{ *tally }

const fullDisk = "the disk of blobs.dir is full"

func (full) Manifest(context.Context, string) (io.ReadCloser, error) {
	return nil, errs.New(errs.Exhausted, fullDisk)
}

func (full) Artifact(context.Context, string) (io.ReadCloser, error) {
	return nil, errs.New(errs.Exhausted, fullDisk)
}

func TestFullDiskOfTheSourceEvictsNothing(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	c := openLimited(t, dir, full{s}, 0)
	here := s.tree(t, 1, 10)
	if err := c.Fetch(t.Context(), here.Entries); err != nil {
		t.Fatal(err)
	}
	pieces := random(2, 20, 1000)
	world := s.large("world", pieces...)
	came, once := make(chan struct{}), sync.Once{}
	s.send = func(hash string, _ int) (io.Reader, error) {
		if hash == sum(pieces[0]) {
			return io.MultiReader(bytes.NewReader(pieces[0]), &told{tell: func() { once.Do(func() { close(came) }) }}), nil
		}
		<-came
		return nil, errs.New(errs.Exhausted, fullDisk)
	}
	defer c.Pin(nil, []content.ManifestEntry{world})()
	wantUnavailable := func(what string, err error) {
		t.Helper()
		if !errs.Is(err, errs.Unavailable) || errs.MessageOf(err) != fullDisk {
			t.Errorf("%s: %v", what, err)
		}
	}
	wantUnavailable("a large file", c.Fetch(t.Context(), []content.ManifestEntry{world}))
	if n := chunksWritten(t, dir, world, pieces...); n != 1 {
		t.Errorf("%d chunks of it stay", n)
	}
	other := s.tree(t, 3, 1)
	wantUnavailable("a small one", c.Fetch(t.Context(), other.Entries))
	_, err := c.Manifest(t.Context(), other.digest)
	wantUnavailable("a list", err)
	_, err = c.Artifact(t.Context(), sum([]byte("jar")))
	wantUnavailable("an artifact", err)
	for _, e := range here.Entries {
		if _, err := os.Stat(filepath.Join(dir, e.SHA256[:2], e.SHA256)); err != nil {
			t.Fatalf("cached content was evicted: %v", err)
		}
	}
}
