package peer

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// freshFor is how long the list of the others is used before it is read again: a
// version's blobs are fetched by one list.
const freshFor = 2 * time.Second

// neighbours are the replicas that live beside this one.
type neighbours struct {
	mu   sync.Mutex
	urls []string
	read time.Time
}

// urlsNow is what was read last.
func (n *neighbours) urlsNow() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.urls
}

// look reads anew who lives, unless that was just done.
func (m *Mirror) look(ctx context.Context) error {
	n := &m.others
	n.mu.Lock()
	fresh := !n.read.IsZero() && time.Since(n.read) < freshFor
	n.mu.Unlock()
	if fresh {
		return nil
	}
	urls, err := m.peers(ctx)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.urls, n.read = urls, time.Now()
	return nil
}

// peers are the URLs of the other replicas that live.
func (m *Mirror) peers(ctx context.Context) (urls []string, err error) {
	sessions, _, err := store.List(ctx, m.cfg.Store, store.Sessions("templatesvc"))
	for _, s := range sessions {
		if s.Replica != m.cfg.Replica && s.URL != "" {
			urls = append(urls, s.URL)
		}
	}
	return urls, errs.Wrap("peer.peers", err)
}

// Blob opens what another replica has. Errors as of blob.Elsewhere.
func (m *Mirror) Blob(ctx context.Context, sum string) (io.ReadCloser, error) {
	if err := m.look(ctx); err != nil {
		return nil, err
	}
	body, err := m.client.Held(ctx, sum)
	return body, errs.Wrap("peer.Blob", err)
}

// Recipe is what another replica joins a large file from. Errors as of blob.Elsewhere.
func (m *Mirror) Recipe(ctx context.Context, sum string) (fleet.Content, error) {
	if err := m.look(ctx); err != nil {
		return fleet.Content{}, err
	}
	c, err := m.client.Recipe(ctx, sum)
	return c, errs.Wrap("peer.Recipe", err)
}
