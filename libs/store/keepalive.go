package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/orreryhq/orrery/libs/errs"
)

// The timing of keep-alives, as fractions of the TTL.
const (
	// renewEvery is the pause between two renewals.
	renewEvery = 3
	// hedgeAfter is how long a renewal waits for an answer before it sends another
	// keep-alive. Two connections that hang delay it by a tenth of the TTL.
	hedgeAfter = 20
	// keepAlivePatience is how long a keep-alive waits for its answer. It continues while later
	// ones are sent, so that a slow etcd still renews the lease.
	keepAlivePatience = 3
)

// endpointConns opens a connection to each endpoint, used only for keep-alives. The shared
// connection balances calls over all endpoints, so a retry there may reach the same hung member.
// The connections are established on first use.
func (c *Client) endpointConns(endpoints []string) error {
	if len(endpoints) < 2 {
		return nil
	}
	for _, e := range endpoints {
		conn, err := c.etcd.Dial(e)
		if err != nil {
			return errs.WrapAs(errs.Invalid, "store.Dial", fmt.Errorf("endpoint %q: %w", e, err))
		}
		c.hedges = append(c.hedges, conn)
	}
	return nil
}

// keepAlive sends one keep-alive and waits for its answer. Attempt 0 of a renewal uses the shared
// connection, later ones use the endpoints in turn.
func (c *Client) keepAlive(ctx context.Context, lease clientv3.LeaseID, n int) error {
	conn := c.Conn()
	if conn == nil { // in-process etcd
		_, err := c.etcd.KeepAliveOnce(ctx, lease)
		return err
	}
	if n > 0 && len(c.hedges) > 0 {
		conn = c.hedges[(uint64(n)+c.seed)%uint64(len(c.hedges))]
	}
	return keepAliveOver(ctx, conn, lease)
}

// keepAliveOver is clientv3's KeepAliveOnce over a given connection and without its retries, which
// spin while etcd is down.
func keepAliveOver(ctx context.Context, conn *grpc.ClientConn, lease clientv3.LeaseID) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	defer cancel()
	stream, err := etcdserverpb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(lease)}); err != nil {
		return err
	}
	resp, err := stream.Recv()
	if err != nil {
		return err
	}
	if resp.TTL <= 0 {
		return rpctypes.ErrLeaseNotFound
	}
	return nil
}

func (s *Session) keepAlive(ctx context.Context) {
	defer close(s.done)
	every := s.ttl / renewEvery
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.hurry:
		}
		if !s.renew(ctx) {
			return
		}
		timer.Reset(every)
	}
}

// outcome is the result of one keep-alive.
type outcome struct {
	sent time.Time
	err  error
}

// renew confirms the lease. It sends keep-alives over changing connections until one is answered
// or the lease may have expired. False ends the session.
func (s *Session) renew(ctx context.Context) bool {
	ctx, cancel := context.WithDeadline(ctx, s.Deadline())
	var pending sync.WaitGroup
	defer pending.Wait()
	defer cancel()
	answers := make(chan outcome)
	hedge := time.NewTimer(0)
	defer hedge.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return false
		case <-hedge.C:
			nth := n
			pending.Go(func() { s.attempt(ctx, nth, answers) })
			n++
			hedge.Reset(s.ttl / hedgeAfter)
		case a := <-answers:
			switch {
			case a.err == nil:
				s.confirm(a.sent)
				return true
			case errors.Is(a.err, rpctypes.ErrLeaseNotFound):
				return false
			}
		}
	}
}

// attempt sends the nth keep-alive of a renewal and delivers its outcome while the renewal is
// active.
func (s *Session) attempt(ctx context.Context, nth int, answers chan<- outcome) {
	sent := time.Now()
	within, cancel := context.WithTimeout(ctx, s.ttl/keepAlivePatience)
	defer cancel()
	err := s.client.keepAlive(within, s.lease.id, nth)
	select {
	case answers <- outcome{sent, err}:
	case <-ctx.Done():
	}
}

// confirm moves the deadline after an answer to the keep-alive sent at a time.
func (s *Session) confirm(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = sent.Add(s.ttl)
	close(s.renewed)
	s.renewed = make(chan struct{})
}
