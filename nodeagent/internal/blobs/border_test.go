package blobs_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// full is a tally whose own disk is full when it is asked for lists and artifacts.
type full struct{ *tally }

const fullDisk = "the disk of blobs.dir is full"

func (full) Manifest(context.Context, string) (io.ReadCloser, error) {
	return nil, errs.New(errs.Exhausted, fullDisk)
}

func (full) Artifact(context.Context, string) (io.ReadCloser, error) {
	return nil, errs.New(errs.Exhausted, fullDisk)
}

func TestAFullDiskOfTheSourceIsNotTheNodes(t *testing.T) {
	s, dir := newTally(), t.TempDir()
	c := openBound(t, dir, full{s}, 0)
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
	defer c.Hold(nil, []fleet.ManifestEntry{world})()
	mustBeItsOwn := func(what string, err error) {
		t.Helper()
		if !errs.Is(err, errs.Unavailable) || errs.MessageOf(err) != fullDisk {
			t.Errorf("%s: %v", what, err)
		}
	}
	mustBeItsOwn("a large file", c.Fetch(t.Context(), []fleet.ManifestEntry{world}))
	if n := arrived(t, dir, world, pieces...); n != 1 {
		t.Errorf("%d pieces of it stay", n)
	}
	other := s.tree(t, 3, 1)
	mustBeItsOwn("a small one", c.Fetch(t.Context(), other.Entries))
	_, err := c.Manifest(t.Context(), other.digest)
	mustBeItsOwn("a list", err)
	_, err = c.Artifact(t.Context(), sum([]byte("jar")))
	mustBeItsOwn("an artifact", err)
	for _, e := range here.Entries {
		if _, err := os.Stat(filepath.Join(dir, e.SHA256[:2], e.SHA256)); err != nil {
			t.Fatalf("what was here went: %v", err)
		}
	}
}
