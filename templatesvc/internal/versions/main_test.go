package versions_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

var ref = content.TemplateRef{Group: "g", Name: "t"}

var me = versions.Asked{Author: "me"}

// world is an etcd, a blob directory and a Service that uses both.
type world struct {
	*testing.T
	etcd  *storetest.Etcd
	c     *store.Client
	blobs *blob.Store
	*versions.Service
	mu    sync.Mutex
	clock time.Time
	// meanwhile is called when the service next reads the clock; may be nil.
	meanwhile func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	etcd := storetest.Start(t)
	w := &world{T: t, etcd: etcd, c: etcd.Client(t), clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var err error
	if w.blobs, err = blob.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	w.Service = versions.New(versions.Config{Store: w.c, Blobs: w.blobs, Replica: "a", Copy: func(context.Context, string) int { return 1 }, Now: w.now, Log: slog.New(slog.DiscardHandler)})
	return w
}

// now returns the time, which advances with every call.
func (w *world) now() time.Time {
	w.mu.Lock()
	do := w.meanwhile
	w.meanwhile = nil
	w.mu.Unlock()
	if do != nil {
		do()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = w.clock.Add(time.Second)
	return w.clock
}

func (w *world) begin() *versions.Publish {
	w.Helper()
	p, err := w.Begin(w.Context(), "test")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { p.Close(w.Context()) })
	return p
}

// tree stores files, given as alternating paths and contents.
func (w *world) tree(p *versions.Publish, files ...string) (m content.Manifest) {
	w.Helper()
	for n := 0; n < len(files); n += 2 {
		c, err := p.Add(w.Context(), strings.NewReader(files[n+1]), 1<<20)
		if err != nil {
			w.Fatal(err)
		}
		m.Entries = append(m.Entries, content.ManifestEntry{Path: files[n], Mode: 0o644, Size: c.Size, SHA256: c.SHA256, Chunks: c.Chunks})
	}
	return m
}

// publish publishes a version with exactly these files.
func (w *world) publish(files ...string) content.TemplateHead {
	w.Helper()
	p := w.begin()
	defer p.Close(w.Context())
	m := w.tree(p, files...)
	h, err := p.Commit(w.Context(), versions.Move{Ref: ref, Manifest: m, Base: w.head().Digest, Kind: content.MoveEdit, Asked: me})
	if err != nil {
		w.Fatal(err)
	}
	return h
}

func (w *world) head() content.TemplateHead {
	w.Helper()
	h, err := w.Head(w.Context(), ref)
	if err != nil && !errs.Is(err, errs.NotFound) {
		w.Fatal(err)
	}
	return h
}

func (w *world) revision() int64 {
	w.Helper()
	rev, err := w.c.Revision(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return rev
}
