package storetest

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/orreryhq/orrery/libs/store"
)

// Faults injects failures between a client created by Faulty and its etcd. It is safe for
// concurrent use.
type Faults struct {
	mu   sync.Mutex
	key  string        // the transaction that fails next is the one that writes a key with this prefix
	lost bool          // it happens all the same
	then bool          // reads fail from then on
	hit  chan struct{} // closed when it has failed
	away bool          // reads fail
	keep bool          // revocations of leases fail
	kept int           // how many did
	read int           // how many reads there were
	bar  string        // transactions that write a key with this prefix fail; "" for none
	cut  chan struct{} // closed by Heal; nil while the connection is whole
	late chan struct{} // closed when an answer was kept back to be overtaken; nil while none is
}

// LoseAnswer lets the next transaction that writes a key with a prefix happen, but loses its
// answer. With blind, reads fail from then on until Heal. The channel is closed when the answer
// was lost.
func (f *Faults) LoseAnswer(prefix string, blind bool) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key, f.lost, f.then, f.hit = prefix, true, blind, make(chan struct{})
	return f.hit
}

// Refuse makes the next transaction that writes a key with a prefix fail without
// reaching etcd.
func (f *Faults) Refuse(prefix string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key, f.lost, f.then, f.hit = prefix, false, false, make(chan struct{})
}

// Bar makes every transaction that writes a key with a prefix fail without
// reaching etcd, until Heal.
func (f *Faults) Bar(prefix string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bar = prefix
}

// KeepLeases makes every revocation of a lease fail without reaching etcd, until the
// returned function is called. Heal does not end it.
func (f *Faults) KeepLeases() (end func()) {
	set := func(keep bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.keep = keep
	}
	set(true)
	return func() { set(false) }
}

// Kept returns how many revocations KeepLeases made fail.
func (f *Faults) Kept() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kept
}

// Reads returns how many reads the client has sent, without those in transactions.
func (f *Faults) Reads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read
}

func (f *Faults) countRead() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read++
}

func (f *Faults) keeping() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keep {
		f.kept++
	}
	return f.keep
}

// Heal ends the faults.
func (f *Faults) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key, f.bar, f.away, f.late = "", "", false, nil
	if f.cut != nil {
		close(f.cut)
		f.cut = nil
	}
}

// Cut blocks everything in both directions until Heal: calls, answers, events and keep-alives wait
// without an error. This is like a paused process or a dead switch.
func (f *Faults) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut == nil {
		f.cut = make(chan struct{})
	}
}

// Overtake reorders the answers of a watch stream, as etcd sometimes does: a progress answer is
// held back until a watch was added to the stream after it. The channel is closed when an answer
// is held back. Heal ends this for later answers.
func (f *Faults) Overtake() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late = make(chan struct{})
	return f.late
}

// overtaken reports whether to hold back an answer.
func (f *Faults) overtaken(r *etcdserverpb.WatchResponse) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.late == nil || r.WatchId != clientv3.InvalidWatchID || r.Created || r.Canceled {
		return false
	}
	select {
	case <-f.late:
	default:
		close(f.late)
	}
	return true
}

// whole waits while the connection is cut.
func (f *Faults) whole(ctx context.Context) error {
	f.mu.Lock()
	cut := f.cut
	f.mu.Unlock()
	if cut == nil {
		return nil
	}
	select {
	case <-cut:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// Faulty connects over the network like Client, with controllable faults.
func (e *Etcd) Faulty(t testing.TB) (*store.Client, *Faults) {
	t.Helper()
	f := &Faults{}
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: []string{e.Endpoint}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(f.call, f.intercept), grpc.WithChainStreamInterceptor(f.open)},
	})
	if err != nil {
		t.Fatalf("dialling the test etcd: %v", err)
	}
	t.Cleanup(func() { _ = cli.Close() })
	return store.New(cli, store.Options{Log: slog.New(slog.DiscardHandler)}), f
}

// The client does not retry lost and away by itself.

func lost() error { return status.Error(codes.Unavailable, "the answer was lost") }
func away() error { return status.Error(codes.Unknown, "reads fail") }

func (f *Faults) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	switch r := req.(type) {
	case *etcdserverpb.LeaseRevokeRequest:
		if f.keeping() {
			return away()
		}
	case *etcdserverpb.RangeRequest:
		f.countRead()
		if f.blind() {
			return away()
		}
	case *etcdserverpb.TxnRequest:
		if readOnly(r) && f.blind() {
			return away()
		}
		if fails, happens := f.strike(r); fails {
			if happens {
				_ = invoke(ctx, method, req, reply, cc, opts...)
			}
			return lost()
		}
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (f *Faults) blind() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.away
}

// readOnly reports whether a transaction writes nothing, regardless of its comparisons.
func readOnly(r *etcdserverpb.TxnRequest) bool {
	for _, op := range slices.Concat(r.Success, r.Failure) {
		if inner := op.GetRequestTxn(); op.GetRequestRange() == nil && (inner == nil || !readOnly(inner)) {
			return false
		}
	}
	return true
}

// writes reports whether a transaction, or one inside it, may write a key with a prefix.
func writes(r *etcdserverpb.TxnRequest, prefix string) bool {
	return prefix != "" && slices.ContainsFunc(r.Success, func(op *etcdserverpb.RequestOp) bool {
		if inner := op.GetRequestTxn(); inner != nil {
			return writes(inner, prefix)
		}
		put := op.GetRequestPut()
		return put != nil && strings.HasPrefix(string(put.Key), prefix)
	})
}

// strike reports whether a transaction must fail.
func (f *Faults) strike(r *etcdserverpb.TxnRequest) (fails, happens bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case writes(r, f.bar):
		return true, false
	case writes(r, f.key):
		f.key, f.away = "", f.then
		defer close(f.hit)
		return true, f.lost
	}
	return false, false
}

// call performs a call through a connection that may be cut.
func (f *Faults) call(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := f.whole(ctx); err != nil {
		return err
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if cut := f.whole(ctx); cut != nil {
		return cut
	}
	return err
}

func (f *Faults) open(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := f.whole(ctx); err != nil {
		return nil, err
	}
	s, err := streamer(ctx, desc, cc, method, opts...)
	return &stream{ClientStream: s, faults: f}, err
}

// stream is a stream over a connection that may be cut.
type stream struct {
	grpc.ClientStream
	faults *Faults
	// late are the answers held back. passed is true once a watch was added after them. Only the
	// receiver uses them.
	late   []*etcdserverpb.WatchResponse
	passed bool
}

// SendMsg sends once the connection is not cut.
func (s *stream) SendMsg(m any) error {
	if err := s.faults.whole(s.Context()); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg receives once the connection is not cut.
func (s *stream) RecvMsg(m any) error {
	err := s.receive(m)
	if cut := s.faults.whole(s.Context()); cut != nil {
		return cut
	}
	return err
}

// receive is RecvMsg with the order of Overtake.
func (s *stream) receive(m any) error {
	r, watches := m.(*etcdserverpb.WatchResponse)
	if watches && s.passed {
		r.Header, r.WatchId = s.late[0].Header, s.late[0].WatchId
		s.late = s.late[1:]
		s.passed = len(s.late) > 0
		return nil
	}
	for {
		if err := s.ClientStream.RecvMsg(m); err != nil || !watches {
			return err
		}
		if !s.faults.overtaken(r) {
			s.passed = r.Created && len(s.late) > 0
			return nil
		}
		s.late = append(s.late, &etcdserverpb.WatchResponse{Header: r.Header, WatchId: r.WatchId})
	}
}
