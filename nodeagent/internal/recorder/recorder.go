// Package recorder brings crashes to the store, each exactly once.
//
//	a run ended ──▶ a file each ──▶ crashes/<id> and crash-tails/<id> ──▶ the file goes
//
// Invariants:
//   - A crash that was taken is on the disk before Take returns, and stays there until
//     the store has it: neither an agent that is killed nor a store that is away loses it.
//   - Both records are created in one transaction under the node's session. One that is
//     there already was written by an attempt whose answer was lost: it is done.
//   - A crash that the store refuses for its size is written without its output.
//   - At most MaxWaiting crashes wait; the oldest make room. One that cannot be written
//     keeps none of the others waiting.
package recorder

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// MaxWaiting is how many crashes wait for the store at most.
const MaxWaiting = 64

const (
	// commitTimeout bounds one attempt.
	commitTimeout = 3 * time.Second
	firstRetry    = 50 * time.Millisecond
	lastRetry     = 5 * time.Second
	suffix        = ".json"
	partial       = ".tmp"
)

// Config is what a recorder needs; all of it is required.
type Config struct {
	Store *store.Client
	// Dir is where crashes wait. It is made when it is missing.
	Dir string
	// Fence proves the node's session; ok is false while there is none.
	Fence func() (f store.Fence, ok bool)
	Log   *slog.Logger
}

// Recorder takes crashes and writes them. Make it with New.
type Recorder struct {
	cfg  Config
	kick chan struct{}

	mu sync.Mutex
	// waiting are the crashes that the store does not have yet, oldest first, by id.
	waiting []string
}

// entry is what a file holds.
type entry struct {
	Crash fleet.Crash     `json:"crash"`
	Tail  fleet.CrashTail `json:"tail"`
}

// New takes up what an earlier agent left. Unavailable when the directory cannot be used.
func New(cfg Config) (*Recorder, error) {
	r := &Recorder{cfg: cfg, kick: make(chan struct{}, 1)}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, errs.As(errs.Unavailable, "recorder.New", err)
	}
	files, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, errs.As(errs.Unavailable, "recorder.New", err)
	}
	at := map[string]time.Time{}
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), suffix)
		fi, err := f.Info()
		if !ok || err != nil { // a write that was cut short
			_ = os.Remove(filepath.Join(cfg.Dir, f.Name()))
			continue
		}
		at[id] = fi.ModTime()
		r.waiting = append(r.waiting, id)
	}
	slices.SortFunc(r.waiting, func(a, b string) int { return cmp.Or(at[a].Compare(at[b]), strings.Compare(a, b)) })
	return r, nil
}

// Take keeps a crash until the store has it. A disk that takes no file costs the
// record and nothing else.
func (r *Recorder) Take(c fleet.Crash, tail fleet.CrashTail) {
	b, err := json.Marshal(entry{c, tail})
	if err == nil {
		path := r.path(c.ID)
		err = errors.Join(os.WriteFile(path+partial, b, 0o600), os.Rename(path+partial, path))
	}
	if err != nil {
		r.cfg.Log.Error("a crash is not recorded", "instance", string(c.Instance), "reason", string(c.Reason), "error", err)
		return
	}
	r.mu.Lock()
	if !slices.Contains(r.waiting, c.ID) {
		r.waiting = append(r.waiting, c.ID)
	}
	var dropped []string
	for len(r.waiting) > MaxWaiting {
		dropped, r.waiting = append(dropped, r.waiting[0]), r.waiting[1:]
	}
	r.mu.Unlock()
	for _, id := range dropped {
		r.cfg.Log.Warn("too many crashes wait for the store: the oldest is dropped", "crash", id)
		r.discard(id)
	}
	r.Kick()
}

// Kick has what waits tried again at once: there is a session.
func (r *Recorder) Kick() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// Waiting is how many crashes the store does not have yet.
func (r *Recorder) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting)
}

// Run writes what waits until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	for ctx.Err() == nil {
		r.drain(ctx)
		select {
		case <-ctx.Done():
		case <-r.kick:
		}
	}
}

// drain writes until nothing waits, or there is no session to write under. One that
// cannot be written waits until the others had their turn.
func (r *Recorder) drain(ctx context.Context) {
	retry, failed := firstRetry, map[string]bool{}
	for {
		id, ok := r.next(failed)
		if !ok || ctx.Err() != nil {
			return
		}
		fence, ok := r.cfg.Fence()
		if !ok {
			return // Kick follows the session
		}
		if err := r.write(ctx, id, fence); err != nil {
			if retry == firstRetry && ctx.Err() == nil {
				r.cfg.Log.Warn("crashes not recorded yet, trying on", "count", r.Waiting(), "crash", id, "error", err)
			}
			failed[id] = true
			retry = r.rest(ctx, retry)
			continue
		}
		r.done(id)
	}
}

// rest waits before the next attempt, until somebody kicks at most, and tells how long to
// wait after the one that follows.
func (r *Recorder) rest(ctx context.Context, d time.Duration) time.Duration {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return min(2*d, lastRetry)
	case <-r.kick:
		return firstRetry
	case <-ctx.Done():
		return d
	}
}

// next is the oldest that waits and has not failed since all others had their turn.
func (r *Recorder) next(failed map[string]bool) (id string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		return "", false
	}
	for _, id := range r.waiting {
		if !failed[id] {
			return id, true
		}
	}
	clear(failed)
	return r.waiting[0], true
}

// write creates the records of one crash; nil also when there is nothing to write any more.
func (r *Recorder) write(ctx context.Context, id string, fence store.Fence) error {
	const op = "recorder.write"
	b, err := os.ReadFile(r.path(id))
	if errors.Is(err, fs.ErrNotExist) { // it was dropped meanwhile
		return nil
	}
	if err != nil {
		return errs.As(errs.Unavailable, op, err)
	}
	var e entry
	if err := json.Unmarshal(b, &e); err != nil || e.Crash.ID != id {
		r.cfg.Log.Error("a crash that waited for the store cannot be read and is dropped", "crash", id, "error", err)
		return nil
	}
	err = r.create(ctx, fence, e)
	if errs.Is(err, errs.TooLarge) {
		r.cfg.Log.Error("the store refuses the record of a crash for its size: its output is left out", "instance", string(e.Crash.Instance), "crash", id, "error", err)
		e.Tail.Text, e.Crash.Last = nil, nil
		err = r.create(ctx, fence, e)
	}
	return errs.Wrap(op, err)
}

// create writes the records of one crash; nil also when they exist.
func (r *Recorder) create(ctx context.Context, fence store.Fence, e entry) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	_, err := r.cfg.Store.Commit(ctx, store.Txn{
		Fences: []store.Fence{fence},
		Writes: []store.Write{store.Create(store.CrashKey(e.Crash.ID), e.Crash), store.Create(store.CrashTailKey(e.Crash.ID), e.Tail)},
	})
	if errs.Is(err, errs.AlreadyExists) {
		return nil
	}
	return err
}

func (r *Recorder) done(id string) {
	r.discard(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(w string) bool { return w == id })
}

func (r *Recorder) discard(id string) {
	if err := os.Remove(r.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.cfg.Log.Warn("a recorded crash's file is not removed", "crash", id, "error", err)
	}
}

func (r *Recorder) path(id string) string { return filepath.Join(r.cfg.Dir, id+suffix) }
