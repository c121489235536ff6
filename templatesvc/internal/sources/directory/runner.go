package directory

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/internal/sources"
	"github.com/orreryhq/orrery/templatesvc/internal/versions"
)

const (
	// runTimeout is the maximum duration of one look at a source.
	runTimeout = 10 * time.Minute
	// retryFirst and retryLast are the first and the longest pause after failures. The
	// pause doubles each time and is jittered.
	retryFirst, retryLast = 10 * time.Second, 10 * time.Minute
)

// Fetch reads the content of a source of one kind. It returns nil when nothing has changed.
type Fetch func(context.Context, sources.Request) (*sources.Holding, error)

// RunnerConfig is what a Runner needs. Settling and Dialer are optional.
type RunnerConfig struct {
	Store   *store.Client
	Service *versions.Service
	// Kinds has a Fetch for each supported kind of source.
	Kinds map[content.SourceKind]Fetch
	// Owned returns the shards that this replica owns.
	Owned func() *store.Ownership
	// Settling is how long a declared object must be missing from a directory before it is
	// removed. 0 means one minute.
	Settling time.Duration
	// Dialer makes the connections to sources.
	Dialer sources.Dialer
	// Ring opens credentials.
	Ring *seal.Ring
	// Spool is a directory for temporary files.
	Spool string
	Now   func() time.Time
	Log   *slog.Logger
}

// Runner keeps the templates of the recorded sources up to date, for the shards that this
// replica owns. One goroutine per source looks at it when its record changes and at its
// interval. All writes are fenced by the shard, so each source has one owner at a time.
type Runner struct {
	cfg  RunnerConfig
	box  seal.Box
	wake chan struct{}

	mu      sync.Mutex // guards records and again
	records map[string]content.TemplateSource
	again   bool // every source is due for another look
}

// NewRunner returns a Runner. Call Run to start it.
func NewRunner(cfg RunnerConfig) *Runner {
	cfg.Settling = cmp.Or(cfg.Settling, settling)
	return &Runner{cfg: cfg, box: cfg.Ring.Records(content.SourceCredentialsKind), wake: make(chan struct{}, 1), records: map[string]content.TemplateSource{}}
}

// Wake makes the runner compare its workers with the sources it owns.
func (r *Runner) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// LookAgain makes the runner look at every source it owns now.
func (r *Runner) LookAgain() {
	r.mu.Lock()
	r.again = true
	r.mu.Unlock()
	r.Wake()
}

// Reset implements store.Handler.
func (r *Runner) Reset(kvs []store.KeyValue, _ int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.records)
	for _, kv := range kvs {
		r.keep(kv)
	}
	r.Wake()
}

// Apply implements store.Handler.
func (r *Runner) Apply(changes []store.Change, _ int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range changes {
		if c.Removed {
			delete(r.records, c.Key)
			continue
		}
		r.keep(c.KeyValue)
	}
	r.Wake()
}

// keep stores a record. The caller holds mu.
func (r *Runner) keep(kv store.KeyValue) {
	s, err := store.Decode[content.TemplateSource](kv)
	if err != nil {
		r.cfg.Log.Warn("the record of a template source cannot be read: write it again", "key", kv.Key, "error", err)
		return
	}
	r.records[kv.Key] = s
}

func (r *Runner) recorded(key string) (content.TemplateSource, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.records[key]
	return s, ok
}

// worker is the goroutine of one source. A send on changed requests a look.
type worker struct {
	cancel  context.CancelFunc
	changed chan struct{}
	modRev  int64
}

// Run runs until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(func() { _ = r.cfg.Store.Follow(ctx, keys.TemplateSources().String(), r) })
	workers := map[string]*worker{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.wake:
			r.arrange(ctx, workers, &running)
		}
	}
}

// arrange starts workers for the owned sources, stops those of others, and notifies workers
// of changes.
func (r *Runner) arrange(ctx context.Context, workers map[string]*worker, running *sync.WaitGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, w := range workers {
		s, ok := r.records[key]
		if _, owned := r.fence(s.Name); !ok || !owned {
			w.cancel()
			delete(workers, key)
		}
	}
	for key, s := range r.records {
		w := workers[key]
		switch _, owned := r.fence(s.Name); {
		case !owned:
		case w == nil:
			w = &worker{changed: make(chan struct{}, 1), modRev: s.ModRev}
			var mine context.Context
			mine, w.cancel = context.WithCancel(ctx)
			workers[key] = w
			running.Go(func() { r.work(mine, key, w.changed) })
		case w.modRev != s.ModRev || r.again:
			w.modRev = s.ModRev
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
	r.again = false
}

func (r *Runner) fence(name string) (store.Fence, bool) {
	return r.cfg.Owned().Fence(fleet.GroupName(name))
}

// work keeps one source up to date until ctx ends.
func (r *Runner) work(ctx context.Context, key string, changed <-chan struct{}) {
	fails, gone := 0, absence{}
	for {
		s, ok := r.recorded(key)
		if !ok {
			return
		}
		wait := s.Interval()
		if err := r.look(ctx, s, &gone); err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("a source of templates could not be brought up to date", "source", s.Name, "error", err)
			wait = max(wait, min(retryFirst<<min(fails, 10), retryLast))
			fails++
		} else {
			fails = 0
			if left := gone.left(r.cfg.Settling, r.cfg.Now()); left > 0 {
				wait = min(wait, max(left, time.Millisecond))
			}
		}
		timer := time.NewTimer(wait + rand.N(wait/10))
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}
