package blobcache

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

	"github.com/orreryhq/orrery/libs/fleet/content"
)

const (
	versionDir = "versions"
	// partialKept is how long an incomplete file stays for another attempt.
	partialKept = 24 * time.Hour
)

// inventory holds the files in the cache and their users. The cache's lock guards it.
type inventory struct {
	sizes map[string]int64 // by path, in bytes
	total int64
	pins  map[string]int // by path, the number of holders
	// needs is content that must not be evicted, by owner.
	needs map[string]Needs
	// deferred counts, by path, the fetches that still copy chunks from a file that is due
	// for eviction.
	deferred map[string]int
}

func (i *inventory) put(path string, size int64) {
	i.total += size - i.sizes[path]
	i.sizes[path] = size
}

func (i *inventory) remove(path string) {
	i.total -= i.sizes[path]
	delete(i.sizes, path)
}

// retained is the size of all files that are not due for eviction, in bytes.
func (i *inventory) retained() int64 {
	bytes := i.total
	for p := range i.deferred {
		bytes -= i.sizes[p]
	}
	return bytes
}

// Pin keeps the manifests of versions and the content of entries in the cache until release
// is called. Further calls of release have no effect.
func (c *Cache) Pin(digests []string, entries []content.ManifestEntry) (release func()) {
	var paths []string
	for _, d := range digests {
		if content.ValidDigest(d) {
			paths = append(paths, c.path(d))
		}
	}
	for _, e := range entries {
		if e.Kind == content.FileRegular && content.ValidDigest(e.SHA256) {
			paths = append(paths, c.path(e.SHA256))
			if len(e.Chunks) > 0 { // until the file is complete
				paths = append(paths, c.partialPath(e.SHA256))
			}
		}
	}
	return c.pin(paths)
}

// pin keeps files in the cache until release is called.
func (c *Cache) pin(paths []string) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range paths {
		c.files.pins[p]++
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		for _, p := range paths {
			if c.files.pins[p]--; c.files.pins[p] == 0 {
				delete(c.files.pins, p)
			}
		}
		c.mu.Unlock()
		c.evictToFit(0)
	})
}

// evictDeferred evicts files that evict deferred, unless another fetch still copies from them.
func (c *Cache) evictDeferred(paths []string) {
	if len(paths) == 0 {
		return
	}
	c.mu.Lock()
	for _, p := range paths {
		if c.files.deferred[p]--; c.files.deferred[p] == 0 {
			delete(c.files.deferred, p)
		}
	}
	c.mu.Unlock()
	c.evictToFit(0)
}

// missing returns the entries whose content is not cached, and how many bytes have to be
// fetched. Chunks in partial files do not count.
func (c *Cache) missing(entries []content.ManifestEntry) (files []content.ManifestEntry, bytes int64) {
	c.scan()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range entries {
		if _, ok := c.files.sizes[c.path(e.SHA256)]; !ok {
			files = append(files, e)
			bytes += max(0, e.Size-c.files.sizes[c.partialPath(e.SHA256)])
		}
	}
	return files, bytes
}

// evictToFit evicts least recently used content until bytes more fit below the limit.
func (c *Cache) evictToFit(bytes int64) { c.evictToFitExcept(bytes, nil) }

// evictToFitExcept is evictToFit, but defers the eviction of some files until release is
// called. They count as evicted, so that no other file is evicted in their place.
func (c *Cache) evictToFitExcept(bytes int64, except map[string]bool) (release func()) {
	c.scan()
	c.mu.Lock()
	over := c.limit > 0 && c.files.retained()+bytes > c.limit
	c.mu.Unlock()
	var left []string
	if over {
		_, left = c.evict(c.limit-bytes, except)
	}
	return func() { c.evictDeferred(left) }
}

// freeDisk evicts bytes of least recently used content because the disk is full. It reports
// whether it removed anything.
func (c *Cache) freeDisk(bytes int64) bool {
	c.scan()
	c.mu.Lock()
	target := c.files.retained() - bytes
	c.mu.Unlock()
	freed, _ := c.evict(target, nil)
	return freed > 0
}

// evict removes unpinned and unneeded files, least recently used first, until at most target
// bytes are left. It returns how many bytes it removed. It defers the eviction of files in
// except, and returns those that were due; they count as evicted until evictDeferred.
func (c *Cache) evict(target int64, except map[string]bool) (freed int64, left []string) {
	used := c.lastUses()
	c.loadContents(c.neededVersions())
	c.mu.Lock()
	defer c.mu.Unlock()
	needed := c.neededSums() // the lock is held until the end, so needs do not change
	found := c.byLastUse(used)
	gone := map[string]bool{}
	for _, f := range found {
		if c.files.retained() <= target {
			break
		}
		p := f.path
		if needed[f.sum] && !c.isPartial(p) || c.files.pins[p] > 0 || c.beingFetched(p) {
			continue
		}
		if except[p] {
			c.files.deferred[p]++
			left = append(left, p)
		}
		if c.files.deferred[p] > 0 {
			continue
		}
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		freed += c.files.sizes[p]
		c.files.remove(p)
		delete(c.verified, p)
		gone[p] = true
	}
	if len(gone) > 0 {
		c.forgetEvicted(gone)
	}
	return freed, left
}

// cachedFile is a file of the cache and the time its content was last used.
type cachedFile struct {
	path string
	sum  sum
	used time.Time
}

// byLastUse returns all files of the cache, least recently used first. A partial file counts
// as never used. The caller holds the lock.
func (c *Cache) byLastUse(uses map[sum]time.Time) []cachedFile {
	all := make([]cachedFile, 0, len(c.files.sizes))
	for p := range c.files.sizes {
		f := cachedFile{path: p}
		f.sum, _ = parseSum(filepath.Base(p))
		if !c.isPartial(p) {
			f.used = uses[f.sum]
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b cachedFile) int {
		return cmp.Or(a.used.Compare(b.used), strings.Compare(a.path, b.path))
	})
	return all
}

// beingFetched reports whether a file, or the file that a partial one becomes, is being
// fetched. The caller holds the lock.
func (c *Cache) beingFetched(path string) bool {
	return c.flights[path] != nil || c.isPartial(path) && c.flights[c.path(filepath.Base(path))] != nil
}

// isPartial reports whether a path is that of a partial file.
func (c *Cache) isPartial(path string) bool {
	return filepath.Dir(path) == filepath.Join(c.dir, partialDir)
}

// removeStalePartials removes partial files that no fetch has continued for partialKept. A
// cache without a limit would keep them forever.
func (c *Cache) removeStalePartials() {
	entries, err := os.ReadDir(filepath.Join(c.dir, partialDir))
	if err != nil {
		return
	}
	for _, e := range entries {
		name := filepath.Join(c.dir, partialDir, e.Name())
		if fi, err := e.Info(); err != nil || !content.ValidDigest(e.Name()) || time.Since(fi.ModTime()) <= partialKept {
			continue
		}
		c.mu.Lock()
		if c.files.pins[name] == 0 && !c.beingFetched(name) && os.Remove(name) == nil {
			c.files.remove(name)
		}
		c.mu.Unlock()
	}
}

// removePartials removes the partial files of content that does not fit on the disk.
func (c *Cache) removePartials(files []content.ManifestEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range files {
		if name := c.partialPath(e.SHA256); len(e.Chunks) > 0 && !c.beingFetched(name) && os.Remove(name) == nil {
			c.files.remove(name)
		}
	}
}

// forgetEvicted drops all records of evicted files; versions that lost content are no longer
// warm. The caller holds the lock.
func (c *Cache) forgetEvicted(gone map[string]bool) {
	c.warm.used = slices.DeleteFunc(c.warm.used, func(digest string) bool {
		if gone[c.path(digest)] {
			return true
		}
		contents, ok := c.contentsOf(digest)
		return !ok || slices.ContainsFunc(contents, func(s sum) bool { return gone[c.path(hex.EncodeToString(s[:]))] })
	})
	for digest := range c.manifests {
		if gone[c.path(digest)] {
			delete(c.manifests, digest)
		}
	}
	maps.DeleteFunc(c.contents, func(digest string, _ versionContents) bool { return gone[c.path(digest)] })
	for path := range gone { // most files have no such record
		_ = os.Remove(filepath.Join(c.dir, versionDir, filepath.Base(path)))
		_ = os.Remove(filepath.Join(c.dir, artifactDir, filepath.Base(path)))
	}
}

// versions returns the known versions with the time of their last use.
func (c *Cache) versions() map[string]time.Time { return c.useTimes(versionDir) }

// useTimes returns the modification times of the files in dir, by name.
func (c *Cache) useTimes(dir string) map[string]time.Time {
	all := map[string]time.Time{}
	entries, err := os.ReadDir(filepath.Join(c.dir, dir))
	if err != nil {
		return all
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && content.ValidDigest(e.Name()) {
			all[e.Name()] = fi.ModTime()
		}
	}
	return all
}

// noteVersion records that a version was requested, unless it is known already.
func (c *Cache) noteVersion(digest string) {
	if _, err := os.Lstat(filepath.Join(c.dir, versionDir, digest)); err != nil {
		c.touch(versionDir, digest)
	}
}

// touch records that a version or an artifact was used. On a full disk the record is lost, and
// the content is evicted first.
func (c *Cache) touch(dir, hash string) {
	path, now := filepath.Join(c.dir, dir, hash), time.Now()
	if os.Chtimes(path, now, now) != nil {
		_ = os.WriteFile(path, nil, 0o644)
		_ = os.Chtimes(path, now, now) // the kernel's own time stamp is too coarse to order uses
	}
}

// scan reads, once, which files are in the cache. It removes stale temporary and partial files.
func (c *Cache) scan() {
	c.scanOnce.Do(func() {
		_ = filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // an unreadable file could not be removed either
			}
			fi, err := d.Info()
			if err != nil || !fi.Mode().IsRegular() {
				return nil
			}
			c.addFound(path, fi)
			return nil
		})
	})
}

func (c *Cache) addFound(path string, fi fs.FileInfo) {
	stale, size := time.Since(fi.ModTime()) > partialKept, fi.Size()
	switch {
	case strings.HasPrefix(fi.Name(), tempPrefix), c.isPartial(path):
		if stale { // a newer one may still be in use
			_ = os.Remove(path)
			return
		}
		size = allocated(fi)
	case filepath.Dir(path) == filepath.Join(c.dir, versionDir), filepath.Dir(path) == filepath.Join(c.dir, artifactDir):
		return
	}
	if content.ValidDigest(fi.Name()) {
		c.mu.Lock()
		c.files.put(path, size)
		c.mu.Unlock()
	}
}

// allocated returns the disk usage of a sparse file, in bytes.
func allocated(fi fs.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return fi.Size()
}
