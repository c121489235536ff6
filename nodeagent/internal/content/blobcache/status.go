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
	"github.com/orreryhq/orrery/nodeagent/client"
)

// MaxListed is the maximum number of versions per Status call, which reads their manifests.
const MaxListed = 500

// warmers is how many versions WarmUp fetches concurrently. It is small because starts of
// instances have priority.
const warmers = 2

// Size returns the number of bytes in the cache.
func (c *Cache) Size() int64 {
	c.scan()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.files.total
}

// Status describes the cache. It skips the first `after` versions, and returns at most MaxListed.
// Only the first page has the artifacts.
func (c *Cache) Status(after int) client.Cache {
	c.scan()
	uses := c.versions()
	digests := slices.SortedFunc(maps.Keys(uses), func(a, b string) int {
		return cmp.Or(uses[b].Compare(uses[a]), cmp.Compare(a, b))
	})
	digests = digests[min(max(after, 0), len(digests)):]
	listed := digests[:min(MaxListed, len(digests))]
	all := make([]client.CachedVersion, 0, len(listed))
	for _, digest := range listed {
		if m, err := readManifest(c.path(digest)); err == nil {
			all = append(all, c.version(digest, uses[digest], m))
		} else { // its manifest was evicted
			all = append(all, client.CachedVersion{Digest: digest, UsedAt: uses[digest].UTC()})
		}
	}
	var artifacts []client.CachedArtifact
	if after <= 0 {
		artifacts = c.artifacts()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return client.Cache{TotalBytes: c.files.total, LimitBytes: c.limit, Versions: all, MoreVersions: len(digests) - len(listed), Artifacts: artifacts}
}

// artifacts returns the cached artifacts of the catalog, most recently used first.
func (c *Cache) artifacts() []client.CachedArtifact {
	var all []client.CachedArtifact
	for hash, used := range c.useTimes(artifactDir) {
		if fi, err := os.Lstat(c.path(hash)); err == nil { // else it was evicted
			all = append(all, client.CachedArtifact{SHA256: hash, Bytes: fi.Size(), CachedAt: fi.ModTime().UTC(), UsedAt: used.UTC()})
		}
	}
	slices.SortFunc(all, func(a, b client.CachedArtifact) int {
		return cmp.Or(b.UsedAt.Compare(a.UsedAt), cmp.Compare(a.SHA256, b.SHA256))
	})
	return all[:min(len(all), MaxListed)]
}

func (c *Cache) version(digest string, at time.Time, m content.Manifest) client.CachedVersion {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := client.CachedVersion{Digest: digest, Complete: true, UsedAt: at.UTC(), InUse: c.files.pins[c.path(digest)] > 0 || c.files.uses(digest)}
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
