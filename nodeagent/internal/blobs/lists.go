package blobs

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

// sum256 is a hash as it is remembered.
type sum256 [sha256.Size]byte

// sumOf reads a hash; false when it is none.
func sumOf(hash string) (s sum256, ok bool) {
	if !fleet.ValidDigest(hash) {
		return s, false
	}
	n, err := hex.Decode(s[:], []byte(hash))
	return s, err == nil && n == len(s)
}

// list is which content a version has, and how its file looked when that was read. It
// takes less memory than the file takes of the cache's limit.
type list struct {
	stamp    stamp
	contents []sum256
	readable bool
}

// readLists has the lists of versions in memory that stand in the cache: those that were
// not read yet or look otherwise now are read.
func (c *Cache) readLists(digests []string) {
	for _, d := range digests {
		fi, err := os.Stat(c.path(d))
		c.mu.Lock()
		known, ok := c.lists[d]
		if err != nil {
			delete(c.lists, d)
		}
		c.mu.Unlock()
		if err != nil || ok && known.stamp == stampOf(fi) {
			continue
		}
		read := readList(c.path(d), fi)
		c.mu.Lock()
		c.lists[d] = read
		c.mu.Unlock()
	}
}

func readList(path string, fi fs.FileInfo) list {
	m, err := readManifest(path)
	if err != nil {
		return list{stamp: stampOf(fi)}
	}
	l := list{stamp: stampOf(fi), readable: true}
	for _, e := range m.Entries {
		if s, ok := sumOf(e.SHA256); ok && e.Kind == fleet.FileRegular {
			l.contents = append(l.contents, s)
		}
	}
	l.contents = slices.Clip(l.contents)
	return l
}

// list is a version's list; none when it is not here or cannot be read. The lock is held:
// a list that readLists was not told of is read now, which is seldom.
func (c *Cache) list(digest string) (contents []sum256, ok bool) {
	l, known := c.lists[digest]
	if !known {
		fi, err := os.Stat(c.path(digest))
		if err != nil {
			return nil, false
		}
		l = readList(c.path(digest), fi)
		c.lists[digest] = l
	}
	return l.contents, l.readable
}

// lastUses is when what stands in the cache was used last. What is no artifact and
// belongs to no version that is known was never used.
func (c *Cache) lastUses() map[sum256]time.Time {
	uses := map[sum256]time.Time{}
	note := func(s sum256, at time.Time) {
		if at.After(uses[s]) {
			uses[s] = at
		}
	}
	name := func(hash string, at time.Time) {
		if s, ok := sumOf(hash); ok {
			note(s, at)
		}
	}
	for hash, at := range c.marks(artifactDir) {
		name(hash, at)
	}
	versions := c.versions()
	c.readLists(slices.Collect(maps.Keys(versions)))
	c.mu.Lock()
	defer c.mu.Unlock()
	for digest, at := range versions {
		name(digest, at)
		contents, _ := c.list(digest)
		for _, s := range contents {
			note(s, at)
		}
	}
	return uses
}

// needed is what somebody needs. The lock is held.
func (c *Cache) needed() map[sum256]bool {
	all := map[sum256]bool{}
	for _, n := range c.stock.needs {
		for _, a := range n.Artifacts {
			if s, ok := sumOf(a); ok {
				all[s] = true
			}
		}
		for _, v := range n.Versions {
			s, ok := sumOf(v)
			if !ok || all[s] { // a template that does not exist has none
				continue
			}
			all[s] = true
			contents, _ := c.list(v) // one that was never here has none, and so its content is nobody's
			for _, content := range contents {
				all[content] = true
			}
		}
	}
	return all
}

// neededVersions are the digests of the versions that somebody needs.
func (c *Cache) neededVersions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, n := range c.stock.needs {
		for _, v := range n.Versions {
			if fleet.ValidDigest(v) {
				all = append(all, v)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
