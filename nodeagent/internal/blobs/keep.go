package blobs

import (
	"os"
	"path/filepath"
	"slices"
	"time"
)

// artifactDir holds, like versionDir, an empty file for each artifact of the catalog: its
// time is when it was used last.
const artifactDir = "artifacts"

// Needs are what somebody's directory was built of, or will be.
type Needs struct {
	// Versions are digests of template versions, Artifacts hashes of the catalog's.
	Versions, Artifacts []string
}

func (n Needs) nothing() bool { return len(n.Versions)+len(n.Artifacts) == 0 }

// Keep has what somebody needs stay in the cache as long as it is here, until the same
// one needs something else; no needs at all let go of it. It fetches nothing and
// removes nothing; see Trim.
func (c *Cache) Keep(who string, what Needs) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if what.nothing() {
		delete(c.stock.needs, who)
		return
	}
	c.stock.needs[who] = what
}

// Trim removes what the cache holds beyond its limit and nobody needs any more, and what has
// not become whole for long.
func (c *Cache) Trim() {
	c.counted()
	c.dropStale()
	c.makeRoom(0)
}

// uses reports whether somebody needs a version. The lock is held.
func (s *stock) uses(version string) bool {
	for _, n := range s.needs {
		if slices.Contains(n.Versions, version) {
			return true
		}
	}
	return false
}

// usedArtifact notes that an artifact was used. On a full disk it is forgotten: then it
// is the first to go, and fetched anew.
func (c *Cache) usedArtifact(hash string) {
	path, now := filepath.Join(c.dir, artifactDir, hash), time.Now()
	if os.Chtimes(path, now, now) != nil && os.MkdirAll(filepath.Dir(path), 0o755) == nil {
		_ = os.WriteFile(path, nil, 0o644)
		_ = os.Chtimes(path, now, now) // finer than the file system's own clock: what was used after another goes after it
	}
}
