package blobs

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// warmers is how many versions are warmed at once: starts come first.
const warmers = 2

// Version is a template version the cache knows.
type Version struct {
	Digest string
	// Bytes is what its files hold, each content once.
	Bytes int64
	// Complete is true when all of it is here; it is verified before it is used.
	Complete bool
	// UsedAt is when a directory was last built of it, or when it was first asked for.
	UsedAt time.Time
	// InUse is true while a directory is built of it, an instance runs that was, or it is
	// warmed.
	InUse bool
}

// Status is what the cache holds.
type Status struct {
	// Bytes is all of it, Limit what it may be but for what is in use; 0: no limit.
	Bytes, Limit int64
	// Versions are in order of their last use, the latest first.
	Versions []Version
}

// Status reads what the cache holds.
func (c *Cache) Status() Status {
	c.counted()
	var all []Version
	for digest, at := range c.versions() {
		if m, err := readManifest(c.path(digest)); err == nil {
			all = append(all, c.version(digest, at, m))
		}
	}
	slices.SortFunc(all, func(a, b Version) int {
		return cmp.Or(b.UsedAt.Compare(a.UsedAt), cmp.Compare(a.Digest, b.Digest))
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{Bytes: c.stock.total, Limit: c.limit, Versions: all}
}

func (c *Cache) version(digest string, at time.Time, m fleet.Manifest) Version {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := Version{Digest: digest, Complete: true, UsedAt: at, InUse: c.stock.pins[c.path(digest)] > 0 || c.stock.uses(digest)}
	seen := map[string]bool{}
	for _, e := range m.Entries {
		if e.Kind != fleet.FileRegular || seen[e.SHA256] || !hashPattern.MatchString(e.SHA256) {
			continue
		}
		seen[e.SHA256] = true
		v.Bytes += e.Size
		if _, ok := c.stock.sizes[c.path(e.SHA256)]; !ok {
			v.Complete = false
		}
	}
	return v
}

// Warmed is what came of warming a version.
type Warmed struct {
	Digest string
	// Bytes is what came for its files from a templatesvc, and came again where it had
	// broken off; not what was here already, also as a piece of another file.
	Bytes int64
	// Err is why it is not wholly here; nil when it is, every hash verified.
	Err error
}

// WarmUp fetches whole versions, so that starts find them, and says of each what came
// of it, in the same order. A version that is here is verified.
func (c *Cache) WarmUp(ctx context.Context, digests []string) []Warmed {
	all := make([]Warmed, len(digests))
	slots := make(chan struct{}, warmers)
	var running sync.WaitGroup
	for n, digest := range digests {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			bytes, err := c.warmUp(ctx, digest)
			all[n] = Warmed{Digest: digest, Bytes: bytes, Err: err}
		})
	}
	running.Wait()
	return all
}

func (c *Cache) warmUp(ctx context.Context, digest string) (fetched int64, err error) {
	m, err := c.Manifest(ctx, digest)
	if err != nil {
		return 0, err
	}
	defer c.Hold([]string{digest}, m.Entries)()
	files, err := regular(m.Entries)
	if err != nil {
		return 0, err
	}
	counted, came := counting(ctx)
	if err := c.Fetch(counted, files); err != nil {
		if ctx.Err() != nil {
			err = errs.Wrap("blobs.WarmUp", ctx.Err())
		}
		return came.Load(), err
	}
	c.Used(digest, m)
	return came.Load(), nil
}
