package blobcache

import "slices"

// artifactDir holds an empty file for each used artifact of the catalog, as versionDir does
// for versions.
const artifactDir = "artifacts"

// Needs names the content that an owner's directory was built from, or will be.
type Needs struct {
	// Versions are digests of template versions, Artifacts hashes of catalog artifacts.
	Versions, Artifacts []string
}

func (n Needs) empty() bool { return len(n.Versions)+len(n.Artifacts) == 0 }

// SetNeeds protects content from eviction until the same owner sets other needs. Empty needs
// release it. It fetches and removes nothing; see Trim.
func (c *Cache) SetNeeds(owner string, needs Needs) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if needs.empty() {
		delete(c.files.needs, owner)
		return
	}
	c.files.needs[owner] = needs
}

// Trim evicts unneeded content beyond the limit, and partial files that are stale.
func (c *Cache) Trim() {
	c.scan()
	c.removeStalePartials()
	c.evictToFit(0)
}

// uses reports whether any owner needs a version. The caller holds the lock.
func (i *inventory) uses(version string) bool {
	for _, n := range i.needs {
		if slices.Contains(n.Versions, version) {
			return true
		}
	}
	return false
}
