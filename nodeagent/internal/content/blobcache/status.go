package blobcache

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// MaxListed is the maximum number of versions per Status call, which reads their manifests.
const MaxListed = 500

// warmers is how many versions WarmUp fetches concurrently. It is small because starts of
// instances have priority.
const warmers = 2

// Version describes a template version that the cache knows.
type Version struct {
	Digest string
	// Bytes is the size of its files. Files with equal content count once.
	Bytes int64
	// Complete is true if all its content is cached. The cache verifies it before use.
	Complete bool
	// UsedAt is when a directory was last built from it, or when it was first requested.
	UsedAt time.Time
	// InUse is true while it is pinned, or an instance needs it.
	InUse bool
}

// Artifact describes a cached artifact of the catalog.
type Artifact struct {
	// Hash is its SHA-256, Bytes its size.
	Hash  string
	Bytes int64
	// CachedAt is when it was fetched, UsedAt when it was last used.
	CachedAt, UsedAt time.Time
}

// Status describes the content of the cache.
type Status struct {
	// Bytes is the total size, Limit the configured maximum; 0 means unlimited.
	Bytes, Limit int64
	// Versions holds at most MaxListed versions, most recently used first.
	Versions []Version
	// More is the number of versions after those in Versions.
	More int
	// Artifacts holds at most MaxListed artifacts, most recently used first. Only the
	// first page has them.
	Artifacts []Artifact
}

// Size returns the number of bytes in the cache.
func (c *Cache) Size() int64 {
	c.scan()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.files.total
}

// Status describes the cache. It skips the first `after` versions.
func (c *Cache) Status(after int) Status {
	c.scan()
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
		} else { // its manifest was evicted
			all = append(all, Version{Digest: digest, UsedAt: uses[digest]})
		}
	}
	var artifacts []Artifact
	if after <= 0 {
		artifacts = c.artifacts()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{Bytes: c.files.total, Limit: c.limit, Versions: all, More: len(digests) - len(listed), Artifacts: artifacts}
}

// artifacts returns the cached artifacts of the catalog, most recently used first.
func (c *Cache) artifacts() []Artifact {
	var all []Artifact
	for hash, used := range c.useTimes(artifactDir) {
		if fi, err := os.Lstat(c.path(hash)); err == nil { // else it was evicted
			all = append(all, Artifact{Hash: hash, Bytes: fi.Size(), CachedAt: fi.ModTime(), UsedAt: used})
		}
	}
	slices.SortFunc(all, func(a, b Artifact) int { return cmp.Or(b.UsedAt.Compare(a.UsedAt), cmp.Compare(a.Hash, b.Hash)) })
	return all[:min(len(all), MaxListed)]
}

func (c *Cache) version(digest string, at time.Time, m content.Manifest) Version {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := Version{Digest: digest, Complete: true, UsedAt: at, InUse: c.files.pins[c.path(digest)] > 0 || c.files.uses(digest)}
	seen := map[string]bool{}
	for _, e := range m.Entries {
		if e.Kind != content.FileRegular || seen[e.SHA256] || !content.ValidDigest(e.SHA256) {
			continue
		}
		seen[e.SHA256] = true
		v.Bytes += e.Size
		if _, ok := c.files.sizes[c.path(e.SHA256)]; !ok {
			v.Complete = false
		}
	}
	return v
}

// WarmResult is the result of warming one version.
type WarmResult struct {
	Digest string
	// Bytes is the number of bytes fetched, including repeated transfers. It does not
	// count content that was cached or copied from other cached files.
	Bytes int64
	// Err is why the version is incomplete; nil if it is complete and verified.
	Err error
}

// WarmUp fetches whole versions, so that later starts find them cached. It verifies versions
// that are cached already. The results are in the order of the digests.
func (c *Cache) WarmUp(ctx context.Context, digests []string) []WarmResult {
	all := make([]WarmResult, len(digests))
	slots := make(chan struct{}, warmers)
	var running sync.WaitGroup
	for n, digest := range digests {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			bytes, err := c.warmUp(ctx, digest)
			all[n] = WarmResult{Digest: digest, Bytes: bytes, Err: err}
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
	defer c.Pin([]string{digest}, m.Entries)()
	files, err := regular(m.Entries)
	if err != nil {
		return 0, err
	}
	counted, came := withByteCounter(ctx)
	if err := c.Fetch(counted, files); err != nil {
		if ctx.Err() != nil {
			err = errs.Wrap("blobcache.WarmUp", ctx.Err())
		}
		return came.Load(), err
	}
	c.MarkUsed(digest, m)
	return came.Load(), nil
}
