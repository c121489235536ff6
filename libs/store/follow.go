package store

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store/pages"
)

// Change is a change of one key. A removed key has no Value.
type Change struct {
	KeyValue
	Removed bool
}

// Handler receives what a follower sees, in order and from one goroutine.
type Handler interface {
	// Reset delivers everything under the prefix at one revision: at the start, and again after
	// the history was compacted. Known keys that are not listed are gone.
	Reset(kvs []KeyValue, rev int64)
	// Apply delivers the changes since then, complete up to revision rev and without duplicates.
	Apply(changes []Change, rev int64)
}

// Pager is a Handler that takes a list in pages, so that all its values are never in memory at once.
type Pager interface {
	Handler
	// Receiver receives a list. Reset follows after the last page, without keys. A list that Reset did not
	// end before the next Begin has failed.
	pages.Receiver[KeyValue]
}

// Rewinder is a Handler that stores revisions and must know when they become invalid.
type Rewinder interface {
	Handler
	// Rewound announces that the next list comes from a different history: etcd was restored from
	// a backup, or another one was joined. Its revision may be lower, and equal revisions do not
	// mean equal values.
	Rewound()
}

// Asker is a Handler that sometimes needs the progress of its watch although nothing under its
// prefix has changed. Follow does this on a best-effort basis.
type Asker interface {
	Handler
	// Asks returns a channel with a value whenever etcd should be asked. The answer is an Apply
	// without changes. It always returns the same channel.
	Asks() <-chan struct{}
}

const (
	// askTimeout bounds how long a progress request waits for a connection to etcd.
	askTimeout = 200 * time.Millisecond
	// firstPause is the longest pause after the first failure. It doubles up to lastPause.
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
	// relistSpread is the longest pause before a prefix is listed again. A compaction or a
	// restored etcd makes all followers list again, and they must not all do so at the same
	// moment.
	relistSpread = 500 * time.Millisecond
)

var (
	errStreamEnded = errors.New("the watch ended without an error")
	errRewound     = errors.New("etcd went back in time")
)

// Follow lists a prefix and watches it from the next revision until ctx ends. It recovers from
// interruptions: a lost stream resumes after the last delivered revision. If the history was
// compacted or etcd went back in time, it lists again after a random pause of at most half a
// second. While etcd is not the one joined (see ForeignError), nothing is delivered. It returns
// ctx's error.
func (c *Client) Follow(ctx context.Context, prefix string, h Handler) error {
	f := follower{client: c, prefix: prefix, handler: h, random: c.random(prefix)}
	if a, ok := h.(Asker); ok {
		f.asks, f.stream = a.Asks(), c.newStream()
	}
	for ctx.Err() == nil {
		if err := f.proceed(ctx); err != nil {
			f.pause(ctx, err)
		}
	}
	return ctx.Err()
}

// random returns a random source for a follower. The followers of the same prefix in two clients
// with the same seed still differ.
func (c *Client) random(prefix string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(prefix)) // never fails
	return rand.New(rand.NewPCG(c.seed, h.Sum64()))
}

type follower struct {
	client  *Client
	prefix  string
	handler Handler
	random  *rand.Rand
	// asks delivers a value when the watch's progress should be requested. The follower then has
	// its own stream. It may be nil.
	asks   <-chan struct{}
	stream string
	rev    int64 // everything up to here was delivered; 0: list first
	line   int   // the timeline to which rev belongs
	listed bool  // at least once
	fails  int
}

func (f *follower) proceed(ctx context.Context) error {
	if f.rev == 0 {
		if err := f.relist(ctx); err != nil {
			return err
		}
	}
	return f.watch(ctx)
}

func (f *follower) relist(ctx context.Context) error {
	line := f.client.line.now().line
	if r, ok := f.handler.(Rewinder); ok && f.listed && line != f.line {
		r.Rewound()
	}
	f.line = line
	var kvs []KeyValue
	var to pages.Receiver[KeyValue] = (*collected)(&kvs)
	if p, ok := f.handler.(Pager); ok {
		to = p
	}
	rev, err := f.client.pages(ctx, f.prefix, 0, f.client.persist, to)
	if err != nil {
		return err
	}
	answered := f.client.contact.asking()
	err = f.client.vet(ctx) // after the list, so the list is not from another etcd
	answered(err)
	if err != nil {
		return err
	}
	f.handler.Reset(kvs, rev)
	f.rev, f.listed = rev, true
	return nil
}

// watch delivers changes until the stream ends or becomes invalid.
func (f *follower) watch(ctx context.Context) error {
	watching, cancel := context.WithCancel(onStream(ctx, f.stream))
	turned := f.client.line.since(f.line)
	stream := f.client.etcd.Watch(watching, f.prefix,
		clientv3.WithPrefix(), clientv3.WithRev(f.rev+1), clientv3.WithProgressNotify(), clientv3.WithFragment())
	defer func() {
		cancel() // releases the server's side of the watch
		awaitEnd(ctx, stream)
	}()
	for {
		select {
		case <-turned:
			f.rev = 0
			return errRewound
		case <-f.asks:
			f.ask(watching)
		case resp, ok := <-stream:
			if !ok {
				return cmp.Or(ctx.Err(), errStreamEnded)
			}
			if err := resp.Err(); err != nil {
				if errors.Is(err, rpctypes.ErrCompacted) || resp.CompactRevision != 0 {
					f.rev = 0
				}
				return err
			}
			if closed(turned) {
				continue
			}
			f.fails = 0
			f.deliver(&resp)
			f.client.line.reached(f.line, f.rev)
		}
	}
}

// deliver passes on the events after f.rev and drops duplicates.
func (f *follower) deliver(resp *clientv3.WatchResponse) {
	if resp.Header.Revision < f.rev && len(resp.Events) == 0 {
		return
	}
	changes := make([]Change, 0, len(resp.Events))
	last := f.rev
	for _, ev := range resp.Events {
		if ev.Kv.ModRevision <= f.rev {
			continue
		}
		changes = append(changes, Change{KeyValue: raw(ev.Kv), Removed: ev.Type == clientv3.EventTypeDelete})
		last = ev.Kv.ModRevision
	}
	if resp.IsProgressNotify() {
		last = max(last, resp.Header.Revision)
	}
	if last == f.rev {
		return
	}
	f.rev = last
	f.handler.Apply(changes, last)
}

// pause waits before the next attempt.
func (f *follower) pause(ctx context.Context, cause error) {
	if ctx.Err() != nil {
		return
	}
	f.client.log.Warn("watch interrupted, resuming", "prefix", f.prefix, "after", f.rev, "error", cause)
	d := f.delay()
	if codeOf(cause) == codes.PermissionDenied { // of a revoked node: a person has to admit it
		d = 10 * lastPause
	}
	f.fails++
	pause.For(ctx, d)
}

// delay returns a random pause whose bound doubles with each failure, so that followers do not
// return at the same moment.
func (f *follower) delay() time.Duration {
	limit := min(firstPause<<min(f.fails, 8), lastPause)
	if f.rev == 0 && f.listed {
		limit = max(limit, relistSpread)
	}
	return time.Duration(f.random.Int64N(int64(limit)) + 1)
}

// awaitGone returns when a key does not exist, or ctx ends.
func (c *Client) awaitGone(ctx context.Context, key string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = c.Follow(ctx, key, goneHandler{key, cancel}) // ends only with ctx
}

// goneHandler calls gone when its key does not exist. Other keys may start with the same prefix.
type goneHandler struct {
	key  string
	gone func()
}

// Reset implements Handler.
func (h goneHandler) Reset(kvs []KeyValue, _ int64) {
	if !slices.ContainsFunc(kvs, func(kv KeyValue) bool { return kv.Key == h.key }) {
		h.gone()
	}
}

// Apply implements Handler.
func (h goneHandler) Apply(changes []Change, _ int64) {
	for _, ch := range changes {
		if ch.Key == h.key && ch.Removed {
			h.gone()
		}
	}
}
