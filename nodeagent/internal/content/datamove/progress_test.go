package datamove

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

// counting is a puller over a data directory, and how often it made progress.
func counting(t *testing.T) (p *puller, progress *atomic.Int64, dir string) {
	dir, progress = t.TempDir(), new(atomic.Int64)
	m := New(Config{
		DataDir: dir, Workspace: workspace.New(dir, nil), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { progress.Add(1); return time.Unix(1_000, 0) },
	})
	p = m.puller(move.Move{ID: "m", Instance: id, Group: "g", Name: "g-1", Source: "from", Target: "to"})
	progress.Store(0)
	return p, progress, dir
}

func TestALargeFileThatTheSourceHashesIsProgress(t *testing.T) {
	w := newWorld(t)
	w.write(map[string]string{"large": ""})
	if err := os.Truncate(filepath.Join(w.sourceRoot, "large"), 2*piece+1); err != nil {
		t.Fatal(err)
	}
	w.claims(w.sourceRoot, "from", 3).Release()
	goOn := make(chan struct{})
	w.listing = func() { <-goOn } // the disk of the source is slow
	defer close(goOn)
	w.step(move.Copying)
	for hashed := int64(piece); hashed <= 2*piece; hashed += piece {
		await.That(t, strconv.FormatInt(hashed, 10)+" hashed bytes", func() string {
			c := w.copied(move.Listing)
			return await.Unless(c.BytesTotal == hashed && strings.Contains(c.Message, "hashes"), "it is %+v", c)
		})
		goOn <- struct{}{}
	}
	if c := w.copied(move.Verified); c.BytesTotal != 2*piece+1 || c.BytesDone != c.BytesTotal {
		t.Errorf("it reports %+v", c)
	}
}

func TestVerifyingAgainIsProgressOnceAndInPieces(t *testing.T) {
	p, progress, dir := counting(t)
	const have, size = 1 << 20, 1<<20 + 1
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, have), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	e := client.MovedEntry{Path: "a", Kind: client.MovedFile, Size: size}
	source := client.New(new(http.Client), "http://127.0.0.1:1", "s") // nothing listens there
	attempt := func() int64 {
		before := progress.Load()
		p.restart()
		if _, err := p.fetchRest(t.Context(), source, root, e); err == nil {
			t.Fatal("there is no source")
		}
		return progress.Load() - before
	}
	first := attempt()
	if first < 8 {
		t.Errorf("the agent that starts verifies 1 MiB with %d signs of progress", first)
	}
	if again := attempt(); again != first {
		t.Errorf("after a broken connection it verifies with %d signs of progress, want %d", again, first)
	}
	if again := attempt(); again != 0 {
		t.Errorf("an attempt that only repeats another one has %d signs of progress", again)
	}
	p.change(func(c *move.Copy) { c.BytesDone = size })
	if again := attempt(); again != first {
		t.Errorf("after a new byte it verifies with %d signs of progress, want %d", again, first)
	}
}

func TestEachFileThatIsFinishedAndFlushedIsProgress(t *testing.T) {
	p, progress, dir := counting(t)
	entries := []client.MovedEntry{{Path: ".", Kind: client.MovedDir, Mode: 0o700}}
	const many = 50
	for n := range many {
		sum := sha256.Sum256(nil)
		entries = append(entries, client.MovedEntry{Path: strconv.Itoa(n), Kind: client.MovedFile, Mode: 0o600, SHA256: hex.EncodeToString(sum[:])})
	}
	if err := p.fetch(t.Context(), nil, entries); err != nil {
		t.Fatal(err)
	}
	if got := progress.Load(); got < 2*many {
		t.Errorf("%d files are fetched and finished with %d signs of progress", many, got)
	}
	progress.Store(0)
	if err := p.install(t.Context(), filepath.Join(dir, "static", "g", "g-1")); err != nil {
		t.Fatal(err)
	}
	if got := progress.Load(); got < many || !strings.Contains(p.copied.Message, "flushes") {
		t.Errorf("%d files are flushed with %d signs of progress, and it says %q", many, got, p.copied.Message)
	}
}

func TestTheDiskFollowsTheCopy(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var begun, stored, worst int64
	var fails error
	w := &writeback{f: f, sync: func(_ int, offset, n int64, flags int) error {
		if flags&unix.SYNC_FILE_RANGE_WAIT_AFTER != 0 {
			if offset != stored {
				t.Errorf("it waits from %d on, want %d", offset, stored)
			}
			stored += n
		} else {
			begun += n
		}
		return fails
	}}
	block := make([]byte, 32<<10)
	for written := int64(0); written < 10*piece; written += int64(len(block)) {
		if _, err := w.Write(block); err != nil {
			t.Fatal(err)
		}
		worst = max(worst, written-stored)
	}
	if worst > 2*piece || begun != 10*piece {
		t.Errorf("%d bytes were not stored at worst, and the disk began %d", worst, begun)
	}
	fails = unix.EINVAL // as where the filesystem cannot do it
	if _, err := w.Write(make([]byte, piece)); err != nil {
		t.Error(err)
	}
	for _, fails = range []error{unix.EIO, unix.ENOSPC, unix.EDQUOT} {
		var no *broken
		if _, err := w.Write(make([]byte, piece)); !errors.As(permanent(err), &no) || no.reason == "" {
			t.Errorf("%v ends as %v", fails, err)
		}
	}
}

// parts is a reader that gives what is sent.
type parts chan string

// Read implements io.Reader.
func (p parts) Read(b []byte) (int, error) { return copy(b, <-p), nil }

func TestASlowDiskIsNoSilentSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		quiet := time.AfterFunc(silence, cancel)
		sent := make(parts, 1)
		r := audible{sent, quiet}
		b := make([]byte, 10)
		for range 3 {
			sent <- "x"
			if n, err := r.Read(b); n != 1 || err != nil || ctx.Err() != nil {
				t.Fatal(n, err, ctx.Err())
			}
			<-time.After(2 * silence) // the disk writes
		}
		go func() { _, _ = r.Read(b) }()
		<-ctx.Done()
		sent <- "x"
	})
}
