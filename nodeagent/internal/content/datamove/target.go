package datamove

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/pki"
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
	// piece is the number of bytes that the source hashes between two signs of progress. Of each file
	// the target has at most two pieces that the disk has not written yet.
	piece = 8 << 20
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
	return client.New(&http.Client{Transport: p.sources.To(pki.Identity{Service: pki.Agent, Name: string(p.mv.Source)})}, n.AgentURL, p.cfg.Peers.Token()), nil
}

// list returns the entries of the directory. It reads the list of an earlier attempt if that is
// complete.
func (p *puller) list(ctx context.Context, source *client.Client) (entries []client.MovedEntry, absent bool, err error) {
	dir := p.staging(p.mv.Instance)
	at := filepath.Join(dir, "list-"+p.mv.ID)
	if err := p.begin(dir); err != nil {
		return nil, false, err
	}
	p.restart()
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
	entries, end, err := readList(f, func(client.MovedLine) {})
	if err != nil {
		_ = os.Remove(at)
		return nil, false, err
	}
	var bytes int64
	for _, e := range entries {
		bytes += e.Size
	}
	p.change(func(c *move.Copy) {
		c.State, c.Message, c.BytesTotal, c.FilesTotal = move.Fetching, "", bytes, len(entries)
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
	p.change(func(c *move.Copy) {
		c.State, c.Message = move.Listing, fmt.Sprintf("node %s lists and hashes the files", p.mv.Source)
	})
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
	// No limit of silence: the disk of the source may be slow, and the stall of a move is bounded.
	_, _, err = readList(io.TeeReader(body, f), func(line client.MovedLine) {
		p.change(func(c *move.Copy) {
			if line.MovedEntry != nil {
				c.FilesTotal++
			}
			c.BytesTotal = max(c.BytesTotal, line.Hashed)
		})
	})
	if err == nil {
		err = errs.WrapAs(errs.Unavailable, "datamove.fetchList", errors.Join(f.Sync(), os.Rename(at+".part", at)))
	}
	return permanent(err)
}

// lost reports whether an error says that the disk did not store what was written.
func lost(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// permanent turns the errors that no retry repairs into broken.
func permanent(err error) error {
	switch {
	case errs.Is(err, errs.TooLarge), errs.Is(err, errs.Invalid):
		return &broken{fleet.ReasonPrepareFailed, errs.MessageOf(err)}
	case errors.Is(err, unix.EIO): // another attempt could verify what is only in memory
		return &broken{fleet.ReasonPrepareFailed, "the disk of the target failed: " + clip(err.Error())}
	case lost(err):
		return &broken{fleet.ReasonDiskFull, fleet.ReasonDiskFull.Text()}
	}
	return err
}

// readList reads a list and checks it.
func readList(r io.Reader, each func(client.MovedLine)) (entries []client.MovedEntry, end client.MovedEnd, err error) {
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
		case line.End == nil && line.MovedEntry == nil && line.Hashed > 0:
			each(line)
			continue
		case line.End != nil || line.MovedEntry == nil || !fs.ValidPath(line.Path) || len(entries) >= move.MaxFiles:
			return nil, end, errs.New(errs.Unavailable, "the source sent a wrong list")
		}
		entries = append(entries, *line.MovedEntry)
		each(line)
	}
	if err := lines.Err(); err != nil {
		return nil, end, errs.WrapAs(errs.Unavailable, "datamove.readList", err)
	}
	return nil, end, errs.New(errs.Unavailable, "the list of the source ended too early")
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
	p.say(fmt.Sprintf("node %s flushes the files to its disk", p.mv.Target))
	return permanent(p.cfg.Workspace.Install(ctx, tree, dir, p.settle))
}
