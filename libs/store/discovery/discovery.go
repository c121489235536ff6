// Package discovery tracks the URLs of the live replicas of a service.
package discovery

import (
	"context"
	"slices"
	"sync"

	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Discovery tracks the URLs of the live replicas of one service. It follows only their sessions.
// Create it with New, then call Run.
type Discovery struct {
	client  *store.Client
	service string
	url     func(cluster.Session) string

	mu sync.Mutex
	// urls are the replicas' URLs by session key.
	urls map[string]string
}

// New returns a Discovery that knows no replicas yet.
func New(c *store.Client, service string) *Discovery {
	return Of(c, service, func(s cluster.Session) string { return s.URL })
}

// Of is New for another URL of the replicas. url returns the empty string for a replica without one.
func Of(c *store.Client, service string, url func(cluster.Session) string) *Discovery {
	return &Discovery{client: c, service: service, url: url, urls: map[string]string{}}
}

// Run follows the sessions until ctx ends.
func (d *Discovery) Run(ctx context.Context) error {
	return d.client.Follow(ctx, keys.Sessions(d.service).String(), d)
}

// URLs returns the sorted base URLs of the live replicas that have one.
func (d *Discovery) URLs() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]string, 0, len(d.urls))
	for _, u := range d.urls {
		out = append(out, u)
	}
	slices.Sort(out)
	return out
}

// Reset implements store.Handler.
func (d *Discovery) Reset(kvs []store.KeyValue, _ int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.urls)
	for _, kv := range kvs {
		d.set(kv)
	}
}

// Apply implements store.Handler.
func (d *Discovery) Apply(changes []store.Change, _ int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range changes {
		if c.Removed {
			delete(d.urls, c.Key)
		} else {
			d.set(c.KeyValue)
		}
	}
}

// set records one session. It requires mu.
func (d *Discovery) set(kv store.KeyValue) {
	s, err := store.Decode[cluster.Session](kv)
	url := ""
	if err == nil {
		url = d.url(s)
	}
	if url == "" {
		delete(d.urls, kv.Key)
		return
	}
	d.urls[kv.Key] = url
}
