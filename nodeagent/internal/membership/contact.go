package membership

import (
	"cmp"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
)

// complainEvery is how often a join that keeps failing is told to operators.
const complainEvery = time.Minute

// Contact is how the node stands with the store. It is known from the session's
// own keep-alives: asking costs the store nothing.
type Contact struct {
	// Epoch identifies the live session; 0 while there is none.
	Epoch int64
	// Reachable is false when a keep-alive is overdue, or there is no session.
	Reachable bool
	// Since is when that began: the session's start, or the last contact. Zero when
	// the store was never reached.
	Since time.Time
	// Last is the last contact; zero when there was none.
	Last time.Time
	// Cluster identifies the store that was joined last; empty when none was.
	Cluster string
	// Problem is why the last attempt to join failed; empty after one that did not.
	Problem string
}

// Contact is how the node stands with the store now.
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
	// A keep-alive is sent every third of the lease.
	if ttl := cmp.Or(m.cfg.TTL, store.DefaultTTL); now.Sub(c.Last) <= ttl/2 {
		c.Reachable, c.Since = true, m.joined
	}
	return c
}

// failed notes why joining failed, and tells operators now and then.
func (m *Member) failed(err error, now time.Time) {
	m.mu.Lock()
	m.problem = errs.MessageOf(err)
	if m.problem == errs.MessageOf(nil) {
		m.problem = err.Error()
	}
	quiet := now.Sub(m.complained) < complainEvery
	if !quiet {
		m.complained = now
	}
	m.mu.Unlock()
	if !quiet {
		m.cfg.Log.Warn("etcd does not take this node in yet: what runs here is kept running and watched; trying on", "error", err)
	}
}

// entered notes a new session and says what became of the store meanwhile.
func (m *Member) entered(s *store.Session, cluster string, now time.Time) {
	m.mu.Lock()
	before := m.cluster
	m.session, m.cluster, m.joined, m.problem, m.complained = s, cluster, now, "", time.Time{}
	m.mu.Unlock()
	log := m.cfg.Log.With("node", string(m.cfg.Record.ID), "epoch", s.Fence().Epoch())
	if before != "" && before != cluster {
		log.Error("this etcd is not the one that was joined before: it was emptied or replaced. "+
			"Nothing is stopped for that; instances it does not know run on as orphans (nodeagent local list shows them)",
			"cluster", cluster, "before", before)
		return
	}
	log.Info("joined")
}
