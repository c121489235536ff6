package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// ForeignError means that etcd does not contain what this process joined: it has another cluster's
// data, no data, or a schema this build does not support. Such an etcd is treated as unreachable;
// errors that wrap it are Unavailable.
type ForeignError struct {
	// Joined is what the process joined, Found what etcd contains now. Found is zero if etcd is
	// empty.
	Joined, Found cluster.Meta
}

// Error names both and says what to do.
func (e *ForeignError) Error() string {
	switch {
	case e.Found.ClusterID == "":
		return fmt.Sprintf("this etcd is empty, but this process joined cluster %s: etcd was emptied or replaced; nothing is written until its data is back; to start over with an empty cluster, restart this process", e.Joined.ClusterID)
	case e.Found.ClusterID != e.Joined.ClusterID:
		return fmt.Sprintf("this etcd contains cluster %s, but this process joined cluster %s: etcd's addresses or data directory belong to another cluster; nothing is written to it; to join that cluster, restart this process", e.Found.ClusterID, e.Joined.ClusterID)
	}
	return newerSchema(e.Found).Message
}

func newerSchema(found cluster.Meta) *errs.Error {
	return &errs.Error{Op: "store.Join", Kind: errs.Conflict, Message: fmt.Sprintf(
		"this etcd has schema %d, newer than the %d this build supports: run a newer build", found.Schema, keys.Schema)}
}

const (
	// vetTimeout bounds the check that etcd is still the one joined.
	vetTimeout = 5 * time.Second
	// vetAgain is how long a negative result of that check is reused, complainEvery how often it
	// is logged.
	vetAgain      = time.Second
	complainEvery = time.Minute
)

// position is how far a client has seen the store. line counts how often the store's history was
// replaced by another one.
type position struct {
	line          int
	cluster, term uint64
	rev           int64
}

// precedes reports whether a linearizable answer p cannot come from the same history as q: the
// cluster ID is fixed, and term and revision only increase.
func (p position) precedes(q position) bool {
	return q.rev != 0 && (p.cluster != q.cluster || p.term < q.term || p.rev < q.rev)
}

// timeline is what a client knows about the store's history: the cluster it joined and how far it
// has seen it. A restored or replaced etcd contradicts it.
type timeline struct {
	mu     sync.Mutex
	joined cluster.Meta
	// raw is the meta record as joined. Empty before Join.
	raw  string
	seen position
	// turned is closed and replaced when seen.line increases.
	turned chan struct{}
	// strange is the last error saying that etcd is not the one joined, from strangeAt.
	strange               error
	strangeAt, complained time.Time
}

func newTimeline() *timeline { return &timeline{turned: make(chan struct{})} }

// now returns the current position. Call it before a request.
func (l *timeline) now() position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

// identity returns the text of the meta record that every write requires. Empty before Join.
func (l *timeline) identity() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.raw
}

// since returns a channel that is closed when the history is no longer that of the given line.
func (l *timeline) since(line int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen.line != line {
		over := make(chan struct{})
		close(over)
		return over
	}
	return l.turned
}

// reached records a revision delivered on a line.
func (l *timeline) reached(line int, rev int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen.line == line {
		l.seen.rev = max(l.seen.rev, rev)
	}
}

// saw compares a linearizable answer with the position before its request, and starts a new line
// if they contradict each other.
func (c *Client) saw(before position, h *etcdserverpb.ResponseHeader) {
	l := c.line
	answer := position{line: before.line, cluster: h.ClusterId, term: h.RaftTerm, rev: h.Revision}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before.line != l.seen.line {
		return
	}
	if !answer.precedes(before) {
		l.seen.cluster, l.seen.term, l.seen.rev = answer.cluster, max(l.seen.term, answer.term), max(l.seen.rev, answer.rev)
		return
	}
	c.log.Error("etcd went back in time: it was restored from a backup or replaced; everything is read again, and no instance is stopped because of it",
		"revision", answer.rev, "before", before.rev, "term", answer.term, "termBefore", before.term,
		"etcdCluster", fmt.Sprintf("%x", answer.cluster), "etcdClusterBefore", fmt.Sprintf("%x", before.cluster))
	l.turn(answer)
}

// turn starts a new line at a position. It requires l.mu.
func (l *timeline) turn(at position) {
	at.line = l.seen.line + 1
	l.seen = at
	close(l.turned)
	l.turned = make(chan struct{})
}

// adopt binds the client to the joined cluster. A different cluster starts a new line.
func (c *Client) adopt(meta cluster.Meta, raw string) {
	l := c.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.raw != "" && l.joined.ClusterID != meta.ClusterID {
		l.turn(l.seen)
	}
	l.joined, l.raw, l.strange = meta, raw, nil
}

// vet checks that etcd is still the one joined, with the known history. Otherwise the error is
// Unavailable with a ForeignError.
func (c *Client) vet(ctx context.Context) error {
	before := c.line.now()
	resp, err := c.etcd.Get(ctx, keys.Meta().String())
	if err != nil {
		return wrap("store.vet", err)
	}
	c.saw(before, resp.Header)
	return c.judge(resp.Kvs)
}

// judge compares the record under the meta key with the joined one.
func (c *Client) judge(kvs []*mvccpb.KeyValue) error {
	var raw []byte
	if len(kvs) > 0 {
		raw = kvs[0].Value
	}
	l := c.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.raw == "" || bytes.Equal(raw, []byte(l.raw)) {
		l.strange = nil
		return nil
	}
	var found cluster.Meta
	_ = json.Unmarshal(raw, &found) // an unreadable record belongs to no cluster
	if found.ClusterID == l.joined.ClusterID && found.Schema <= keys.Schema {
		l.raw, l.strange = string(raw), nil
		return nil
	}
	l.strange = errs.WrapAs(errs.Unavailable, "store.vet", &ForeignError{Joined: l.joined, Found: found})
	l.strangeAt = time.Now()
	if l.strangeAt.Sub(l.complained) >= complainEvery {
		l.complained = l.strangeAt
		c.log.Error("etcd is not the one this process joined", "error", l.strange)
	}
	return l.strange
}

// stranger returns the last negative result if it is recent enough to reuse.
func (l *timeline) stranger() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.strange != nil && time.Since(l.strangeAt) < vetAgain {
		return l.strange
	}
	return nil
}

const watchMethod = "/etcdserverpb.Watch/Watch"

// vetStream lets a watch start or resume only on the joined etcd with the known history. On
// another one the watch would silently wait for a far future revision, or deliver another
// cluster's records.
func (c *Client) vetStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if method != watchMethod || c.line.now().rev == 0 {
		return open(ctx, desc, cc, method, opts...)
	}
	if err := c.line.stranger(); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error()) // the watch retries
	}
	answered := c.contact.asking()
	ctx, cancel := context.WithCancel(ctx)
	stream, err := open(ctx, desc, cc, method, opts...) // it waits for a connection, however long
	if err != nil {
		cancel()
		answered(wrap("store.vetStream", err))
		return nil, err
	}
	return &vettedStream{ClientStream: stream, client: c, cancel: cancel, answered: answered}, nil
}

// vettedStream is the stream of a watch. Its first answer is passed on only after a check that
// etcd is the one joined. Before that answer gRPC may lose the connection and silently open the
// stream again on another server that has taken over the address.
type vettedStream struct {
	grpc.ClientStream
	client *Client
	cancel context.CancelFunc
	// answered receives the first answer and is nil afterwards. Only RecvMsg uses it, which is not
	// called concurrently.
	answered func(error)
}

// RecvMsg receives an answer. The error is Unavailable if etcd is not the one joined.
func (s *vettedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.answered != nil {
		first := wrap("store.vetStream", err)
		if err == nil {
			if first = s.vet(); first != nil {
				err = status.Error(codes.Unavailable, first.Error())
			}
		}
		s.answered(first)
		s.answered = nil
	}
	if err != nil {
		s.cancel() // release the unfinished stream
	}
	return err
}

func (s *vettedStream) vet() error {
	ctx, cancel := context.WithTimeout(s.Context(), vetTimeout)
	defer cancel()
	return s.client.vet(ctx)
}
