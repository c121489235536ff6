package etcdproxy

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// bounded bounds the answer of etcd to a call.
func bounded() grpc.CallOption { return grpc.MaxCallRecvMsgSize(maxAnswer) }

// transactions serves etcd's KV API to nodes.
type transactions struct {
	pb.UnimplementedKVServer
	p *Proxy
}

// Range reads keys.
func (s transactions) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := s.p.limits.wait(ctx, NodeOf(ctx), 0); err != nil {
		return nil, err
	}
	if err := s.p.rules(ctx).read(ctx, r.Key, r.RangeEnd, r.CountOnly); err != nil {
		return nil, err
	}
	return s.p.etcd.kv.Range(ctx, r, bounded())
}

// Txn compares and changes keys.
func (s transactions) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := s.p.limits.wait(ctx, NodeOf(ctx), proto.Size(r)); err != nil {
		return nil, err
	}
	if err := s.p.rules(ctx).transaction(ctx, r); err != nil {
		return nil, err
	}
	for _, op := range append(r.Success[:len(r.Success):len(r.Success)], r.Failure...) {
		if lease := op.GetRequestPut().GetLease(); lease != 0 {
			if err := s.p.ownsLease(ctx, lease); err != nil {
				return nil, err
			}
		}
	}
	return s.p.etcd.kv.Txn(ctx, r, bounded())
}

// watches serves etcd's Watch API to nodes.
type watches struct {
	pb.UnimplementedWatchServer
	p *Proxy
}

// Watch passes on a stream of watches. A watch that the node may not have ends the stream.
func (s watches) Watch(down pb.Watch_WatchServer) error {
	ctx, cancel := context.WithCancelCause(down.Context())
	defer cancel(nil)
	up, err := s.p.etcd.watch.Watch(forwarded(ctx), bounded())
	if err != nil {
		return err
	}
	go func() { cancel(s.ask(ctx, down, up)) }()
	for {
		r, err := up.Recv()
		if cause := context.Cause(ctx); err != nil && status.Code(cause) == codes.PermissionDenied {
			return cause
		}
		if err != nil {
			return err
		}
		if err := down.Send(r); err != nil {
			return err
		}
	}
}

// ask passes on the requests of a stream.
func (s watches) ask(ctx context.Context, down pb.Watch_WatchServer, up pb.Watch_WatchClient) error {
	rules, begun := s.p.rules(ctx), 0
	for {
		r, err := down.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.p.limits.wait(ctx, rules.node, 0); err != nil {
			return err
		}
		if c := r.GetCreateRequest(); c != nil {
			if begun++; begun > watchesPerStream {
				return denied("node %s has begun %d watches on a stream: use another one", rules.node, begun)
			}
			if c.PrevKv {
				return denied("node %s may not watch previous values", rules.node)
			}
			if err := rules.read(ctx, c.Key, c.RangeEnd, false); err != nil {
				return err
			}
		}
		if err := up.Send(r); err != nil {
			return err
		}
	}
}
