package replication

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// freshFor is how long the list of other replicas is cached. The blobs of one version use
// the same list.
const freshFor = 2 * time.Second

// neighbours caches the URLs of the other live replicas.
type neighbours struct {
	mu   sync.Mutex
	urls []string
	read time.Time
}

// urlsNow returns the cached URLs.
func (n *neighbours) urlsNow() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.urls
}

// look updates the cached URLs if they are older than freshFor. It reads them without the lock,
// so that no caller waits for etcd beyond its own context.
func (m *Mirror) look(ctx context.Context) error {
	if m.others.fresh() {
		return nil
	}
	urls, err := m.peers(ctx)
	if err != nil {
		return err
	}
	m.others.set(urls)
	return nil
}

func (n *neighbours) fresh() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Since(n.read) < freshFor
}

func (n *neighbours) set(urls []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.urls, n.read = urls, time.Now()
}

// peers reads the URLs of the other live replicas.
func (m *Mirror) peers(ctx context.Context) (urls []string, err error) {
	sessions, _, err := store.List(ctx, m.cfg.Store, keys.Sessions("templatesvc"))
	for _, s := range sessions {
		if s.Replica != m.cfg.Replica && s.URL != "" {
			urls = append(urls, s.URL)
		}
	}
	return urls, errs.Wrap("peer.peers", err)
}

// Blob opens a blob that another replica has. It returns the errors of blob.Elsewhere.
func (m *Mirror) Blob(ctx context.Context, sum string) (io.ReadCloser, error) {
	if err := m.look(ctx); err != nil {
		return nil, err
	}
	body, err := m.client.Held(ctx, sum)
	return body, errs.Wrap("peer.Blob", err)
}

// Recipe returns the chunks of a large file from another replica. It returns the errors of
// blob.Elsewhere.
func (m *Mirror) Recipe(ctx context.Context, sum string) (content.Content, error) {
	if err := m.look(ctx); err != nil {
		return content.Content{}, err
	}
	c, err := m.client.Recipe(ctx, sum)
	return c, errs.Wrap("peer.Recipe", err)
}
