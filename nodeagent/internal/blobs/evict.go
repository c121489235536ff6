package blobs

import (
	"cmp"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	versionDir = "versions"
	// partialKept is how long a file stays for the next attempt that did not become whole.
	partialKept = 24 * time.Hour
)

// stock is what stands in the cache and who uses it. The cache's lock guards it.
type stock struct {
	sizes map[string]int64 // by path, in bytes
	total int64
	pins  map[string]int // by path, how many hold it
	// needs are what stays as long as it is here, by who needs it.
	needs map[string]Needs
	// going are files, by path, that are left for so many who take pieces of them, and then
	// go.
	going map[string]int
}

func (s *stock) put(path string, size int64) {
	s.total += size - s.sizes[path]
	s.sizes[path] = size
}

func (s *stock) remove(path string) {
	s.total -= s.sizes[path]
	delete(s.sizes, path)
}

// staying is what the files hold that are not to go, in bytes.
func (s *stock) staying() int64 {
	bytes := s.total
	for p := range s.going {
		bytes -= s.sizes[p]
	}
	return bytes
}

// Hold keeps versions' lists and the content of entries in the cache until it is
// released, which may be done more than once.
func (c *Cache) Hold(digests []string, entries []fleet.ManifestEntry) (release func()) {
	var paths []string
	for _, d := range digests {
		if fleet.ValidDigest(d) {
			paths = append(paths, c.path(d))
		}
	}
	for _, e := range entries {
		if e.Kind == fleet.FileRegular && fleet.ValidDigest(e.SHA256) {
			paths = append(paths, c.path(e.SHA256))
			if len(e.Chunks) > 0 { // as long as it is not whole
				paths = append(paths, c.partialPath(e.SHA256))
			}
		}
	}
	return c.pin(paths)
}

// pin keeps files in the cache until they are released, which may be done more than once.
func (c *Cache) pin(paths []string) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range paths {
		c.stock.pins[p]++
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		for _, p := range paths {
			if c.stock.pins[p]--; c.stock.pins[p] == 0 {
				delete(c.stock.pins, p)
			}
		}
		c.mu.Unlock()
		c.makeRoom(0)
	})
}

// letGo lets files go that evict left for a while, those that nobody else wants left.
func (c *Cache) letGo(paths []string) {
	if len(paths) == 0 {
		return
	}
	c.mu.Lock()
	for _, p := range paths {
		if c.stock.going[p]--; c.stock.going[p] == 0 {
			delete(c.stock.going, p)
		}
	}
	c.mu.Unlock()
	c.makeRoom(0)
}

// lacking are the entries whose content is not here, and how many bytes of it are also not
// here in part.
func (c *Cache) lacking(entries []fleet.ManifestEntry) (files []fleet.ManifestEntry, bytes int64) {
	c.counted()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range entries {
		if _, ok := c.stock.sizes[c.path(e.SHA256)]; !ok {
			files = append(files, e)
			bytes += max(0, e.Size-c.stock.sizes[c.partialPath(e.SHA256)])
		}
	}
	return files, bytes
}

// makeRoom removes what was not used for longest, until so many bytes fit below the limit.
func (c *Cache) makeRoom(bytes int64) { c.makeRoomBut(bytes, nil) }

// makeRoomBut is makeRoom that leaves some files until they are released. They count as
// gone, so that nothing else goes for them.
func (c *Cache) makeRoomBut(bytes int64, but map[string]bool) (release func()) {
	c.counted()
	c.mu.Lock()
	over := c.limit > 0 && c.stock.staying()+bytes > c.limit
	c.mu.Unlock()
	var left []string
	if over {
		_, left = c.evict(c.limit-bytes, but)
	}
	return func() { c.letGo(left) }
}

// free removes so many bytes of what was not used for longest, because the disk is
// full, and reports whether there was anything to remove.
func (c *Cache) free(bytes int64) bool {
	c.counted()
	c.mu.Lock()
	target := c.stock.staying() - bytes
	c.mu.Unlock()
	freed, _ := c.evict(target, nil)
	return freed > 0
}

// evict removes what nobody holds or needs, that not used for longest first, until no
// more than target bytes are left, and reports how many went. Of what is in its turn, the
// files in but are left, which are told, and count as gone until letGo.
func (c *Cache) evict(target int64, but map[string]bool) (freed int64, left []string) {
	used := c.lastUses()
	c.readLists(c.neededVersions())
	c.mu.Lock()
	defer c.mu.Unlock()
	needed := c.needed() // nobody comes to need anything before it is done
	found := c.stocked(used)
	gone := map[string]bool{}
	for _, f := range found {
		if c.stock.staying() <= target {
			break
		}
		p := f.path
		if needed[f.sum] && !c.inPart(p) || c.stock.pins[p] > 0 || c.fetching(p) {
			continue
		}
		if but[p] {
			c.stock.going[p]++
			left = append(left, p)
		}
		if c.stock.going[p] > 0 {
			continue
		}
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		freed += c.stock.sizes[p]
		c.stock.remove(p)
		delete(c.verified, p)
		gone[p] = true
	}
	if len(gone) > 0 {
		c.lost(gone)
	}
	return freed, left
}

// stocked is a file of the cache and when its content was used last.
type stocked struct {
	path string
	sum  sum256
	used time.Time
}

// stocked are all files of the cache, those not used for longest first. What is not whole
// was never used. The lock is held.
func (c *Cache) stocked(uses map[sum256]time.Time) []stocked {
	all := make([]stocked, 0, len(c.stock.sizes))
	for p := range c.stock.sizes {
		f := stocked{path: p}
		f.sum, _ = sumOf(filepath.Base(p))
		if !c.inPart(p) {
			f.used = uses[f.sum]
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b stocked) int {
		return cmp.Or(a.used.Compare(b.used), strings.Compare(a.path, b.path))
	})
	return all
}

// fetching reports whether a file, or the one it shall become, is fetched just now. The
// lock is held.
func (c *Cache) fetching(path string) bool {
	return c.flights[path] != nil || c.inPart(path) && c.flights[c.path(filepath.Base(path))] != nil
}

// inPart reports whether a file is one on its way.
func (c *Cache) inPart(path string) bool {
	return filepath.Dir(path) == filepath.Join(c.dir, partialDir)
}

// dropStale removes files on their way that nobody has brought on for long, which a cache
// without a limit would keep for ever.
func (c *Cache) dropStale() {
	entries, err := os.ReadDir(filepath.Join(c.dir, partialDir))
	if err != nil {
		return
	}
	for _, e := range entries {
		name := filepath.Join(c.dir, partialDir, e.Name())
		if fi, err := e.Info(); err != nil || !fleet.ValidDigest(e.Name()) || time.Since(fi.ModTime()) <= partialKept {
			continue
		}
		c.mu.Lock()
		if c.stock.pins[name] == 0 && !c.fetching(name) && os.Remove(name) == nil {
			c.stock.remove(name)
		}
		c.mu.Unlock()
	}
}

// dropPartials removes what came of files for which the disk has no room.
func (c *Cache) dropPartials(files []fleet.ManifestEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range files {
		if name := c.partialPath(e.SHA256); len(e.Chunks) > 0 && !c.fetching(name) && os.Remove(name) == nil {
			c.stock.remove(name)
		}
	}
}

// lost takes versions off the warm ones whose content went. The lock is held.
func (c *Cache) lost(gone map[string]bool) {
	c.warm.used = slices.DeleteFunc(c.warm.used, func(digest string) bool {
		if gone[c.path(digest)] {
			return true
		}
		contents, ok := c.list(digest)
		return !ok || slices.ContainsFunc(contents, func(s sum256) bool { return gone[c.path(hex.EncodeToString(s[:]))] })
	})
	for digest := range c.manifests {
		if gone[c.path(digest)] {
			delete(c.manifests, digest)
		}
	}
	maps.DeleteFunc(c.lists, func(digest string, _ list) bool { return gone[c.path(digest)] })
	for path := range gone { // most are no version's, and have no such file
		_ = os.Remove(filepath.Join(c.dir, versionDir, filepath.Base(path)))
		_ = os.Remove(filepath.Join(c.dir, artifactDir, filepath.Base(path)))
	}
}

// versions are those that were ever asked for and are not forgotten, with the time of
// their last use.
func (c *Cache) versions() map[string]time.Time { return c.marks(versionDir) }

// marks are the times of the empty files of a directory, by their names.
func (c *Cache) marks(dir string) map[string]time.Time {
	all := map[string]time.Time{}
	entries, err := os.ReadDir(filepath.Join(c.dir, dir))
	if err != nil {
		return all
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fleet.ValidDigest(e.Name()) {
			all[e.Name()] = fi.ModTime()
		}
	}
	return all
}

// seen notes that a version was asked for, and touch that it was used. On a full disk it
// is forgotten: then it is the first to go, and fetched anew.
func (c *Cache) seen(digest string) {
	path := filepath.Join(c.dir, versionDir, digest)
	if _, err := os.Lstat(path); err != nil {
		now := time.Now()
		_ = os.WriteFile(path, nil, 0o644)
		_ = os.Chtimes(path, now, now) // as usedArtifact does
	}
}

func (c *Cache) touch(digest string) {
	if fleet.ValidDigest(digest) {
		now := time.Now()
		_ = os.Chtimes(filepath.Join(c.dir, versionDir, digest), now, now)
	}
}

// counted has the cache know what stands in it. What a former agent did not bring to an
// end goes.
func (c *Cache) counted() {
	c.count.Do(func() {
		_ = filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // what cannot be read cannot be removed either
			}
			fi, err := d.Info()
			if err != nil || !fi.Mode().IsRegular() {
				return nil
			}
			c.found(path, fi)
			return nil
		})
	})
}

func (c *Cache) found(path string, fi fs.FileInfo) {
	stale, size := time.Since(fi.ModTime()) > partialKept, fi.Size()
	switch {
	case strings.HasPrefix(fi.Name(), underway), c.inPart(path):
		if stale { // a younger one may be on its way just now
			_ = os.Remove(path)
			return
		}
		size = allocated(fi)
	case filepath.Dir(path) == filepath.Join(c.dir, versionDir), filepath.Dir(path) == filepath.Join(c.dir, artifactDir):
		return
	}
	if fleet.ValidDigest(fi.Name()) {
		c.mu.Lock()
		c.stock.put(path, size)
		c.mu.Unlock()
	}
}

// allocated is what a file with holes takes of the disk, in bytes.
func allocated(fi fs.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return fi.Size()
}
