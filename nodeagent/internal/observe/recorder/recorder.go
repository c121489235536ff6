// Package recorder writes crashes to the store, each exactly once.
//
//	a run ended ──▶ a file per crash ──▶ crashes/<id> and crash-tails/<id> ──▶ the file is deleted
//
// Invariants:
//   - A crash is on the disk before Record returns, and stays there until it is in the store.
//     It survives an agent that is killed and a store that is unavailable.
//   - Both records are created in one transaction under the node's session. If they exist,
//     an earlier attempt succeeded without its answer arriving.
//   - A crash that is too large for the store is written without its output.
//   - At most MaxWaiting crashes wait; the oldest are dropped. A crash that cannot be written
//     does not block the others.
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
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// MaxWaiting bounds the crashes that wait for the store.
const MaxWaiting = 64

const (
	// commitTimeout bounds one attempt.
	commitTimeout = 3 * time.Second
	firstRetry    = 50 * time.Millisecond
	lastRetry     = 5 * time.Second
	suffix        = ".json"
	partial       = ".tmp"
)

// Config configures a Recorder. All fields are required.
type Config struct {
	Store *store.Client
	// Dir is the directory of waiting crashes. It is created if it does not exist.
	Dir string
	// Fence proves the node's session; ok is false without one.
	Fence func() (f store.Fence, ok bool)
	Log   *slog.Logger
}

// Recorder writes crashes to the store. Create it with New.
type Recorder struct {
	cfg  Config
	kick chan struct{}

	mu sync.Mutex
	// waiting are the ids of the crashes that are not in the store, oldest first.
	waiting []string
}

// entry is the content of a file.
type entry struct {
	Crash reports.Crash     `json:"crash"`
	Tail  reports.CrashTail `json:"tail"`
}

// New loads what an earlier agent left. Unavailable if the directory cannot be used.
func New(cfg Config) (*Recorder, error) {
	r := &Recorder{cfg: cfg, kick: make(chan struct{}, 1)}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "recorder.New", err)
	}
	files, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "recorder.New", err)
	}
	at := map[string]time.Time{}
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), suffix)
		fi, err := f.Info()
		if !ok || err != nil { // an interrupted write
			_ = os.Remove(filepath.Join(cfg.Dir, f.Name()))
			continue
		}
		at[id] = fi.ModTime()
		r.waiting = append(r.waiting, id)
	}
	slices.SortFunc(r.waiting, func(a, b string) int { return cmp.Or(at[a].Compare(at[b]), strings.Compare(a, b)) })
	return r, nil
}

// Record stores a crash until it is in the store. If the disk refuses the file, the crash is lost.
func (r *Recorder) Record(c reports.Crash, tail reports.CrashTail) {
	b, err := json.Marshal(entry{c, tail})
	if err == nil {
		path := r.path(c.ID)
		err = errors.Join(os.WriteFile(path+partial, b, 0o600), os.Rename(path+partial, path))
	}
	if err != nil {
		r.cfg.Log.Error("cannot record a crash", "instance", string(c.Instance), "reason", string(c.Reason), "error", err)
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

// Kick makes the recorder retry at once, because there is a new session.
func (r *Recorder) Kick() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// Waiting counts the crashes that are not in the store.
func (r *Recorder) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting)
}

// Run writes waiting crashes until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	for ctx.Err() == nil {
		r.drain(ctx)
		select {
		case <-ctx.Done():
		case <-r.kick:
		}
	}
}

// drain writes until no crash waits or there is no session. A crash that cannot be written is
// retried after the others.
func (r *Recorder) drain(ctx context.Context) {
	retry, failed := firstRetry, map[string]bool{}
	for {
		id, ok := r.next(failed)
		if !ok || ctx.Err() != nil {
			return
		}
		fence, ok := r.cfg.Fence()
		if !ok {
			return // Kick is called with the next session
		}
		err := r.write(ctx, id, fence)
		if errs.Is(err, errs.Denied) { // a gateway knows the instance on another node, or not at all
			r.cfg.Log.Warn("a crash is not recorded", "crash", id, "error", err)
			err = nil
		}
		if err != nil {
			if retry == firstRetry && ctx.Err() == nil {
				r.cfg.Log.Warn("cannot write crashes to the store: retrying", "count", r.Waiting(), "crash", id, "error", err)
			}
			failed[id] = true
			retry = r.waitRetry(ctx, retry)
			continue
		}
		r.done(id)
	}
}

// waitRetry waits before the next attempt or until Kick, and returns the pause after that attempt.
func (r *Recorder) waitRetry(ctx context.Context, d time.Duration) time.Duration {
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

// next is the oldest crash that has not failed since all others were tried.
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

// write creates the records of one crash. It returns nil if there is nothing to write.
func (r *Recorder) write(ctx context.Context, id string, fence store.Fence) error {
	const op = "recorder.write"
	b, err := os.ReadFile(r.path(id))
	if errors.Is(err, fs.ErrNotExist) { // dropped meanwhile
		return nil
	}
	if err != nil {
		return errs.WrapAs(errs.Unavailable, op, err)
	}
	var e entry
	if err := json.Unmarshal(b, &e); err != nil || e.Crash.ID != id {
		r.cfg.Log.Error("the file of a waiting crash is invalid: it is dropped", "crash", id, "error", err)
		return nil
	}
	err = r.create(ctx, fence, e)
	if errs.Is(err, errs.TooLarge) {
		r.cfg.Log.Error("the store refuses the record of a crash because of its size: it is written without its output", "instance", string(e.Crash.Instance), "crash", id, "error", err)
		e.Tail.Text, e.Crash.Last = nil, nil
		err = r.create(ctx, fence, e)
	}
	return errs.Wrap(op, err)
}

// create creates the records of one crash. It returns nil if they exist.
func (r *Recorder) create(ctx context.Context, fence store.Fence, e entry) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	_, err := r.cfg.Store.Commit(ctx, store.Txn{
		Fences: []store.Fence{fence},
		Writes: []store.Write{store.Create(keys.Crash(e.Crash.ID), e.Crash), store.Create(keys.CrashTail(e.Crash.ID), e.Tail)},
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
		r.cfg.Log.Warn("cannot remove the file of a recorded crash", "crash", id, "error", err)
	}
}

func (r *Recorder) path(id string) string { return filepath.Join(r.cfg.Dir, id+suffix) }
