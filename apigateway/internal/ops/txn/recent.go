package txn

import (
	"context"
	"maps"
	"sync"
	"time"
)

// maxRecent bounds the keys a Recent holds. Past it, keys are forgotten early.
const maxRecent = 8192

// Recent remembers keys for a while. It is safe for concurrent use.
type Recent struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// NewRecent returns an empty Recent.
func NewRecent() *Recent { return &Recent{until: map[string]time.Time{}} }

// First reports whether key is not remembered, and then remembers it for span.
func (r *Recent) First(key string, now time.Time, span time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.until[key]) {
		return false
	}
	if len(r.until) >= maxRecent {
		maps.DeleteFunc(r.until, func(_ string, until time.Time) bool { return !now.Before(until) })
	}
	if len(r.until) >= maxRecent {
		clear(r.until)
	}
	r.until[key] = now.Add(span)
	return true
}

// Forget forgets key.
func (r *Recent) Forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.until, key)
}

// NoteOnce calls write in the background, unless it did so for key within span. When write
// fails, the next call for key tries again.
func (o *Committer) NoteOnce(key string, span time.Duration, write func(context.Context) error) {
	if !o.noted.First(key, o.Now(), span) {
		return
	}
	job := func(ctx context.Context) {
		if err := write(ctx); err != nil && ctx.Err() == nil {
			o.noted.Forget(key)
			o.Log.Warn("an entry of the audit was not written; the next request like it tries again", "error", err)
		}
	}
	if !o.Enqueue(job) {
		o.noted.Forget(key)
	}
}
