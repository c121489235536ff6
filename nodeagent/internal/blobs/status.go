package blobs

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// MaxListed is how many versions are told of at once: the list of each is read.
const MaxListed = 500

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

// Artifact is an artifact of the catalog that is here.
type Artifact struct {
	// Hash is its SHA-256, Bytes what it holds.
	Hash  string
	Bytes int64
	// CachedAt is when it came, UsedAt when it was used last.
	CachedAt, UsedAt time.Time
}

// Status is what the cache holds.
type Status struct {
	// Bytes is all of it, Limit what it may be but for what is in use; 0: no limit.
	Bytes, Limit int64
	// Versions are in order of their last use, the latest first; MaxListed at most.
	Versions []Version
	// More is how many follow.
	More int
	// Artifacts are in order of their last use, the latest first; MaxListed at most, and
	// with the first versions alone.
	Artifacts []Artifact
}

// Size is how many bytes the cache holds.
func (c *Cache) Size() int64 {
	c.counted()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stock.total
}

// Status reads what the cache holds, of its versions those after so many.
func (c *Cache) Status(after int) Status {
	c.counted()
	uses := c.versions()
	digests := slices.SortedFunc(maps.Keys(uses), func(a, b string) int {
		return cmp.Or(uses[b].Compare(uses[a]), cmp.Compare(a, b))
	})
	digests = digests[min(max(after, 0), len(digests)):]
	listed := digests[:min(MaxListed, len(digests))]
	all := make([]Version, 0, len(listed))
	for _, digest := range listed {
		if m, err := readManifest(c.path(digest)); err == nil {
			all = append(all, c.version(digest, uses[digest], m))
		} else { // its list is not here any more
			all = append(all, Version{Digest: digest, UsedAt: uses[digest]})
		}
	}
	var artifacts []Artifact
	if after <= 0 {
		artifacts = c.artifacts()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{Bytes: c.stock.total, Limit: c.limit, Versions: all, More: len(digests) - len(listed), Artifacts: artifacts}
}

// artifacts are those of the catalog that are here.
func (c *Cache) artifacts() []Artifact {
	var all []Artifact
	for hash, used := range c.marks(artifactDir) {
		if fi, err := os.Lstat(c.path(hash)); err == nil { // else it has gone since it was used
			all = append(all, Artifact{Hash: hash, Bytes: fi.Size(), CachedAt: fi.ModTime(), UsedAt: used})
		}
	}
	slices.SortFunc(all, func(a, b Artifact) int { return cmp.Or(b.UsedAt.Compare(a.UsedAt), cmp.Compare(a.Hash, b.Hash)) })
	return all[:min(len(all), MaxListed)]
}

func (c *Cache) version(digest string, at time.Time, m fleet.Manifest) Version {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := Version{Digest: digest, Complete: true, UsedAt: at, InUse: c.stock.pins[c.path(digest)] > 0 || c.stock.uses(digest)}
	seen := map[string]bool{}
	for _, e := range m.Entries {
		if e.Kind != fleet.FileRegular || seen[e.SHA256] || !fleet.ValidDigest(e.SHA256) {
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
