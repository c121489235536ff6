package blobcache

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/reports"
)

// warmFile stores, in the cache's directory, the versions that are warm, for the next start
// of the agent.
const warmFile = "warm"

// warmState holds the template versions that are completely cached. The cache's lock guards it.
type warmState struct {
	used  []string // digests, most recently used last; at most reports.MaxWarm
	saved []string // the digests as last saved, sorted
}

// MarkUsed records that a directory was built from a template version. m is the part of its
// manifest that other layers do not override. The version becomes warm if all of that part is
// cached. After a restart of the agent it is warm only if the whole version is cached.
func (c *Cache) MarkUsed(digest string, m content.Manifest) {
	if content.ValidDigest(digest) {
		c.touch(versionDir, digest)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.warm.used, digest)
	if at < 0 && !c.hasAll(m) {
		return
	}
	if at >= 0 {
		c.warm.used = slices.Delete(c.warm.used, at, at+1)
	}
	c.warm.used = mostRecent(append(c.warm.used, digest))
}

// hasAll reports whether all content of a manifest is verified. The caller holds the lock.
func (c *Cache) hasAll(m content.Manifest) bool {
	for _, e := range m.Entries {
		if e.Kind != content.FileRegular {
			continue
		}
		if !content.ValidDigest(e.SHA256) {
			return false
		}
		if _, ok := c.verified[c.path(e.SHA256)]; !ok {
			return false
		}
	}
	return true
}

func mostRecent(used []string) []string { return used[max(0, len(used)-reports.MaxWarm):] }

// Warm returns the sorted digests of the completely cached template versions, at most
// reports.MaxWarm, the most recently used ones. It writes to the disk only if they changed.
func (c *Cache) Warm() []string {
	c.loadWarm()
	c.mu.Lock()
	warm := slices.Sorted(slices.Values(c.warm.used))
	changed, order := !slices.Equal(warm, c.warm.saved), slices.Clone(c.warm.used)
	c.warm.saved = warm
	c.mu.Unlock()
	if changed {
		c.saveWarm(order)
	}
	return slices.Clone(warm)
}

// loadWarm reads, once, what an earlier run of the agent saved.
func (c *Cache) loadWarm() {
	c.warmOnce.Do(func() {
		before := c.readWarm()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.warm.saved = slices.Sorted(slices.Values(before))
		before = slices.DeleteFunc(before, func(d string) bool { return slices.Contains(c.warm.used, d) })
		c.warm.used = mostRecent(append(before, c.warm.used...))
	})
}

// saveWarm writes the warm versions, best effort: a version that is missing after a restart
// becomes warm again with its next use.
func (c *Cache) saveWarm(used []string) {
	b, err := json.Marshal(used)
	if err != nil { // cannot happen for strings
		return
	}
	tmp := filepath.Join(c.dir, warmFile+".new")
	if os.WriteFile(tmp, b, 0o644) != nil || os.Rename(tmp, filepath.Join(c.dir, warmFile)) != nil {
		_ = os.Remove(tmp)
	}
}

// readWarm returns the saved digests whose versions are still complete.
func (c *Cache) readWarm() []string {
	b, err := os.ReadFile(filepath.Join(c.dir, warmFile))
	var used []string
	if err != nil || json.Unmarshal(b, &used) != nil {
		return nil
	}
	return slices.DeleteFunc(mostRecent(used), func(d string) bool { return !c.completeOnDisk(d) })
}

// completeOnDisk reports whether the manifest and all content of a version are cached with the
// right sizes. It does not verify hashes.
func (c *Cache) completeOnDisk(digest string) bool {
	if !content.ValidDigest(digest) {
		return false
	}
	m, err := readManifest(c.path(digest))
	if err != nil {
		return false
	}
	for _, e := range m.Entries {
		if e.Kind != content.FileRegular {
			continue
		}
		if !content.ValidDigest(e.SHA256) {
			return false
		}
		fi, err := os.Stat(c.path(e.SHA256))
		if err != nil || !fi.Mode().IsRegular() || fi.Size() != e.Size {
			return false
		}
	}
	return true
}
