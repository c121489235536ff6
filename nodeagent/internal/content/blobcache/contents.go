package blobcache

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

// sum is the binary form of a hash, to save memory.
type sum [sha256.Size]byte

// parseSum parses a hash; ok is false if it is not a SHA-256.
func parseSum(hash string) (s sum, ok bool) {
	if !content.ValidDigest(hash) {
		return s, false
	}
	n, err := hex.Decode(s[:], []byte(hash))
	return s, err == nil && n == len(s)
}

// versionContents is the content a version refers to, and the stamp of the manifest it was
// read from. It uses less memory than the manifest does.
type versionContents struct {
	stamp    stamp
	contents []sum
	readable bool
}

// loadContents reads the contents of versions whose manifests are cached, unless they are
// in memory and unchanged.
func (c *Cache) loadContents(digests []string) {
	for _, d := range digests {
		fi, err := os.Stat(c.path(d))
		c.mu.Lock()
		known, ok := c.contents[d]
		if err != nil {
			delete(c.contents, d)
		}
		c.mu.Unlock()
		if err != nil || ok && known.stamp == stampOf(fi) {
			continue
		}
		read := readContents(c.path(d), fi)
		c.mu.Lock()
		c.contents[d] = read
		c.mu.Unlock()
	}
}

func readContents(path string, fi fs.FileInfo) versionContents {
	m, err := readManifest(path)
	if err != nil {
		return versionContents{stamp: stampOf(fi)}
	}
	l := versionContents{stamp: stampOf(fi), readable: true}
	for _, e := range m.Entries {
		if s, ok := parseSum(e.SHA256); ok && e.Kind == content.FileRegular {
			l.contents = append(l.contents, s)
		}
	}
	l.contents = slices.Clip(l.contents)
	return l
}

// contentsOf returns the content of a version; ok is false if the manifest is missing or
// unreadable. The caller holds the lock. It reads the manifest if loadContents did not, which is rare.
func (c *Cache) contentsOf(digest string) (contents []sum, ok bool) {
	l, known := c.contents[digest]
	if !known {
		fi, err := os.Stat(c.path(digest))
		if err != nil {
			return nil, false
		}
		l = readContents(c.path(digest), fi)
		c.contents[digest] = l
	}
	return l.contents, l.readable
}

// lastUses returns when each content was last used. Content that belongs to no artifact and
// to no known version is missing from the result.
func (c *Cache) lastUses() map[sum]time.Time {
	uses := map[sum]time.Time{}
	note := func(s sum, at time.Time) {
		if at.After(uses[s]) {
			uses[s] = at
		}
	}
	name := func(hash string, at time.Time) {
		if s, ok := parseSum(hash); ok {
			note(s, at)
		}
	}
	for hash, at := range c.useTimes(artifactDir) {
		name(hash, at)
	}
	versions := c.versions()
	c.loadContents(slices.Collect(maps.Keys(versions)))
	c.mu.Lock()
	defer c.mu.Unlock()
	for digest, at := range versions {
		name(digest, at)
		contents, _ := c.contentsOf(digest)
		for _, s := range contents {
			note(s, at)
		}
	}
	return uses
}

// neededSums returns the content that SetNeeds protects. The caller holds the lock.
func (c *Cache) neededSums() map[sum]bool {
	all := map[sum]bool{}
	for _, n := range c.files.needs {
		for _, a := range n.Artifacts {
			if s, ok := parseSum(a); ok {
				all[s] = true
			}
		}
		for _, v := range n.Versions {
			s, ok := parseSum(v)
			if !ok || all[s] { // the digest of a missing template is empty
				continue
			}
			all[s] = true
			contents, _ := c.contentsOf(v) // unknown for a version that was never cached
			for _, content := range contents {
				all[content] = true
			}
		}
	}
	return all
}

// neededVersions returns the digests of the versions that SetNeeds protects.
func (c *Cache) neededVersions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, n := range c.files.needs {
		for _, v := range n.Versions {
			if content.ValidDigest(v) {
				all = append(all, v)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
