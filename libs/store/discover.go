package store

import (
	"context"
	"slices"
	"sync"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Discovery knows where the live replicas of one service are reached. It
// follows nothing but their sessions. Make it with Discover, then Run it.
type Discovery struct {
	client  *Client
	service string

	mu sync.Mutex
	// urls are the replicas' URLs by session key.
	urls map[string]string
}

// Discover makes a discovery of a service that has seen nobody yet.
func Discover(c *Client, service string) *Discovery {
	return &Discovery{client: c, service: service, urls: map[string]string{}}
}

// Run follows the sessions until ctx ends.
func (d *Discovery) Run(ctx context.Context) error {
	return d.client.Follow(ctx, Sessions(d.service).String(), d)
}

// URLs are the base URLs of the live replicas that have one, sorted.
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

// Reset replaces everything known.
func (d *Discovery) Reset(kvs []KeyValue, _ int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.urls)
	for _, kv := range kvs {
		d.set(kv)
	}
}

// Apply takes in changes.
func (d *Discovery) Apply(changes []Change, _ int64) {
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

// set notes one session; mu is held.
func (d *Discovery) set(kv KeyValue) {
	s, err := Decode[fleet.Session](kv)
	if err != nil || s.URL == "" {
		delete(d.urls, kv.Key)
		return
	}
	d.urls[kv.Key] = s.URL
}
