package blobs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// maxChunk is the largest piece that is taken, in bytes.
const maxChunk = 16 << 20

// donor is where another file of the cache holds a piece.
type donor struct {
	path   string
	offset int64
}

// assemble makes a large file of its pieces: those that came earlier, those another file
// here has, as an older version mostly does, and the rest, which is fetched. Each byte is
// hashed once, as a part of the whole; which piece is damaged is only asked when the
// whole is.
func (c *Cache) assemble(ctx context.Context, e fleet.ManifestEntry, path string, donors donors) error {
	if err := checkChunks(e); err != nil {
		return err
	}
	p, err := c.openPartial(e, donors())
	if err != nil {
		return err
	}
	defer p.leave()
	if err := p.recover(ctx); err != nil {
		return err
	}
	for n := 1; ; n++ {
		if err := p.bring(ctx); err != nil {
			return err
		}
		if whole, err := p.hash(); err != nil {
			return err
		} else if whole == e.SHA256 {
			return p.settle(path)
		}
		whole, damaged, err := p.examine(ctx)
		switch {
		case err != nil:
			return err
		case whole == e.SHA256: // it was read otherwise before
			return p.settle(path)
		case damaged == 0:
			c.drop(p.name)
			return errs.As(errs.Unavailable, "blobs.assemble", fmt.Errorf("the pieces of %s give a file with hash %s", e.SHA256, whole))
		case n == tries:
			return errs.As(errs.Unavailable, "blobs.assemble", fmt.Errorf("%d pieces of %s do not have their hash: %w", damaged, e.SHA256, errBroken))
		}
	}
}

// checkChunks refuses pieces that cannot give the file.
func checkChunks(e fleet.ManifestEntry) error {
	var size int64
	for _, ch := range e.Chunks {
		if !fleet.ValidDigest(ch.SHA256) || ch.Size <= 0 || ch.Size > maxChunk {
			return errs.New(errs.Invalid, "a piece of %d bytes with hash %q is none", ch.Size, ch.SHA256)
		}
		size += ch.Size
	}
	if size != e.Size {
		return errs.New(errs.Invalid, "pieces of %d bytes do not give a file of %d", size, e.Size)
	}
	return nil
}

// forget has a file verified before it is used again.
func (c *Cache) forget(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.verified, path)
}

// donors finds the files here that hold pieces of what is fetched, by the pieces' hashes.
type donors func() map[string]donor

// findDonors looks once, when it is first asked, for all of some entries, in what the versions
// used last have.
func (c *Cache) findDonors(entries []fleet.ManifestEntry) donors {
	return sync.OnceValue(func() map[string]donor {
		wanted := map[string]bool{}
		for _, e := range entries {
			for _, ch := range e.Chunks {
				wanted[ch.SHA256] = true
			}
		}
		found := map[string]donor{}
		for _, m := range c.atHand() {
			for _, other := range m.Entries {
				if len(other.Chunks) > 0 && fleet.ValidDigest(other.SHA256) {
					c.offer(other, wanted, found)
				}
			}
		}
		return found
	})
}

// offer notes which wanted pieces a file holds, if it is here. What is offered last, and so
// stays longest, is taken.
func (c *Cache) offer(e fleet.ManifestEntry, wanted map[string]bool, found map[string]donor) {
	path := c.path(e.SHA256)
	if fi, err := os.Stat(path); err != nil || fi.Size() != e.Size {
		return
	}
	var offset int64
	for _, ch := range e.Chunks {
		if wanted[ch.SHA256] {
			found[ch.SHA256] = donor{path: path, offset: offset}
		}
		offset += ch.Size
	}
}

// givers are the paths of files that are worth being left for what is lacking of some: they
// hold at least as much of it as else. A file among those that are wanted is none.
func (c *Cache) givers(files, lacking []fleet.ManifestEntry, found map[string]donor) map[string]bool {
	wanted, taken, given := map[string]bool{}, map[string]bool{}, map[string]int64{}
	for _, e := range files {
		wanted[c.path(e.SHA256)] = true
	}
	for _, e := range lacking {
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
		if 2*bytes >= c.stock.sizes[path] {
			all[path] = true
		}
	}
	return all
}

// atHand are the manifests that can be read without asking anybody: of the versions in
// memory and of those used last, the last one at the end.
func (c *Cache) atHand() []fleet.Manifest {
	c.recall()
	c.mu.Lock()
	inMemory := maps.Clone(c.manifests)
	digests := slices.Clone(c.warm.used)
	c.mu.Unlock()
	var used []fleet.Manifest
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
