package etcdproxy

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/orreryhq/orrery/libs/fleet"
)

// What one node may use of a proxy. An agent with a thousand instances stays far below.
const (
	callsPerSecond, callsAtOnce = 500, 2000
	// Bytes of requests.
	bytesPerSecond, bytesAtOnce = 2 << 20, 32 << 20
	// watchesPerStream is the number of watches that begin on one stream.
	watchesPerStream = 1000
	// maxAnswer bounds the answer to a call, in bytes. An agent asks for pages.
	maxAnswer = 64 << 20
	// maxLimited bounds the nodes whose use is remembered.
	maxLimited = 10_000
)

// limits delay the calls of nodes that make too many. It is safe for concurrent use.
type limits struct {
	mu  sync.Mutex
	all map[fleet.NodeID]*use
}

// use is what a node has used.
type use struct{ calls, bytes *rate.Limiter }

func newLimits() *limits { return &limits{all: map[fleet.NodeID]*use{}} }

func (l *limits) of(node fleet.NodeID) *use {
	l.mu.Lock()
	defer l.mu.Unlock()
	u, ok := l.all[node]
	if !ok {
		if len(l.all) >= maxLimited {
			clear(l.all)
		}
		u = &use{rate.NewLimiter(callsPerSecond, callsAtOnce), rate.NewLimiter(bytesPerSecond, bytesAtOnce)}
		l.all[node] = u
	}
	return u
}

// wait returns when the node may make another call with a request of a size.
func (l *limits) wait(ctx context.Context, node fleet.NodeID, size int) error {
	u := l.of(node)
	err := u.calls.Wait(ctx)
	if err == nil {
		err = u.bytes.WaitN(ctx, min(size, bytesAtOnce))
	}
	if err != nil {
		return status.Errorf(codes.Unavailable, "node %s makes too many calls: %v", node, err)
	}
	return nil
}
