package datamove

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/content/claim"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
)

const (
	// fetchers is the number of files that are fetched concurrently for one move.
	fetchers = 4
	// wrongHashes is how often a file may arrive with a wrong hash before the source lists its
	// files again.
	wrongHashes = 3
	// spareBytes is what must stay free on the disk.
	spareBytes = 256 << 20
	// firstRetry and lastRetry bound the pause after a failed attempt.
	firstRetry, lastRetry = 250 * time.Millisecond, 15 * time.Second
	// reportEvery is the shortest time between two reports of progress.
	reportEvery = time.Second
	// silence is how long the source may send nothing before the call is repeated.
	silence = time.Minute
	// waitEvery is how often a move that waits for its turn is reported as not stalled.
	waitEvery = time.Minute
	// maxLine bounds a line of a list, in bytes.
	maxLine = 64 << 10
)

// broken is an error that no retry repairs.
type broken struct {
	reason  fleet.Reason
	message string
}

// Error implements error.
func (b *broken) Error() string { return b.message }

// pull fetches the directory of an instance that comes to this node, until it is verified and
// reported, or ctx ends.
func (m *Mover) pull(ctx context.Context, mv move.Move) {
	p := m.puller(mv)
	reporting, stop := context.WithCancel(ctx)
	var reporter sync.WaitGroup
	reporter.Go(func() { p.report(reporting) })
	defer reporter.Wait()
	defer stop()
	if p.complete(ctx) {
		<-ctx.Done() // the reporter writes the end until the move has its next step
	}
}

func (m *Mover) puller(mv move.Move) *puller {
	return &puller{Mover: m, mv: mv, kick: make(chan struct{}, 1), copied: move.Copy{
		Move: mv.ID, Instance: mv.Instance, Node: m.cfg.Node, DataUUID: m.cfg.DataUUID, State: move.Listing, At: m.cfg.Now().UTC(),
	}}
}

// awaitTurn waits until fewer than maxPulls other moves are fetched. It returns false if ctx ends
// before. Waiting is no stall, so the time of the report is renewed at each tick.
func (p *puller) awaitTurn(ctx context.Context, ticks <-chan time.Time) bool {
	for {
		select {
		case p.turns <- struct{}{}:
			p.change(func(c *move.Copy) { c.At = p.cfg.Now().UTC() })
			return true
		case <-ticks:
			p.change(func(c *move.Copy) { c.At = p.cfg.Now().UTC() })
		case <-ctx.Done():
			return false
		}
	}
}

// complete makes the directory complete, or finds that this is impossible. It returns false if ctx
// ends before.
func (p *puller) complete(ctx context.Context) bool {
	p.say("it waits until other moves to the node have ended")
	ticks := time.NewTicker(waitEvery)
	defer ticks.Stop()
	if !p.awaitTurn(ctx, ticks.C) {
		return false
	}
	defer func() { <-p.turns }()
	for retry := firstRetry; ; retry = min(2*retry, lastRetry) {
		p.say("")
		err := p.attempt(ctx)
		if ctx.Err() != nil {
			return false
		}
		var no *broken
		switch {
		case err == nil:
			p.change(func(c *move.Copy) { c.State, c.Message = move.Verified, "" })
		case errors.As(err, &no):
			p.change(func(c *move.Copy) { c.State, c.Reason, c.Message = move.Broken, no.reason, no.message })
		default:
			p.cfg.Log.Warn("cannot copy the directory of a moved instance: retrying", "instance", p.mv.Name, "from", p.mv.Source, "error", err)
			p.say(whyOf(err))
			if !pause.Jittered(ctx, retry) {
				return false
			}
			continue
		}
		return true
	}
}

// whyOf returns the message of an error for people.
func whyOf(err error) string {
	if text := errs.MessageOf(err); text != errs.MessageOf(nil) {
		return text
	}
	return "node or disk problem: " + clip(err.Error())
}

func clip(text string) string {
	const most = 300
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// puller fetches one directory.
type puller struct {
	*Mover
	mv   move.Move
	kick chan struct{}

	mu     sync.Mutex
	copied move.Copy
	most   figures
}

// figures are the largest figures that a copy has reached.
type figures struct {
	bytesDone, bytesTotal int64
	filesDone, filesTotal int
}

// reach takes the figures of c, and reports whether one of them is larger than ever before.
func (f *figures) reach(c move.Copy) bool {
	before := *f
	f.bytesDone, f.bytesTotal = max(f.bytesDone, c.BytesDone), max(f.bytesTotal, c.BytesTotal)
	f.filesDone, f.filesTotal = max(f.filesDone, c.FilesDone), max(f.filesTotal, c.FilesTotal)
	return *f != before
}

// change changes what is reported. Only a figure that is larger than ever before is progress: an
// attempt that repeats what an earlier one did leaves the time as it is, so that the enforcer sees
// that the copy stalls.
func (p *puller) change(edit func(*move.Copy)) {
	p.mu.Lock()
	edit(&p.copied)
	if p.most.reach(p.copied) {
		p.copied.At = p.cfg.Now().UTC()
	}
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

func (p *puller) say(text string) {
	p.change(func(c *move.Copy) { c.Message = text })
}

// report writes the progress until ctx ends: at once, and then not more often than every reportEvery,
// except for its end.
func (p *puller) report(ctx context.Context) {
	for {
		select {
		case <-p.kick:
		case <-ctx.Done():
			return
		}
		for {
			p.mu.Lock()
			next := p.copied
			p.mu.Unlock()
			if p.write(ctx, next) == nil || !pause.Jittered(ctx, reportEvery) {
				break
			}
		}
		p.mu.Lock()
		end := p.copied.State == move.Verified || p.copied.State == move.Broken
		p.mu.Unlock()
		if !end {
			timer := time.NewTimer(reportEvery)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}
}

// write replaces the report, provided that the move is as the agent knows it.
func (p *puller) write(ctx context.Context, next move.Copy) error {
	fence, ok := p.cfg.Fence()
	if !ok {
		return errs.New(errs.Unavailable, "the node has no session")
	}
	key := keys.Copy(p.mv.Instance)
	have, err := store.Get(ctx, p.cfg.Store, key)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	p.Mover.mu.Lock()
	mv := p.moves[p.mv.Instance]
	p.Mover.mu.Unlock()
	if mv == nil || mv.ID != p.mv.ID {
		return nil // the work for it ends
	}
	_, err = p.cfg.Store.Commit(ctx, store.Txn{
		Fences: []store.Fence{fence}, Guards: []store.Guard{store.Unchanged(keys.Move(mv.Instance), mv.ModRev)},
		Writes: []store.Write{store.Replace(key, next, have.ModRev)},
	})
	return err
}

// state is the content of the state file.
type state struct {
	Move string `json:"move"`
}

func (m *Mover) statePath(mv move.Move) string {
	return filepath.Join(m.staging(mv.Instance), "state")
}

// installing reports whether the tree of a move was being installed, or is.
func (m *Mover) installing(mv move.Move) bool {
	b, err := os.ReadFile(m.statePath(mv))
	var s state
	return err == nil && json.Unmarshal(b, &s) == nil && s.Move == mv.ID
}

// attempt continues the copy. A nil error means that the directory is complete at its final path.
func (p *puller) attempt(ctx context.Context) error {
	dir := p.cfg.Workspace.StaticDir(p.mv.Group, p.mv.Name)
	if marked(dir) == p.mv.ID { // it is installed, or the nodes share it
		shared := !p.installing(p.mv)
		p.change(func(c *move.Copy) { c.Shared = shared })
		return nil
	}
	source, err := p.source(ctx)
	if err != nil {
		return err
	}
	entries, absent, err := p.list(ctx, source)
	if err != nil || absent {
		return err
	}
	if marked(dir) == p.mv.ID { // the source has just marked it
		p.change(func(c *move.Copy) { c.Shared = true })
		return nil
	}
	if err := p.fetch(ctx, source, entries); err != nil {
		return err
	}
	return p.install(ctx, dir)
}

// source returns a client of the source's agent.
func (p *puller) source(ctx context.Context) (*client.Client, error) {
	n, err := store.Get(ctx, p.cfg.Store, keys.Node(p.mv.Source))
	if err != nil {
		return nil, errs.Wrap("datamove.source", err)
	}
	return client.New(p.cfg.HTTP, n.AgentURL, p.cfg.Secret), nil
}

// list returns the entries of the directory. It reads the list of an earlier attempt if that is
// complete.
func (p *puller) list(ctx context.Context, source *client.Client) (entries []client.MovedEntry, absent bool, err error) {
	dir := p.staging(p.mv.Instance)
	at := filepath.Join(dir, "list-"+p.mv.ID)
	if err := p.begin(dir); err != nil {
		return nil, false, err
	}
	if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
		if err := p.fetchList(ctx, source, at); err != nil {
			return nil, false, err
		}
	}
	f, err := os.Open(at)
	if err != nil {
		return nil, false, errs.WrapAs(errs.Unavailable, "datamove.list", err)
	}
	defer f.Close()
	entries, end, err := readList(f, func(client.MovedEntry) {})
	if err != nil {
		_ = os.Remove(at)
		return nil, false, err
	}
	var bytes int64
	for _, e := range entries {
		bytes += e.Size
	}
	p.change(func(c *move.Copy) {
		c.State, c.BytesTotal, c.FilesTotal, c.BytesDone, c.FilesDone = move.Fetching, bytes, len(entries), 0, 0
	})
	return entries, end.Absent, nil
}

// begin creates the directory for the files of the move. It removes those of an earlier move.
func (p *puller) begin(dir string) error {
	id := filepath.Join(dir, "id")
	if b, err := os.ReadFile(id); err == nil && string(b) == p.mv.ID {
		return nil
	}
	if err := workspace.RemoveTree(dir); err != nil {
		return err
	}
	return errs.WrapAs(errs.Unavailable, "datamove.begin", errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(id, []byte(p.mv.ID), 0o600)))
}

// fetchList stores the source's list.
func (p *puller) fetchList(ctx context.Context, source *client.Client, at string) error {
	p.change(func(c *move.Copy) { c.State, c.BytesTotal, c.FilesTotal = move.Listing, 0, 0 })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := source.MovedList(ctx, p.mv.Instance, p.mv.ID)
	if err != nil {
		return permanent(err)
	}
	defer body.Close()
	f, err := os.Create(at + ".part")
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.fetchList", err)
	}
	defer f.Close()
	// No limit of silence: hashing one large file may take long, and the stall of a move is bounded.
	_, _, err = readList(io.TeeReader(body, f), func(e client.MovedEntry) {
		p.change(func(c *move.Copy) { c.BytesTotal += e.Size; c.FilesTotal++ })
	})
	if err == nil {
		err = errs.WrapAs(errs.Unavailable, "datamove.fetchList", errors.Join(f.Sync(), os.Rename(at+".part", at)))
	}
	return permanent(err)
}

// permanent turns the errors that no retry repairs into broken.
func permanent(err error) error {
	switch {
	case errs.Is(err, errs.TooLarge), errs.Is(err, errs.Invalid):
		return &broken{fleet.ReasonPrepareFailed, errs.MessageOf(err)}
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return &broken{fleet.ReasonDiskFull, fleet.ReasonDiskFull.Text()}
	}
	return err
}

// readList reads a list and checks it.
func readList(r io.Reader, each func(client.MovedEntry)) (entries []client.MovedEntry, end client.MovedEnd, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 4096), maxLine)
	for lines.Scan() {
		var line client.MovedLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, end, errs.WrapAs(errs.Unavailable, "datamove.readList", err)
		}
		switch {
		case line.End != nil && line.End.Error != "":
			return nil, end, errs.New(errs.Invalid, "%s", line.End.Error)
		case line.End != nil && line.End.Entries == len(entries):
			slices.SortFunc(entries, func(a, b client.MovedEntry) int { return strings.Compare(a.Path, b.Path) })
			return entries, *line.End, nil
		case line.End != nil || line.MovedEntry == nil || !fs.ValidPath(line.Path) || len(entries) >= move.MaxFiles:
			return nil, end, errs.New(errs.Unavailable, "the source sent a wrong list")
		}
		entries = append(entries, *line.MovedEntry)
		each(*line.MovedEntry)
	}
	if err := lines.Err(); err != nil {
		return nil, end, errs.WrapAs(errs.Unavailable, "datamove.readList", err)
	}
	return nil, end, errs.New(errs.Unavailable, "the list of the source ended too early")
}

// fetch makes the tree complete.
func (p *puller) fetch(ctx context.Context, source *client.Client, entries []client.MovedEntry) error {
	at := filepath.Join(p.staging(p.mv.Instance), "tree")
	if err := os.MkdirAll(at, 0o700); err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.fetch", err)
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.fetch", err)
	}
	defer root.Close()
	if err := errors.Join(root.Chmod(".", 0o700), prune(root, entries)); err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.fetch", err)
	}
	if err := p.room(root, entries); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Kind != client.MovedDir || e.Path == "." {
			continue
		}
		err := root.Mkdir(e.Path, 0o700)
		if errors.Is(err, fs.ErrExist) {
			err = root.Chmod(e.Path, 0o700)
		}
		if err != nil {
			return permanent(errs.WrapAs(errs.Unavailable, "datamove.fetch", err))
		}
	}
	if err := p.fetchFiles(ctx, source, root, entries); err != nil {
		return permanent(err)
	}
	// The directories come last and the deepest first, because they may become read-only.
	for _, e := range slices.Backward(entries) {
		if err := finish(root, e); err != nil {
			return permanent(errs.WrapAs(errs.Unavailable, "datamove.fetch", err))
		}
	}
	return nil
}

// prune removes what an earlier attempt has fetched and the list does not have, or has as another
// kind.
func prune(root *os.Root, entries []client.MovedEntry) error {
	listed := make(map[string]client.MovedKind, len(entries))
	for _, e := range entries {
		listed[e.Path] = e.Kind
	}
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." {
			return err
		}
		kind := listed[p]
		if d.IsDir() && kind == client.MovedDir {
			return root.Chmod(p, 0o700) // before WalkDir reads it
		}
		if d.Type().IsRegular() && kind == client.MovedFile || !d.IsDir() && (kind == client.MovedLink || kind == client.MovedPipe) {
			return nil
		}
		if err := root.RemoveAll(p); err != nil {
			return err
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}

// room checks that the disk has room for the missing files.
func (p *puller) room(root *os.Root, entries []client.MovedEntry) error {
	var st unix.Statfs_t
	if err := unix.Statfs(root.Name(), &st); err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.room", err)
	}
	missing := int64(0)
	for _, e := range entries {
		missing += e.Size
		if info, err := root.Lstat(e.Path); err == nil && e.Kind == client.MovedFile {
			missing -= min(info.Size(), e.Size)
		}
	}
	if free := int64(st.Bavail) * st.Bsize; missing+spareBytes > free {
		return &broken{fleet.ReasonDiskFull, fmt.Sprintf("node %s has %d MiB free on its disk and needs %d MiB for the data", p.cfg.Node, free>>20, (missing+spareBytes)>>20)}
	}
	return nil
}

func (p *puller) fetchFiles(ctx context.Context, source *client.Client, root *os.Root, entries []client.MovedEntry) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fetchers)
	for _, e := range entries {
		if e.Kind != client.MovedFile {
			p.change(func(c *move.Copy) { c.FilesDone++ })
			continue
		}
		g.Go(func() error {
			if err := p.fetchFile(ctx, source, root, e); err != nil {
				return err
			}
			p.change(func(c *move.Copy) { c.FilesDone++ })
			return nil
		})
	}
	return g.Wait()
}

// fetchFile makes a file complete and verifies it. It continues a part of an earlier attempt.
func (p *puller) fetchFile(ctx context.Context, source *client.Client, root *os.Root, e client.MovedEntry) error {
	if info, err := root.Lstat(e.Path); err == nil && info.Mode().IsRegular() {
		if err := root.Chmod(e.Path, 0o600); err != nil {
			return errs.WrapAs(errs.Unavailable, "datamove.fetchFile", err)
		}
	}
	for range wrongHashes {
		sum, err := p.fetchRest(ctx, source, root, e)
		if err != nil || sum == e.SHA256 {
			return err
		}
		p.cfg.Log.Warn("a file of a moved instance has a wrong hash: fetching it again", "instance", p.mv.Name, "file", e.Path)
		p.change(func(c *move.Copy) { c.BytesDone -= e.Size })
		if err := root.Remove(e.Path); err != nil {
			return errs.WrapAs(errs.Unavailable, "datamove.fetchFile", err)
		}
	}
	// The file may have changed since it was listed.
	_ = os.Remove(filepath.Join(p.staging(p.mv.Instance), "list-"+p.mv.ID))
	return errs.New(errs.Unavailable, "%s arrived with another content than the source has listed: the files are listed again", e.Path)
}

// fetchRest appends what is missing to a file, and returns the hash of the whole file.
func (p *puller) fetchRest(ctx context.Context, source *client.Client, root *os.Root, e client.MovedEntry) (string, error) {
	const op = "datamove.fetchRest"
	f, err := root.OpenFile(e.Path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", errs.WrapAs(errs.Unavailable, op, err)
	}
	defer f.Close()
	h := sha256.New()
	have, err := io.Copy(h, io.LimitReader(reader{ctx, f}, e.Size))
	if err != nil {
		return "", errs.WrapAs(errs.Unavailable, op, err)
	}
	p.change(func(c *move.Copy) { c.BytesDone += have })
	if have < e.Size {
		got, err := p.append(ctx, source, f, h, e, have)
		if err != nil {
			p.change(func(c *move.Copy) { c.BytesDone -= have + got })
			return "", err
		}
	}
	if err := f.Truncate(e.Size); err != nil {
		return "", errs.WrapAs(errs.Unavailable, op, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// append fetches a file from an offset on. It ends when the source is silent for too long.
func (p *puller) append(ctx context.Context, source *client.Client, f *os.File, h io.Writer, e client.MovedEntry, offset int64) (got int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	body, err := source.MovedFile(ctx, p.mv.Instance, p.mv.ID, e.Path, offset)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	out := io.MultiWriter(f, h, progress(func(n int) {
		quiet.Reset(silence)
		got += int64(n)
		p.change(func(c *move.Copy) { c.BytesDone += int64(n) })
	}))
	_, err = io.Copy(out, io.LimitReader(body, e.Size-offset))
	if err == nil && got < e.Size-offset {
		err = errs.New(errs.Unavailable, "%s ended too early", e.Path)
	}
	return got, errs.WrapAs(errs.Unavailable, "datamove.append", err)
}

// progress is a writer that counts.
type progress func(int)

// Write implements io.Writer.
func (p progress) Write(b []byte) (int, error) {
	p(len(b))
	return len(b), nil
}

// finish creates links and pipes, and sets the owner, mode and time of an entry.
func finish(root *os.Root, e client.MovedEntry) error {
	switch e.Kind {
	case client.MovedLink:
		_ = root.Remove(e.Path)
		if err := root.Symlink(e.Target, e.Path); err != nil {
			return err
		}
	case client.MovedPipe:
		_ = root.Remove(e.Path)
		if err := mkfifo(root, e.Path); err != nil {
			return err
		}
	case client.MovedFile, client.MovedDir:
	}
	if os.Geteuid() == 0 {
		if err := root.Lchown(e.Path, e.UID, e.GID); err != nil {
			return err
		}
	}
	if e.Kind == client.MovedLink {
		return nil
	}
	at := time.Unix(0, e.ModifiedNanos)
	return errors.Join(root.Chtimes(e.Path, at, at), root.Chmod(e.Path, fs.FileMode(e.Mode)&modeBits))
}

func mkfifo(root *os.Root, p string) error {
	dir, err := root.Open(path.Dir(p))
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Mkfifoat(int(dir.Fd()), path.Base(p), 0o600)
}

// install moves the complete tree to its final path. A directory of an earlier stay of the instance
// is set aside.
func (p *puller) install(ctx context.Context, dir string) error {
	tree := filepath.Join(p.staging(p.mv.Instance), "tree")
	if _, held, _, err := claim.Holder(dir); err != nil || held {
		if held {
			return &broken{fleet.ReasonDirectoryTaken, fmt.Sprintf("processes use %s on node %s: end them first", dir, p.cfg.Node)}
		}
		return err
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.install", err)
	}
	info, err := root.Stat(".")
	if err == nil {
		err = root.Chmod(".", info.Mode()|0o700) // the mark needs it
	}
	err = errors.Join(err, mark(root, p.mv.ID), root.Close())
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.install", err)
	}
	b, err := json.Marshal(state{Move: p.mv.ID})
	if err != nil {
		return errs.WrapAs(errs.Internal, "datamove.install", err)
	}
	if err := os.WriteFile(p.statePath(p.mv), b, 0o600); err != nil {
		return errs.WrapAs(errs.Unavailable, "datamove.install", err)
	}
	if err := p.cfg.Workspace.SetAside(dir, p.aside(p.mv)); err != nil {
		return err
	}
	return p.cfg.Workspace.Install(ctx, tree, dir)
}
