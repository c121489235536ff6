package store

import (
	"log/slog"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// awayAfter is how long nothing may be heard of etcd before it counts as away:
// elections and restarts of a member are shorter.
const awayAfter = 2 * time.Second

// contact is what a client knows of etcd's being there. It asks nothing itself: it
// is told by those who ask until they have an answer, i.e. by followers and by
// whoever joins. A follower asks whenever its connection broke.
type contact struct {
	log       *slog.Logger
	endpoints []string

	mu sync.Mutex
	// heard is when etcd was last known to answer; lost since when somebody waits for
	// it in vain, zero while nobody does.
	heard, lost time.Time
	// warning tells the log that etcd is away, told that it has.
	warning *time.Timer
	told    bool
	// asked counts those who wait for an answer; failed is true once one had none.
	asked  int
	failed bool
}

// asking notes that an answer of etcd is waited for; what it returns is to be
// called with the outcome.
func (c *contact) asking() (answered func(error)) {
	began := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	c.wait(began)
	return func(err error) { c.outcome(began, err) }
}

// wait begins an outage, if none has begun. c.mu is held.
func (c *contact) wait(since time.Time) {
	if c.lost.IsZero() {
		c.lost = since
		c.warning = time.AfterFunc(awayAfter, c.warn)
	}
}

// end is the end of an outage, if there is one. c.mu is held.
func (c *contact) end() {
	if c.warning != nil {
		c.warning.Stop()
	}
	c.lost, c.told, c.failed = time.Time{}, false, false
}

func (c *contact) warn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost.IsZero() || c.told || time.Since(c.lost) < awayAfter {
		return // answered meanwhile
	}
	c.told = true
	c.log.Warn("etcd not reachable: nothing is decided or written until it is; what runs goes on",
		"endpoints", c.endpoints, "since", c.lost.UTC().Format(time.RFC3339))
}

func (c *contact) outcome(began time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked--
	switch {
	case errs.Is(err, errs.Canceled):
		if c.asked == 0 && !c.failed { // whoever asked gave up, which says nothing
			c.end()
		}
	case !errs.Is(err, errs.Unavailable): // any other error is an answer too
		c.heard = time.Now()
		if c.told {
			c.log.Info("etcd is reachable again", "endpoints", c.endpoints, "after", c.heard.Sub(c.lost).Round(time.Millisecond).String())
		}
		c.end()
	case began.After(c.heard): // otherwise somebody else has had an answer since
		c.failed = true
		c.wait(began)
	}
}

// stop ends the warnings: the client is not used any more.
func (c *contact) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
}

// Away reports since when etcd has not been reachable; false while it is, and in
// the first two seconds of an outage. It is noticed by the watches that break: ask
// a client whose process follows something. An etcd that is not the one that was
// joined is away, too.
func (c *Client) Away() (since time.Time, away bool) {
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	since = c.contact.lost
	return since, !since.IsZero() && time.Since(since) > awayAfter
}
