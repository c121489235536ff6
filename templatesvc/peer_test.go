package templatesvc_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// replica starts a replica without a template directory.
func (w *world) replica(name, blobs string) (s *templatesvc.Service, stop func()) {
	w.t.Helper()
	return w.startWith(templatesvc.Config{Replica: name, BlobDir: blobs, Copies: 2})
}

func (w *world) startWith(cfg templatesvc.Config) (s *templatesvc.Service, stop func()) {
	w.t.Helper()
	cfg.Store, cfg.ClusterSecret, cfg.Takeover, cfg.Log = w.c, secret, true, slog.New(slog.DiscardHandler)
	s, err := templatesvc.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	stop = func() { cancel(); <-done }
	w.t.Cleanup(stop)
	await.That(w.t, "the session of "+cfg.Replica, func() string {
		_, err := store.Get(w.t.Context(), w.c, keys.Session("templatesvc", cfg.Replica))
		return await.Unless(err == nil, "%v", err)
	})
	return s, stop
}

// large returns content that is stored in chunks.
func large(t *testing.T) string {
	t.Helper()
	b, err := io.ReadAll(io.LimitReader(rand.NewChaCha8([32]byte{}), 3<<20))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// awaitContent waits until a replica serves the right content of a version's file.
func (w *world) awaitContent(s *templatesvc.Service, digest, name, want string) {
	w.t.Helper()
	c := clientOf(s)
	await.That(w.t, "the version on "+s.URL(), func() string {
		if _, err := c.Replicate(w.t.Context(), digest); err != nil {
			return err.Error()
		}
		return ""
	})
	if got, _ := contentOf(w.t, c, digest, name); got != want {
		w.t.Errorf("%s has %d bytes on %s", name, len(got), s.URL())
	}
}

func TestAVersionIsServedAfterTheDeathOfTheReplicaThatTookIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b, _ := w.replica("b", t.TempDir())
	c, _ := w.replica("c", t.TempDir())
	w.write("world.dat", large(t), 0o644)
	_, stop := w.startWith(templatesvc.Config{Replica: "a", Dir: w.dir, BlobDir: w.blobs, Copies: 2})
	h := w.await("published", func(_ content.TemplateHead, ok bool) bool { return ok })
	v, err := store.Get(t.Context(), w.c, keys.TemplateVersion(ref, h.Digest))
	if err != nil || v.Copies != 2 {
		t.Errorf("it was on %d disks when it was published, %v", v.Copies, err)
	}
	stop()
	if err := os.RemoveAll(w.blobs); err != nil { // its disk is lost too
		t.Fatal(err)
	}
	w.awaitContent(b, h.Digest, "world.dat", large(t))
	w.awaitContent(c, h.Digest, "world.dat", large(t))
}

func TestAReplicaThatWasAwayCatchesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("world.dat", large(t), 0o644)
	w.startWith(templatesvc.Config{Replica: "a", Dir: w.dir, BlobDir: w.blobs, Copies: 2})
	h := w.await("published", func(_ content.TemplateHead, ok bool) bool { return ok })
	blobs := t.TempDir()
	w.replica("b", blobs)
	await.That(t, "its own copy", func() string {
		_, err := os.Stat(filepath.Join(blobs, h.Digest[:2], h.Digest))
		return await.Unless(err == nil, "%v", err)
	})
}

func TestWhatNobodyHadIsCopiedSoonAfterSomebodyHasIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("world.dat", large(t), 0o644)
	_, stop := w.startWith(templatesvc.Config{Replica: "a", Dir: w.dir, BlobDir: w.blobs, Copies: 1})
	h := w.await("published", func(_ content.TemplateHead, ok bool) bool { return ok })
	stop()
	blobs := t.TempDir()
	w.replica("b", blobs) // asks for the content, but no replica has it
	w.replica("a", w.blobs)
	await.That(t, "its own copy, without being asked", func() string {
		_, err := os.Stat(filepath.Join(blobs, h.Digest[:2], h.Digest))
		return await.Unless(err == nil, "%v", err)
	})
}

func TestReplicasThatShareADirectoryAreOneDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.replica("b", w.blobs)
	w.write("f", "one", 0o644)
	w.startWith(templatesvc.Config{Replica: "a", Dir: w.dir, BlobDir: w.blobs, Copies: 2})
	h := w.await("published", func(_ content.TemplateHead, ok bool) bool { return ok })
	if v, err := store.Get(t.Context(), w.c, keys.TemplateVersion(ref, h.Digest)); err != nil || v.Copies != 1 {
		t.Errorf("%d copies, %v", v.Copies, err)
	}
}

func TestACorruptBlobIsHealedFromAPeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.replica("b", t.TempDir())
	w.write("f", "one", 0o644)
	a, _ := w.startWith(templatesvc.Config{Replica: "a", Dir: w.dir, BlobDir: w.blobs, Copies: 2})
	h := w.await("published", func(_ content.TemplateHead, ok bool) bool { return ok })
	sum := content.DigestOf([]byte("one"))
	if err := os.WriteFile(filepath.Join(w.blobs, sum[:2], sum), []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := clientOf(a).Suspect(t.Context(), sum); err != nil {
		t.Fatal(err)
	}
	if got, _ := contentOf(t, clientOf(a), h.Digest, "f"); got != "one" {
		t.Errorf("it reads %q", got)
	}
}

func TestAReplicaReadsWhatItsDiskLacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	blobs := t.TempDir()
	b, _ := w.replica("b", blobs)
	w.write("world.dat", large(t), 0o644)
	w.write("motd", "hello", 0o644)
	w.startWith(templatesvc.Config{Replica: "a", Dir: w.dir, BlobDir: w.blobs, Copies: 2})
	h := w.await("published", func(_ content.TemplateHead, ok bool) bool { return ok })
	w.awaitContent(b, h.Digest, "world.dat", large(t))
	c := clientOf(b)
	empty := func() { // like a replica that has not caught up; the mirror may be writing at the same time
		t.Helper()
		files, err := filepath.Glob(filepath.Join(blobs, "[0-9a-f][0-9a-f]", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files { // keep the directories, because a write may be in progress there
			if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	for _, reading := range []struct {
		what string
		do   func() error
	}{
		{"a file", func() error {
			if got, _ := contentOf(t, c, h.Digest, "world.dat"); got != large(t) {
				t.Errorf("a file: %d bytes", len(got))
			}
			return nil
		}},
		{"a search", func() error { _, err := c.Search(t.Context(), h.Digest, "hello", 10); return err }},
		{"a list", func() error { _, err := c.Files(t.Context(), h.Digest, "", true); return err }},
		{"a diff", func() error { _, err := c.Diff(t.Context(), h.Digest, h.Digest, ""); return err }},
		{"a collection", func() error {
			r, err := c.Collect(t.Context())
			if err == nil && r.Removed > 0 {
				t.Errorf("removed %d blobs", r.Removed)
			}
			return err
		}},
		{"an edit", func() error {
			_, err := c.PutFile(t.Context(), client.Change{Ref: ref, Asked: client.Asked{Author: "me"}, Path: "other"}, 0, false, strings.NewReader("x"))
			return err
		}},
	} {
		empty()
		if err := reading.do(); err != nil {
			t.Errorf("%s: %v", reading.what, err)
		}
	}
}
