package datamove

import (
	"context"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// puller fetches one directory.
type puller struct {
	*Mover
	mv   move.Move
	kick chan struct{}

	mu      sync.Mutex
	copied  move.Copy
	settled int     // entries of this attempt that got their mode, and files that were flushed
	most    figures // since the puller exists
	latest  figures // since the latest repetition that may count
	grew    bool    // most has grown since then
}

// figures are the largest figures that a copy has reached.
type figures struct {
	bytesDone, bytesTotal int64
	filesDone, filesTotal int
	settled               int
}

// reach takes the figures of c, and reports whether one of them is larger than before.
func (f *figures) reach(c move.Copy, settled int) bool {
	before := *f
	f.bytesDone, f.bytesTotal = max(f.bytesDone, c.BytesDone), max(f.bytesTotal, c.BytesTotal)
	f.filesDone, f.filesTotal = max(f.filesDone, c.FilesDone), max(f.filesTotal, c.FilesTotal)
	f.settled = max(f.settled, settled)
	return *f != before
}

// change changes what is reported. Only a figure that grows is progress, which renews the time of the
// report. Without progress, the enforcer sees that the copy stalls.
func (p *puller) change(edit func(*move.Copy)) {
	p.mu.Lock()
	edit(&p.copied)
	if p.most.reach(p.copied, p.settled) {
		p.grew = true
	}
	if p.latest.reach(p.copied, p.settled) {
		p.copied.At = p.cfg.Now().UTC()
	}
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// repeats is called when work begins that was done before, such as hashing what an earlier attempt has
// fetched. That work takes long too, so it is progress, but only if a figure was larger than ever
// since the last call. Attempts that only repeat each other are a stall. mu is held.
func (p *puller) repeats() {
	if p.grew {
		p.latest, p.grew = figures{}, false
	}
}

// restart begins another attempt, which lists or verifies from the start on.
func (p *puller) restart() {
	p.change(func(c *move.Copy) {
		p.repeats()
		p.settled, c.BytesDone, c.BytesTotal, c.FilesDone, c.FilesTotal = 0, 0, 0, 0, 0
	})
}

// settle counts a step of finishing or flushing the files.
func (p *puller) settle() {
	p.change(func(*move.Copy) { p.settled++ })
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
