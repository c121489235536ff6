package datamove

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/trust/trusttest"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/api"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

const id fleet.InstanceID = "abcdef"

// agent is the part of an agent that moves data.
type agent struct {
	*Mover
	dir  string
	node fleet.NodeID
	stop func()
}

// world is a store with two agents.
type world struct {
	t          *testing.T
	store      *store.Client
	from, to   *agent
	fence      store.Fence
	failing    atomic.Int64 // this many file requests fail in the middle
	listing    func()       // is called when the source sends a sign of progress
	sourceRoot string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: storetest.New(t)}
	rev, err := w.store.Commit(t.Context(), store.Txn{Writes: []store.Write{store.Create(keys.NodeSession("to"), fleet.NodeSession{Node: "to"})}})
	if err != nil {
		t.Fatal(err)
	}
	w.fence = store.FenceOf(keys.NodeSession("to"), rev)
	w.from, w.to = w.agent("from", t.TempDir()), w.agent("to", t.TempDir())
	mux := http.NewServeMux()
	api.HandleMoves(mux, w.from)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(&line{rw, w, strings.HasSuffix(r.URL.Path, "/file") && w.failing.Add(-1) >= 0}, r)
	}))
	t.Cleanup(server.Close)
	w.commit(store.Create(keys.Node("from"), fleet.Node{ID: "from", DataUUID: "from", AgentURL: server.URL}))
	w.sourceRoot = filepath.Join(w.from.dir, "static", "g", "g-1")
	return w
}

// line is a connection that can fail in the middle of a file.
type line struct {
	http.ResponseWriter
	*world
	fails bool
}

// Write implements http.ResponseWriter.
func (l *line) Write(b []byte) (int, error) {
	if !l.fails {
		return l.ResponseWriter.Write(b)
	}
	_, _ = l.ResponseWriter.Write(b[:min(len(b), 1000)])
	_ = http.NewResponseController(l.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// Flush implements http.Flusher.
func (l *line) Flush() {
	_ = http.NewResponseController(l.ResponseWriter).Flush()
	if l.listing != nil {
		l.listing()
	}
}

// agent starts the mover of a node over a data directory.
func (w *world) agent(node fleet.NodeID, dir string) *agent {
	m := New(Config{
		Store: w.store, Node: node, DataUUID: string(node), DataDir: dir, Workspace: workspace.New(dir, nil),
		Fence: func() (store.Fence, bool) { return w.fence, true }, Peers: trust.BySecret("s"), Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done, joined := make(chan struct{}), make(chan struct{})
	close(joined)
	go func() { defer close(done); m.Run(ctx, joined) }()
	a := &agent{Mover: m, dir: dir, node: node, stop: func() { cancel(); <-done }}
	w.t.Cleanup(a.stop)
	return a
}

func (w *world) commit(writes ...store.Write) {
	w.t.Helper()
	if _, err := w.store.Commit(context.Background(), store.Txn{Writes: writes}); err != nil {
		w.t.Fatal(err)
	}
}

// step writes a step of the move.
func (w *world) step(step move.Step) {
	w.t.Helper()
	have, err := store.Get(context.Background(), w.store, keys.Move(id))
	if err != nil && !errs.Is(err, errs.NotFound) {
		w.t.Fatal(err)
	}
	w.commit(store.Replace(keys.Move(id), move.Move{
		ID: "m", Instance: id, Name: "g-1", Group: "g", Source: "from", SourceUUID: "from", Target: "to", TargetUUID: "to", Generation: 3, Step: step,
	}, have.ModRev))
}

// copied waits until the copy has a state.
func (w *world) copied(state move.CopyState) move.Copy {
	w.t.Helper()
	var c move.Copy
	await.That(w.t, "a copy that is "+string(state), func() string {
		var err error
		c, err = store.Get(context.Background(), w.store, keys.Copy(id))
		return await.Unless(err == nil && c.State == state, "it is %+v: %v", c, err)
	})
	return c
}

// write writes the files of the instance on the source.
func (w *world) write(files map[string]string) {
	w.t.Helper()
	for name, text := range files {
		at := filepath.Join(w.sourceRoot, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o750); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o640); err != nil {
			w.t.Fatal(err)
		}
	}
}

// claims makes the source's directory one that the source has run.
func (w *world) claims(dir string, node fleet.NodeID, generation int64) *claim.Lock {
	w.t.Helper()
	l, err := claim.Take(dir, claim.Of(fleet.Placement{Instance: id, Node: node, Generation: generation, Epoch: 1}, string(node)))
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// files returns the regular files below a directory, without those of Orrery.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(d.Name(), ".orrery") {
			return err
		}
		b, err := os.ReadFile(p)
		rest, _ := filepath.Rel(dir, p)
		out[rest] = string(b)
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return out
}

func same(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

func TestADirectoryArrivesCompleteAndTheOldOneIsSetAside(t *testing.T) {
	w := newWorld(t)
	want := map[string]string{"world/level.dat": strings.Repeat("level", 100_000), "server.properties": "a=b", "empty": "", "plugins/x/config.yml": "x: 1"}
	w.write(want)
	if err := os.Symlink("world", filepath.Join(w.sourceRoot, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(w.sourceRoot, "plugins", "x"), 0o550); err != nil {
		t.Fatal(err)
	}
	w.claims(w.sourceRoot, "from", 3).Release()
	w.failing.Store(3) // broken transfers are continued
	w.step(move.Copying)
	c := w.copied(move.Verified)
	at := filepath.Join(w.to.dir, "static", "g", "g-1")
	if got := files(t, at); !same(got, want) || c.BytesDone != c.BytesTotal || c.FilesDone != c.FilesTotal || c.Shared {
		t.Errorf("it has %d files, and reports %+v", len(got), c)
	}
	link, _ := os.Readlink(filepath.Join(at, "link"))
	info, err := os.Stat(filepath.Join(at, "plugins", "x"))
	if link != "world" || err != nil || info.Mode().Perm() != 0o550 {
		t.Errorf("the link is %q, the directory %v: %v", link, info, err)
	}
	if _, err := os.Stat(filepath.Join(at, claim.FileName)); !os.IsNotExist(err) {
		t.Errorf("the lock file was copied: %v", err)
	}
	if got := files(t, w.sourceRoot); !same(got, want) {
		t.Errorf("the source has %d files before the end", len(got))
	}
	w.step(move.Done)
	await.That(t, "the source's copy to be set aside", func() string {
		_, err := os.Stat(w.sourceRoot)
		return await.Unless(os.IsNotExist(err), "it is there: %v", err)
	})
	aside, _ := filepath.Glob(filepath.Join(w.from.dir, "moved", "*-g-g-1"))
	if len(aside) != 1 || !same(files(t, aside[0]), want) {
		t.Errorf("set aside: %v", aside)
	}
	if err := os.Chmod(filepath.Join(aside[0], "plugins", "x"), 0o750); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(filepath.Join(at, "plugins", "x"), 0o750); err != nil {
		t.Error(err)
	}
}

func TestAnAgentThatWasKilledContinues(t *testing.T) {
	w := newWorld(t)
	want := map[string]string{"a": strings.Repeat("a", 300_000), "b": strings.Repeat("b", 300_000)}
	w.write(want)
	w.claims(w.sourceRoot, "from", 3).Release()
	w.failing.Store(1 << 40)
	w.step(move.Copying)
	await.That(t, "a part of a file", func() string {
		info, err := os.Stat(filepath.Join(w.to.dir, "moving", string(id), "tree", "a"))
		return await.Unless(err == nil && info.Size() > 0, "%v", err)
	})
	w.to.stop()
	w.failing.Store(0)
	again := w.agent("to", w.to.dir)
	w.copied(move.Verified)
	at := filepath.Join(w.to.dir, "static", "g", "g-1")
	if !same(files(t, at), want) {
		t.Error("the copy differs")
	}
	again.stop() // it dies before the report arrives: the next one finds the installed directory
	have, err := store.Get(context.Background(), w.store, keys.Copy(id))
	if err != nil {
		t.Fatal(err)
	}
	w.commit(store.Remove(keys.Copy(id), have.ModRev))
	w.agent("to", w.to.dir)
	if c := w.copied(move.Verified); c.Shared {
		t.Errorf("it reports %+v", c)
	}
}

func TestAFailedMoveLeavesTheTargetAsItWas(t *testing.T) {
	w := newWorld(t)
	w.write(map[string]string{"a": "new"})
	w.claims(w.sourceRoot, "from", 3).Release()
	w.step(move.Copying)
	w.copied(move.Verified)
	w.step(move.Canceled)
	await.That(t, "the end of the copy", func() string {
		_, err := os.Stat(filepath.Join(w.to.dir, "static", "g", "g-1"))
		_, staged := os.Stat(filepath.Join(w.to.dir, "moving", string(id)))
		return await.Unless(os.IsNotExist(err) && os.IsNotExist(staged), "%v, %v", err, staged)
	})
	if got := files(t, w.sourceRoot); got["a"] != "new" {
		t.Errorf("the source has %v", got)
	}
}

func TestADirectoryOfALaterOrRunningInstanceIsNotSetAside(t *testing.T) {
	w := newWorld(t)
	w.write(map[string]string{"a": "a"})
	mv := move.Move{ID: "m", Instance: id, Name: "g-1", Group: "g", Source: "from", SourceUUID: "from", Generation: 3, Step: move.Done}
	stays := func(what string) {
		t.Helper()
		w.from.release(context.Background(), mv)
		if files(t, w.sourceRoot)["a"] != "a" {
			t.Errorf("%s: the directory is gone", what)
		}
	}
	stays("without a lock file")
	lock := w.claims(w.sourceRoot, "from", 3)
	stays("while a process has the lock")
	lock.Release()
	w.claims(w.sourceRoot, "from", 4).Release()
	stays("after a later run")
}

func TestADirectoryThatBothNodesShareIsNotCopied(t *testing.T) {
	w := newWorld(t)
	w.write(map[string]string{"a": "a"})
	w.claims(w.sourceRoot, "from", 3).Release()
	if err := os.Symlink(filepath.Join(w.from.dir, "static"), filepath.Join(w.to.dir, "static")); err != nil {
		t.Fatal(err)
	}
	w.step(move.Copying)
	if c := w.copied(move.Verified); !c.Shared {
		t.Errorf("it reports %+v", c)
	}
	w.step(move.Canceled)
	w.to.stop()
	if files(t, w.sourceRoot)["a"] != "a" {
		t.Error("the shared directory is gone")
	}
}

func TestADeviceOrARunningServerIsNotMoved(t *testing.T) {
	w := newWorld(t)
	w.write(map[string]string{"a": "a"})
	w.step(move.Copying)
	w.copied(move.Verified)
	lock := w.claims(w.sourceRoot, "from", 3)
	defer lock.Release()
	unsent := func() error { return nil }
	if err := w.from.List(context.Background(), id, "m", io.Discard, unsent); !errs.Is(err, errs.Conflict) {
		t.Errorf("a used directory is listed: %v", err)
	}
	if err := w.from.List(context.Background(), id, "other", io.Discard, unsent); !errs.Is(err, errs.Conflict) {
		t.Errorf("another move is served: %v", err)
	}
	if _, err := w.from.Open(t.Context(), id, "m", "../../secrets", 0); err == nil {
		t.Error("a file outside of the directory is served")
	}
}

// still is a puller whose clock the test sets.
func still(now *time.Time) *puller {
	return New(Config{Now: func() time.Time { return *now }}).puller(move.Move{ID: "m", Instance: id})
}

func TestOnlyNewFiguresAreProgress(t *testing.T) {
	began := time.Unix(1_000, 0)
	now := began
	p := still(&now)
	says := func(what string, progress bool, edit func(*move.Copy)) {
		t.Helper()
		before := p.copied.At
		now = now.Add(time.Minute)
		p.change(edit)
		if got := p.copied.At; got.Equal(now) != progress || !progress && !got.Equal(before) {
			t.Errorf("%s: the time is %v, was %v, and it is %v", what, got, before, now)
		}
	}
	if !p.copied.At.Equal(began) {
		t.Errorf("the first report is of %v", p.copied.At)
	}
	says("a message", false, func(c *move.Copy) { c.Message = "x" })
	says("a listed file", true, func(c *move.Copy) { c.FilesTotal, c.BytesTotal = 1, 5 })
	says("bytes", true, func(c *move.Copy) { c.BytesDone = 3 })
	says("another attempt", false, func(c *move.Copy) { c.State, c.BytesDone, c.FilesTotal, c.BytesTotal = move.Listing, 0, 0, 0 })
	says("the same list again", false, func(c *move.Copy) { c.State, c.FilesTotal, c.BytesTotal = move.Fetching, 1, 5 })
	says("the same bytes again", false, func(c *move.Copy) { c.BytesDone = 3 })
	says("more bytes", true, func(c *move.Copy) { c.BytesDone = 4 })
	says("a complete file", true, func(c *move.Copy) { c.FilesDone = 1 })
}

func TestWaitingForOtherMovesIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Unix(1_000, 0)
		p := still(&now)
		for range maxPulls {
			p.turns <- struct{}{}
		}
		ticks, got := make(chan time.Time), make(chan bool, 1)
		go func() { got <- p.awaitTurn(t.Context(), ticks) }()
		for range 3 {
			now = now.Add(waitEvery)
			ticks <- now
			synctest.Wait()
			if !p.copied.At.Equal(now) {
				t.Errorf("it reports %v at %v", p.copied.At, now)
			}
		}
		<-p.turns
		if !<-got {
			t.Error("it did not get its turn")
		}
	})
}

func TestNamesThatAreNotUTF8AreRefused(t *testing.T) {
	for what, create := range map[string]func(dir string) error{
		"a file":      func(dir string) error { return os.WriteFile(filepath.Join(dir, "a\xff"), nil, 0o600) },
		"a directory": func(dir string) error { return os.Mkdir(filepath.Join(dir, "a\xff"), 0o700) },
		"a link":      func(dir string) error { return os.Symlink("a\xff", filepath.Join(dir, "link")) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			if err := create(dir); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			l := &lister{out: json.NewEncoder(io.Discard)}
			if err := l.walk(t.Context(), root); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "rename") {
				t.Errorf("the list ends with %v", err)
			}
		})
	}
}

func TestFilesAreNotChangedWhereAMoveWouldLoseTheChange(t *testing.T) {
	for _, c := range []struct {
		node       fleet.NodeID
		step       move.Step
		generation int64
		refused    bool
	}{
		{"from", move.Stopping, 3, false},
		{"from", move.Copying, 3, true},
		{"to", move.Copying, 2, true},
		{"from", move.Starting, 3, true},
		{"from", move.Done, 3, true},
		{"from", move.Done, 4, false}, // it runs here again
		{"to", move.Starting, 4, false},
		{"to", move.Done, 4, false},
		{"from", move.Failed, 3, false},
		{"from", move.Canceled, 3, false},
	} {
		m := New(Config{Node: c.node})
		if err := m.Editable(id, c.generation); err != nil {
			t.Errorf("without a move: %v", err)
		}
		m.moves[id] = &move.Move{ID: "m", Instance: id, Source: "from", Target: "to", Generation: 3, Step: c.step}
		if err := m.Editable(id, c.generation); (err != nil) != c.refused || err != nil && !errs.Is(err, errs.Conflict) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestOnlyTheAgentOfTheTargetGetsTheDirectory(t *testing.T) {
	w, authority := newWorld(t), trusttest.New(t)
	w.write(map[string]string{"world.dat": "data"})
	w.step(move.Copying)
	w.copied(move.Verified)
	mux := http.NewServeMux()
	api.HandleMoves(mux, w.from)
	from := pki.Identity{Service: pki.Agent, Name: "from"}
	own := authority.Peers(from)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: own.Guard(mux, pki.Agent), ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(own.Listener(l)) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	for caller, kind := range map[pki.Identity]errs.Kind{
		{Service: pki.Agent, Name: "to"}:    0,
		{Service: pki.Agent, Name: "other"}: errs.Denied,
		{Service: pki.Gateway}:              errs.Denied,
	} {
		transport := authority.Peers(caller).Transport(&http.Transport{DisableKeepAlives: true}, from)
		c := client.New(&http.Client{Transport: transport}, own.URLOf(l.Addr()), "")
		for what, read := range map[string]func() (io.ReadCloser, error){
			"list": func() (io.ReadCloser, error) { return c.MovedList(t.Context(), id, "m") },
			"file": func() (io.ReadCloser, error) { return c.MovedFile(t.Context(), id, "m", "world.dat", 0) },
		} {
			body, err := read()
			if err == nil {
				_ = body.Close()
			}
			if kind == 0 && err != nil || kind != 0 && errs.KindOf(err) != kind {
				t.Errorf("%s by %s: %v", what, caller.Path(), err)
			}
		}
	}
}
