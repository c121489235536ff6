package templatesvc

import (
	"context"
	"net/url"
	"slices"
	"sync"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
)

// allowList follows the allow list in the cluster's settings. A connection to a private
// address waits until the settings have been read once, so that allowed addresses are not
// refused at the start.
type allowList struct {
	// known is closed once the settings have been read.
	known chan struct{}
	learn func()
	// changed is called after each change, so that refused sources are tried again.
	changed func()

	mu      sync.Mutex // guards entries and now
	entries []string
	now     egress.Allowed
}

func newAllowList() *allowList {
	l := &allowList{changed: func() {}, known: make(chan struct{})}
	l.learn = sync.OnceFunc(func() { close(l.known) })
	return l
}

// Allowed returns the current list. It waits until the settings have been read.
func (l *allowList) Allowed(ctx context.Context) (egress.Allowed, error) {
	select {
	case <-l.known:
	case <-ctx.Done():
		return egress.Allowed{}, &errs.Error{
			Op: "templatesvc.Allowed", Kind: errs.KindOf(ctx.Err()), Err: ctx.Err(),
			Message: "the allow list among the settings of the cluster is not read yet: see whether etcd answers",
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, nil
}

// Reset implements store.Handler.
func (l *allowList) Reset(kvs []store.KeyValue, _ int64) {
	if len(kvs) == 0 {
		l.set(nil)
	}
	for _, kv := range kvs {
		l.read(kv)
	}
	l.learn()
}

// Apply implements store.Handler.
func (l *allowList) Apply(changes []store.Change, _ int64) {
	for _, c := range changes {
		if c.Removed {
			l.set(nil)
			continue
		}
		l.read(c.KeyValue)
	}
}

// read reads the list from the active settings. An unreadable record allows nothing.
func (l *allowList) read(kv store.KeyValue) {
	active, err := store.Decode[cluster.ConfigActive](kv)
	if err != nil || active.Patch.AllowedEgress == nil {
		l.set(nil)
		return
	}
	l.set(*active.Patch.AllowedEgress)
}

func (l *allowList) set(entries []string) {
	l.mu.Lock()
	same := slices.Equal(l.entries, entries)
	l.entries, l.now = entries, egress.Parse(entries)
	l.mu.Unlock()
	if !same {
		l.changed()
	}
}

// proxyURL parses the setting egress.proxy. It returns nil for "".
func proxyURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errs.Field("egress.proxy", "must be the URL of an HTTP proxy, like http://proxy.example.org:3128")
	}
	return u, nil
}
