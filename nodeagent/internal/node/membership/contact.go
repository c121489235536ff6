package membership

import (
	"cmp"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
)

// logEvery is how often repeated failures to join are logged.
const logEvery = time.Minute

// Contact is the node's connection to the store. It is derived from the session's own
// keep-alives, so that reading it costs the store nothing.
type Contact struct {
	// Epoch identifies the live session; 0 without one.
	Epoch int64
	// Reachable is false if a keep-alive is overdue or there is no session.
	Reachable bool
	// Since is when this state began: the session's start or the last contact. Zero if the
	// store was never reached.
	Since time.Time
	// Last is the last contact; zero if there was none.
	Last time.Time
	// Cluster identifies the store that was joined last; empty if none was.
	Cluster string
	// Problem is why the last attempt to join failed; empty if it succeeded.
	Problem string
}

// Contact returns the node's connection to the store.
func (m *Member) Contact(now time.Time) Contact {
	fence, alive := m.Fence()
	m.mu.Lock()
	defer m.mu.Unlock()
	c := Contact{Cluster: m.cluster, Problem: m.problem}
	if m.session != nil {
		c.Last = m.session.Confirmed()
	}
	c.Since = c.Last
	if !alive {
		return c
	}
	c.Epoch = fence.Epoch()
	// Keep-alives are sent every third of the TTL.
	if ttl := cmp.Or(m.cfg.TTL, store.DefaultTTL); now.Sub(c.Last) <= ttl/2 {
		c.Reachable, c.Since = true, m.joined
	}
	return c
}

// recordFailure records why joining failed, and logs it from time to time.
func (m *Member) recordFailure(err error, now time.Time) {
	m.mu.Lock()
	m.problem = errs.MessageOf(err)
	if m.problem == errs.MessageOf(nil) {
		m.problem = err.Error()
	}
	quiet := now.Sub(m.failureLoggedAt) < logEvery
	if !quiet {
		m.failureLoggedAt = now
	}
	m.mu.Unlock()
	if !quiet {
		m.cfg.Log.Warn("cannot join the fleet: instances keep running, retrying", "error", err)
	}
}

// recordJoin records a new session and logs whether the store was replaced.
func (m *Member) recordJoin(s *store.Session, cluster string, now time.Time) {
	m.mu.Lock()
	before := m.cluster
	m.session, m.cluster, m.joined, m.problem, m.failureLoggedAt = s, cluster, now, "", time.Time{}
	m.mu.Unlock()
	log := m.cfg.Log.With("node", string(m.cfg.Record.ID), "epoch", s.Fence().Epoch())
	if before != "" && before != cluster {
		log.Error("this etcd is not the one that the node joined before: it was emptied or replaced. "+
			"No instance is stopped because of that; instances without a record continue as orphans (nodeagent local list shows them)",
			"cluster", cluster, "before", before)
		return
	}
	log.Info("joined")
}
