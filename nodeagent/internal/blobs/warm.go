package blobs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// warmFile remembers, below the cache's directory, what was used last: a later
// agent on the same directory has it all at hand still.
const warmFile = "warm"

// warmth is which template versions are wholly in the cache, those used last first
// to stay. The cache's lock guards it.
type warmth struct {
	used  []string // digests, that used last at the end; at most fleet.MaxWarm
	saved []string // the same as they were last saved, in order of digest
}

// Used notes that a directory was built of a template version, of which m is what
// other layers have left. It counts as warm when all of that is here; after a restart
// of the agent, only when the rest is here too.
func (c *Cache) Used(digest string, m fleet.Manifest) {
	c.touch(digest)
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.warm.used, digest)
	if at < 0 && !c.holds(m) {
		return
	}
	if at >= 0 {
		c.warm.used = slices.Delete(c.warm.used, at, at+1)
	}
	c.warm.used = last(append(c.warm.used, digest))
}

// holds reports whether all content of a manifest was verified. The lock is held.
func (c *Cache) holds(m fleet.Manifest) bool {
	for _, e := range m.Entries {
		if e.Kind != fleet.FileRegular {
			continue
		}
		if !fleet.ValidDigest(e.SHA256) {
			return false
		}
		if _, ok := c.verified[c.path(e.SHA256)]; !ok {
			return false
		}
	}
	return true
}

func last(used []string) []string { return used[max(0, len(used)-fleet.MaxWarm):] }

// Warm are the digests of the template versions that are wholly in the cache, those
// used last, in order of digest; at most fleet.MaxWarm. Nothing is read or written
// unless they changed.
func (c *Cache) Warm() []string {
	c.recall()
	c.mu.Lock()
	warm := slices.Sorted(slices.Values(c.warm.used))
	changed, order := !slices.Equal(warm, c.warm.saved), slices.Clone(c.warm.used)
	c.warm.saved = warm
	c.mu.Unlock()
	if changed {
		c.save(order)
	}
	return slices.Clone(warm)
}

// recall reads once what a former agent saved.
func (c *Cache) recall() {
	c.remember.Do(func() {
		before := c.remembered()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.warm.saved = slices.Sorted(slices.Values(before))
		before = slices.DeleteFunc(before, func(d string) bool { return slices.Contains(c.warm.used, d) })
		c.warm.used = last(append(before, c.warm.used...))
	})
}

// save writes what was used last. What cannot be written is missing after a
// restart, until it is used again: no reason to trouble anybody.
func (c *Cache) save(used []string) {
	b, err := json.Marshal(used)
	if err != nil { // strings only
		return
	}
	tmp := filepath.Join(c.dir, warmFile+".new")
	if os.WriteFile(tmp, b, 0o644) != nil || os.Rename(tmp, filepath.Join(c.dir, warmFile)) != nil {
		_ = os.Remove(tmp)
	}
}

// remembered are the digests a former agent saved that are still whole.
func (c *Cache) remembered() []string {
	b, err := os.ReadFile(filepath.Join(c.dir, warmFile))
	var used []string
	if err != nil || json.Unmarshal(b, &used) != nil {
		return nil
	}
	return slices.DeleteFunc(last(used), func(d string) bool { return !c.stands(d) })
}

// stands reports whether files of the right sizes stand for a version and all its
// content. They are verified before anybody gets them.
func (c *Cache) stands(digest string) bool {
	if !fleet.ValidDigest(digest) {
		return false
	}
	b, err := os.ReadFile(c.path(digest))
	var m fleet.Manifest
	if err != nil || json.Unmarshal(b, &m) != nil {
		return false
	}
	for _, e := range m.Entries {
		if e.Kind != fleet.FileRegular {
			continue
		}
		if !fleet.ValidDigest(e.SHA256) {
			return false
		}
		fi, err := os.Stat(c.path(e.SHA256))
		if err != nil || !fi.Mode().IsRegular() || fi.Size() != e.Size {
			return false
		}
	}
	return true
}
