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
	"github.com/orreryhq/orrery/libs/fleet"
)

// ForeignError says that etcd holds something else than what this process joined:
// another cluster's data, none at all, or a schema this build does not know. To
// whoever meets it such an etcd is as good as away; errors that carry it are Unavailable.
type ForeignError struct {
	// Joined is what the process joined, Found what stands there now; its zero value
	// is that nothing does.
	Joined, Found fleet.Meta
}

// Error names both and says what to do.
func (e *ForeignError) Error() string {
	switch {
	case e.Found.ClusterID == "":
		return fmt.Sprintf("this etcd does not hold cluster %s, which this process joined, but nothing: it was emptied or replaced; nothing is written to it until its data is back; to begin anew with it, restart this process", e.Joined.ClusterID)
	case e.Found.ClusterID != e.Joined.ClusterID:
		return fmt.Sprintf("this etcd holds cluster %s, not cluster %s, which this process joined: the addresses of etcd or its data directory are another cluster's; nothing is written to it; to work for that cluster, restart this process", e.Found.ClusterID, e.Joined.ClusterID)
	}
	return newerSchema(e.Found).Message
}

func newerSchema(found fleet.Meta) *errs.Error {
	return &errs.Error{Op: "store.Join", Kind: errs.Conflict, Message: fmt.Sprintf(
		"this etcd holds schema %d, newer than the %d this build knows: run a newer build", found.Schema, Schema)}
}

const (
	// vetTimeout bounds the question whether etcd is still the one that was joined.
	vetTimeout = 5 * time.Second
	// vetAgain is how long an answer that it is not holds good, complainEvery how often that is logged.
	vetAgain      = time.Second
	complainEvery = time.Minute
)

// position is how far a client has seen the store. It is as of one line: the
// count of how often the store's past has turned out to be another one.
type position struct {
	line          int
	cluster, term uint64
	rev           int64
}

// precedes reports whether a linearizable answer cannot come from the same past:
// etcd's identity is fixed, its term and revision only grow.
func (p position) precedes(q position) bool {
	return q.rev != 0 && (p.cluster != q.cluster || p.term < q.term || p.rev < q.rev)
}

// timeline is what a client knows of the store's past: what it joined, and how far
// it has seen it. An etcd that was restored from a backup, or replaced, contradicts it.
type timeline struct {
	mu     sync.Mutex
	joined fleet.Meta
	// raw is the record under the meta key as it was joined; empty before.
	raw  string
	seen position
	// turned is closed and renewed when seen.line grows.
	turned chan struct{}
	// strange is the last verdict that etcd is not the one that was joined, given at strangeAt.
	strange               error
	strangeAt, complained time.Time
}

func newTimeline() *timeline { return &timeline{turned: make(chan struct{})} }

// now is the position before a question is asked.
func (l *timeline) now() position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

// identity is the meta record's text that every write demands; empty before Join.
func (l *timeline) identity() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.raw
}

// since is closed when the past has turned out to be another one than on a line.
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

// reached notes a revision that was delivered on a line.
func (l *timeline) reached(line int, rev int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen.line == line {
		l.seen.rev = max(l.seen.rev, rev)
	}
}

// saw compares a linearizable answer with what was known before its question, and
// begins a new line when it contradicts it.
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
	c.log.Error("etcd went back in time: it was restored from a backup or replaced; everything is read anew, and nothing is stopped because of it",
		"revision", answer.rev, "before", before.rev, "term", answer.term, "termBefore", before.term,
		"etcdCluster", fmt.Sprintf("%x", answer.cluster), "etcdClusterBefore", fmt.Sprintf("%x", before.cluster))
	l.turn(answer)
}

// turn begins a new line at a position. l.mu is held.
func (l *timeline) turn(at position) {
	at.line = l.seen.line + 1
	l.seen = at
	close(l.turned)
	l.turned = make(chan struct{})
}

// adopt binds the client to what it has joined. Another cluster than before is another past.
func (c *Client) adopt(meta fleet.Meta, raw string) {
	l := c.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.raw != "" && l.joined.ClusterID != meta.ClusterID {
		l.turn(l.seen)
	}
	l.joined, l.raw, l.strange = meta, raw, nil
}

// vet makes sure that etcd is still the one that was joined, and has the past that
// was seen. Unavailable with a ForeignError when it is another.
func (c *Client) vet(ctx context.Context) error {
	before := c.line.now()
	resp, err := c.etcd.Get(ctx, MetaKey().String())
	if err != nil {
		return wrap("store.vet", err)
	}
	c.saw(before, resp.Header)
	return c.judge(resp.Kvs)
}

// judge compares what stands under the meta key with what was joined.
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
	var found fleet.Meta
	_ = json.Unmarshal(raw, &found) // what cannot be read is nobody's
	if found.ClusterID == l.joined.ClusterID && found.Schema <= Schema {
		l.raw, l.strange = string(raw), nil
		return nil
	}
	l.strange = errs.As(errs.Unavailable, "store.vet", &ForeignError{Joined: l.joined, Found: found})
	l.strangeAt = time.Now()
	if l.strangeAt.Sub(l.complained) >= complainEvery {
		l.complained = l.strangeAt
		c.log.Error("etcd is not the one this process belongs to", "error", l.strange)
	}
	return l.strange
}

// stranger is a verdict that is young enough to be given again.
func (l *timeline) stranger() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.strange != nil && time.Since(l.strangeAt) < vetAgain {
		return l.strange
	}
	return nil
}

const watchMethod = "/etcdserverpb.Watch/Watch"

// vetStream lets a watch begin, or go on after a lost connection, only on the etcd
// that was joined and with the past that was seen: on another one a watch would wait
// in silence for a revision that is long to come, or deliver a stranger's records.
func (c *Client) vetStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if method != watchMethod || c.line.now().rev == 0 {
		return open(ctx, desc, cc, method, opts...)
	}
	if err := c.line.stranger(); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error()) // the watch tries again
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

// vettedStream is the stream of a watch. Its first answer is passed on once etcd is known
// to be the one that was joined. Before that answer gRPC may lose the connection and
// open the stream again by itself, on whatever has that address by then.
type vettedStream struct {
	grpc.ClientStream
	client *Client
	cancel context.CancelFunc
	// answered is told of the first answer; nil afterwards. Only RecvMsg uses it, which
	// has one caller at a time.
	answered func(error)
}

// RecvMsg receives an answer; Unavailable when etcd is not the one that was joined.
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
		s.cancel() // a stream that is left before its end has to be ended
	}
	return err
}

func (s *vettedStream) vet() error {
	ctx, cancel := context.WithTimeout(s.Context(), vetTimeout)
	defer cancel()
	return s.client.vet(ctx)
}
