package store

import (
	"log/slog"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/handshake"
)

// awayAfter is how long etcd may be silent before it counts as away. Elections and restarts of a
// member are shorter.
const awayAfter = 2 * time.Second

// contact tracks whether etcd is reachable. It sends nothing itself. Callers that retry until they
// get an answer, i.e. followers and Join, report to it. A follower makes a call whenever its
// connection broke.
type contact struct {
	log       *slog.Logger
	endpoints []string
	refusal   handshake.Refusal

	mu sync.Mutex
	// answeredAt is when etcd last answered. lost is since when a caller waits without an answer, zero
	// if none does.
	answeredAt, lost time.Time
	// warning is the timer for the log message. warned is true once it was logged.
	warning *time.Timer
	warned  bool
	// asked counts the waiting callers. failed is true once one of them failed.
	asked  int
	failed bool
}

// asking records that a caller waits for etcd. The caller must call answered with the outcome.
func (c *contact) asking() (answered func(error)) {
	began := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	c.wait(began)
	return func(err error) { c.outcome(began, err) }
}

// wait starts an outage unless one is in progress. It requires c.mu.
func (c *contact) wait(since time.Time) {
	if c.lost.IsZero() {
		c.lost = since
		c.warning = time.AfterFunc(awayAfter, c.warn)
	}
}

// end ends an outage. It requires c.mu.
func (c *contact) end() {
	if c.warning != nil {
		c.warning.Stop()
	}
	c.lost, c.warned, c.failed = time.Time{}, false, false
}

func (c *contact) warn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost.IsZero() || c.warned || time.Since(c.lost) < awayAfter {
		return // answered meanwhile
	}
	c.warned = true
	attrs := []any{"endpoints", c.endpoints, "since", c.lost.UTC().Format(time.RFC3339)}
	if reason := c.refusal.Reason(); reason != nil {
		attrs = append(attrs, "reason", reason)
	}
	c.log.Warn("etcd is not reachable: nothing is decided or written until it is back; running instances continue", attrs...)
}

func (c *contact) outcome(began time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked--
	switch {
	case errs.Is(err, errs.Canceled):
		if c.asked == 0 && !c.failed { // a cancelled call says nothing about etcd
			c.end()
		}
	case !errs.Is(err, errs.Unavailable): // any other error is also an answer
		c.answeredAt = time.Now()
		if c.warned {
			c.log.Info("etcd is reachable again", "endpoints", c.endpoints, "after", c.answeredAt.Sub(c.lost).Round(time.Millisecond).String())
		}
		c.end()
	case began.After(c.answeredAt): // otherwise another caller got an answer since
		c.failed = true
		c.wait(began)
	}
}

// stop ends the warnings when the client is closed.
func (c *contact) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
}

// Away reports since when etcd has been unreachable. away is false while it is reachable and
// during the first two seconds of an outage. Broken watches detect an outage, so this only works
// for a client that follows something. An etcd other than the one joined also counts as away.
func (c *Client) Away() (since time.Time, away bool) {
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	since = c.contact.lost
	return since, !since.IsZero() && time.Since(since) > awayAfter
}
