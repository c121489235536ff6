// Package revocation tells services which nodes are revoked, and ends the calls of such nodes.
package revocation

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// maxCalls is the number of calls that a node may have in progress.
const maxCalls = 512

// List has the revoked nodes and the calls of the others. It implements store.Handler. It is safe for
// concurrent use.
type List struct {
	log *slog.Logger

	mu sync.Mutex
	// nodes is nil until it is known which nodes are revoked.
	nodes map[fleet.NodeID]bool
	calls map[fleet.NodeID]map[*call]bool
}

// call is a call in progress.
type call struct{ cancel context.CancelFunc }

// New returns a list that refuses every node until Run has read the revocations.
func New(log *slog.Logger) *List {
	return &List{log: log, calls: map[fleet.NodeID]map[*call]bool{}}
}

// Run follows the revocations until ctx ends, and returns its error.
func (l *List) Run(ctx context.Context, c *store.Client) error { return c.Follow(ctx, prefix(), l) }

// Check returns Denied for a node that is revoked, and Unavailable until the revocations are known.
func (l *List) Check(node fleet.NodeID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check(node)
}

// CheckCaller is Check for an agent. It refuses no other service.
func (l *List) CheckCaller(i pki.Identity) error {
	if i.Service != pki.Agent {
		return nil
	}
	return l.Check(fleet.NodeID(i.Name))
}

func (l *List) check(node fleet.NodeID) error {
	switch {
	case l.nodes == nil:
		return errs.New(errs.Unavailable, "it is not known yet which nodes are revoked: try again")
	case l.nodes[node]:
		return errs.New(errs.Denied, "node %s is revoked: an operator admits it with orrery unrevoke node %s", node, node)
	}
	return nil
}

// Enter begins a call that is cancelled when the node is revoked. Errors are those of Check, and Exhausted if
// too many calls of the node are in progress.
func (l *List) Enter(node fleet.NodeID, cancel context.CancelFunc) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(node); err != nil {
		return nil, err
	}
	if len(l.calls[node]) >= maxCalls {
		return nil, errs.New(errs.Exhausted, "node %s has %d calls in progress, the most that it may have", node, maxCalls)
	}
	c := &call{cancel}
	if l.calls[node] == nil {
		l.calls[node] = map[*call]bool{}
	}
	l.calls[node][c] = true
	return func() { l.leave(node, c) }, nil
}

func (l *List) leave(node fleet.NodeID, c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.calls[node], c); len(l.calls[node]) == 0 {
		delete(l.calls, node)
	}
}

// Reset implements store.Handler.
func (l *List) Reset(kvs []store.KeyValue, _ int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes = map[fleet.NodeID]bool{}
	for _, kv := range kvs {
		l.revoke(kv.Key)
	}
}

// Apply implements store.Handler.
func (l *List) Apply(changes []store.Change, _ int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		if c.Removed {
			delete(l.nodes, nodeIn(c.Key))
		} else {
			l.revoke(c.Key)
		}
	}
}

func prefix() string { return keys.RevokedNode("").String() }

func nodeIn(key string) fleet.NodeID { return fleet.NodeID(strings.TrimPrefix(key, prefix())) }

// revoke cancels the calls of a node. The caller holds l.mu.
func (l *List) revoke(key string) {
	node := nodeIn(key)
	l.nodes[node] = true
	for c := range l.calls[node] {
		c.cancel()
	}
	if n := len(l.calls[node]); n > 0 {
		l.log.Warn("the calls of a revoked node were ended", "node", string(node), "calls", n)
	}
}
