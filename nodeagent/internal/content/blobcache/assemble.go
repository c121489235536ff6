package blobcache

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// maxChunk is the maximum size of a chunk, in bytes.
const maxChunk = 16 << 20

// chunkLocation is where another cached file holds a chunk.
type chunkLocation struct {
	path   string
	offset int64
}

// assemble builds a large file from its chunks: those of an earlier attempt, those that another
// cached file has, such as an older version of it, and the rest, which it fetches. It hashes
// each byte once, for the whole file. It hashes single chunks only if the whole is corrupt.
func (c *Cache) assemble(ctx context.Context, e content.ManifestEntry, path string, index chunkIndex) error {
	if err := checkChunks(e); err != nil {
		return err
	}
	p, err := c.openPartial(e, index())
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.verifyLeftover(ctx); err != nil {
		return err
	}
	for n := 1; ; n++ {
		if err := p.complete(ctx); err != nil {
			return err
		}
		if whole, err := p.sum(); err != nil {
			return err
		} else if whole == e.SHA256 {
			return p.commit(path)
		}
		whole, damaged, err := p.verifyChunks(ctx)
		switch {
		case err != nil:
			return err
		case whole == e.SHA256: // an earlier read returned something else
			return p.commit(path)
		case damaged == 0:
			c.remove(p.name)
			return errs.WrapAs(errs.Unavailable, "blobcache.assemble", fmt.Errorf("the chunks of %s add up to a file with hash %s", e.SHA256, whole))
		case n == tries:
			return errs.WrapAs(errs.Unavailable, "blobcache.assemble", fmt.Errorf("%d chunks of %s do not match their hash: %w", damaged, e.SHA256, errTransfer))
		}
	}
}

// checkChunks rejects chunks that cannot add up to the file.
func checkChunks(e content.ManifestEntry) error {
	var size int64
	for _, ch := range e.Chunks {
		if !content.ValidDigest(ch.SHA256) || ch.Size <= 0 || ch.Size > maxChunk {
			return errs.New(errs.Invalid, "chunk with size %d and hash %q is invalid", ch.Size, ch.SHA256)
		}
		size += ch.Size
	}
	if size != e.Size {
		return errs.New(errs.Invalid, "the chunks have %d bytes together, but the file has %d", size, e.Size)
	}
	return nil
}

// unverify makes the next use of a file verify it again.
func (c *Cache) unverify(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.verified, path)
}

// chunkIndex returns where cached files hold chunks, by the chunks' hashes.
type chunkIndex func() map[string]chunkLocation

// indexChunks returns an index of the entries' chunks in the most recently used versions. It
// searches when the index is first called.
func (c *Cache) indexChunks(entries []content.ManifestEntry) chunkIndex {
	return sync.OnceValue(func() map[string]chunkLocation {
		wanted := map[string]bool{}
		for _, e := range entries {
			for _, ch := range e.Chunks {
				wanted[ch.SHA256] = true
			}
		}
		found := map[string]chunkLocation{}
		for _, m := range c.localManifests() {
			for _, other := range m.Entries {
				if len(other.Chunks) > 0 && content.ValidDigest(other.SHA256) {
					c.addChunks(other, wanted, found)
				}
			}
		}
		return found
	})
}

// addChunks records the wanted chunks of a file, if it is cached. The last file recorded, which
// is the most recently used one, wins.
func (c *Cache) addChunks(e content.ManifestEntry, wanted map[string]bool, found map[string]chunkLocation) {
	path := c.path(e.SHA256)
	if fi, err := os.Stat(path); err != nil || fi.Size() != e.Size {
		return
	}
	var offset int64
	for _, ch := range e.Chunks {
		if wanted[ch.SHA256] {
			found[ch.SHA256] = chunkLocation{path: path, offset: offset}
		}
		offset += ch.Size
	}
}

// chunkSources returns the paths of files to keep until missing files were assembled from them:
// at least half of their size is reused. It skips the wanted files, which stay anyway.
func (c *Cache) chunkSources(files, missing []content.ManifestEntry, found map[string]chunkLocation) map[string]bool {
	wanted, taken, given := map[string]bool{}, map[string]bool{}, map[string]int64{}
	for _, e := range files {
		wanted[c.path(e.SHA256)] = true
	}
	for _, e := range missing {
		for _, ch := range e.Chunks {
			if d, ok := found[ch.SHA256]; ok && !taken[ch.SHA256] && !wanted[d.path] {
				given[d.path] += ch.Size
			}
			taken[ch.SHA256] = true
		}
	}
	all := map[string]bool{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for path, bytes := range given {
		if 2*bytes >= c.files.sizes[path] {
			all[path] = true
		}
	}
	return all
}

// localManifests returns the manifests that are in memory or of recently used versions, the most
// recently used one last.
func (c *Cache) localManifests() []content.Manifest {
	c.loadWarm()
	c.mu.Lock()
	inMemory := maps.Clone(c.manifests)
	digests := slices.Clone(c.warm.used)
	c.mu.Unlock()
	var used []content.Manifest
	for _, d := range digests {
		m, ok := inMemory[d]
		if !ok {
			var err error
			if m, err = readManifest(c.path(d)); err != nil {
				continue
			}
		}
		delete(inMemory, d)
		used = append(used, m)
	}
	return slices.AppendSeq(slices.Collect(maps.Values(inMemory)), slices.Values(used))
}
