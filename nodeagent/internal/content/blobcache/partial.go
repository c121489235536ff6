package blobcache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

const (
	partialDir = "partial"
	// maxRunChunks and maxRunBytes limit one request: large enough to amortise its cost,
	// small enough to share the slots fairly.
	maxRunChunks = 16
	maxRunBytes  = 8 << 20
	// maxCatchUpBytes limits how much is read back and hashed at a time. It is the maximum
	// size of a run, so that hashing keeps up with fetching.
	maxCatchUpBytes = maxRunBytes + maxChunk
	// cloneAlign is a multiple of the block size of filesystems that can clone blocks.
	cloneAlign = 4 << 10
	// blockSize is the size of transfer buffers in bytes. A block fits into the CPU cache
	// while it is hashed and written.
	blockSize = 256 << 10
)

// partial is a large file that is being fetched. Chunks are written at their offset, in any
// order. The file survives a restart of the agent. Its content is hashed before it counts,
// because after a crash it is unknown which chunks were written.
type partial struct {
	cache *Cache
	name  string
	file  *os.File

	oneByOne atomic.Bool // the source cannot send several chunks together

	mu     sync.Mutex
	chunks []chunk // in file order
	bytes  int64   // of the written chunks

	hasher fileHasher
}

// chunk is a chunk of a partial file.
type chunk struct {
	content.Chunk
	offset int64
	// first is the index of the first chunk with the same content, usually its own. The
	// others are copied from it.
	first   int
	local   *chunkLocation // nil: it must be fetched
	written bool
}

func (c chunk) end() int64 { return c.offset + c.Size }

// run is the consecutive chunks with indexes first to last-1.
type run struct{ first, last int }

// partialPath is the path of a large file while it is being fetched.
func (c *Cache) partialPath(hash string) string { return filepath.Join(c.dir, partialDir, hash) }

// openPartial opens a large file for fetching. It keeps the content of an earlier attempt.
func (c *Cache) openPartial(e content.ManifestEntry, local map[string]chunkLocation) (*partial, error) {
	p := &partial{cache: c, name: c.partialPath(e.SHA256), hasher: fileHasher{sum: sha256.New()}}
	firsts, offset := map[string]int{}, int64(0)
	for i, ch := range e.Chunks {
		at := chunk{Chunk: ch, offset: offset, first: i}
		if first, ok := firsts[ch.SHA256]; ok {
			at.first = first
		} else {
			firsts[ch.SHA256] = i
		}
		if d, ok := local[ch.SHA256]; ok && d.path != c.path(e.SHA256) { // the file itself is corrupt
			at.local = &d
		}
		p.chunks = append(p.chunks, at)
		offset += ch.Size
	}
	err := os.MkdirAll(filepath.Dir(p.name), 0o755)
	if err == nil {
		_ = os.Chmod(p.name, 0o600) // a complete file that was not renamed is read-only
		p.file, err = os.OpenFile(p.name, os.O_RDWR|os.O_CREATE, 0o600)
	}
	if err != nil {
		return nil, diskError("blobcache.openPartial", err)
	}
	if err := p.file.Truncate(e.Size); err != nil {
		return nil, diskError("blobcache.openPartial", errors.Join(err, p.file.Close()))
	}
	return p, nil
}

// verifyLeftover marks the chunks that an earlier attempt has written correctly.
func (p *partial) verifyLeftover(ctx context.Context) error {
	for i, at := range p.chunks {
		if ctx.Err() != nil {
			return errs.Wrap("blobcache.verifyLeftover", ctx.Err())
		}
		data, err := unix.Seek(int(p.file.Fd()), at.offset, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // only a hole follows
			return nil
		}
		if err == nil && data > at.offset {
			continue
		}
		if got, err := p.hashOf(i); err == nil && got == at.SHA256 { // an unreadable chunk is fetched again
			p.markWritten(i)
		}
	}
	return nil
}

// hashOf returns the hash of the bytes at a chunk's position.
func (p *partial) hashOf(i int, more ...io.Writer) (string, error) {
	h := sha256.New()
	err := p.read(io.MultiWriter(append(more, h)...), p.chunks[i].offset, p.chunks[i].end())
	return hex.EncodeToString(h.Sum(nil)), err
}

// read reads a range of the file back.
func (p *partial) read(to io.Writer, from, end int64) error {
	b := p.cache.block()
	defer p.cache.blocks.Put(b)
	_, err := io.CopyBuffer(to, io.NewSectionReader(p.file, from, end-from), *b)
	return errs.WrapAs(errs.Unavailable, "blobcache.read", err)
}

// block returns a buffer of blockSize bytes from the pool.
func (c *Cache) block() *[]byte {
	if b, ok := c.blocks.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, blockSize)
	return &b
}

// markWritten records that a chunk was written.
func (p *partial) markWritten(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chunks[i].written = true
	p.bytes += p.chunks[i].Size
	p.updateSize()
}

// updateSize reports the written bytes to the cache. The caller holds the lock.
func (p *partial) updateSize() { p.cache.setSize(p.name, p.bytes) }

func (c *Cache) setSize(path string, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files.put(path, bytes)
}

// runs returns the chunks to fetch or copy, in order. It skips duplicates of earlier chunks.
func (p *partial) runs() (all []run) {
	var bytes int64
	for i, at := range p.chunks {
		if at.written || at.first != i {
			continue
		}
		if n := len(all) - 1; n >= 0 && all[n].last == i && i-all[n].first < maxRunChunks && bytes < maxRunBytes &&
			(p.chunks[i-1].local == nil) == (at.local == nil) {
			all[n].last, bytes = i+1, bytes+at.Size
		} else {
			all, bytes = append(all, run{i, i + 1}), at.Size
		}
	}
	return all
}

// complete gets all missing chunks. One worker goes from the beginning to the end, so that the
// file is hashed while it is written. Others help as long as slots are free.
func (p *partial) complete(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := p.runs()
	next := make(chan run, len(all))
	for _, r := range all {
		next <- r
	}
	work := func() (more bool) {
		defer p.cache.releaseSlot()
		select {
		case r := <-next:
			if err := p.completeRun(ctx, r); err != nil {
				cancel(err)
			}
		default: // other workers took the rest
		}
		return len(next) > 0 && ctx.Err() == nil
	}
	var helpers sync.WaitGroup
	for len(next) > 0 && p.cache.acquireSlot(ctx) == nil {
		for range len(next) - 1 {
			if !p.cache.tryAcquireSlot() {
				break
			}
			helpers.Go(func() {
				for work() && p.cache.tryAcquireSlot() {
				}
			})
		}
		work()
	}
	helpers.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return p.copyDuplicates(ctx)
}

// completeRun gets some chunks, and hashes what is in order now.
func (p *partial) completeRun(ctx context.Context, r run) error {
	if p.chunks[r.first].local == nil {
		if err := p.fetchRun(ctx, r); err != nil {
			return err
		}
		return p.catchUp(false)
	}
	for i := r.first; i < r.last; i++ {
		err := p.copyFrom(*p.chunks[i].local, i)
		if errors.Is(err, errTransfer) { // the other file is gone or truncated
			p.cache.unverify(p.chunks[i].local.path)
			p.fetchInstead(i)
			err = p.fetchRun(ctx, run{i, i + 1})
		}
		if err != nil {
			return err
		}
	}
	return p.catchUp(false)
}

// fetchInstead marks a chunk to be fetched and not copied.
func (p *partial) fetchInstead(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chunks[i].local = nil
}

// copyFrom copies a chunk from another cached file.
func (p *partial) copyFrom(from chunkLocation, i int) error {
	in, err := os.Open(from.path)
	if err != nil {
		return transferError(err)
	}
	defer in.Close()
	at := p.chunks[i]
	cloned := p.cloneBlocks(in, from.offset, at)
	if _, err := p.writeFromExcept(cloned, io.NewSectionReader(in, from.offset, at.Size), at.offset, at.end()); err != nil {
		return err
	}
	p.markWritten(i)
	return nil
}

// span is the byte range from from to before end.
type span struct{ from, end int64 }

// cloneBlocks lets the file share a chunk's whole blocks with the file in, which holds the
// chunk at offset from. It returns the range it cloned. It is empty if the filesystem cannot
// clone blocks, or the chunk is aligned differently in both files. The caller copies the rest.
func (p *partial) cloneBlocks(in *os.File, from int64, at chunk) span {
	of := span{(at.offset + cloneAlign - 1) / cloneAlign * cloneAlign, at.end() / cloneAlign * cloneAlign}
	if (at.offset-from)%cloneAlign != 0 || of.from >= of.end || p.cache.noClone.Load() {
		return span{}
	}
	err := unix.IoctlFileCloneRange(int(p.file.Fd()), &unix.FileCloneRange{
		Src_fd: int64(in.Fd()), Src_offset: uint64(of.from - at.offset + from),
		Src_length: uint64(of.end - of.from), Dest_offset: uint64(of.from),
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) {
		p.cache.noClone.Store(true) // permanent for this filesystem
	}
	if err != nil {
		return span{}
	}
	return of
}

// copyDuplicates writes the chunks whose content is elsewhere in the file.
func (p *partial) copyDuplicates(ctx context.Context) error {
	for i, at := range p.chunks {
		if at.written {
			continue
		}
		if ctx.Err() != nil {
			return errs.Wrap("blobcache.copyDuplicates", ctx.Err())
		}
		from := io.NewSectionReader(p.file, p.chunks[at.first].offset, at.Size)
		if _, err := p.writeFrom(from, at.offset, at.end()); err != nil {
			return err
		}
		p.markWritten(i)
	}
	return nil
}

// fetchRun fetches consecutive chunks, and resumes after a failed transfer.
func (p *partial) fetchRun(ctx context.Context, r run) error {
	for n := 1; r.first < r.last; n++ {
		came, err := p.fetchPart(ctx, r)
		if came > 0 {
			r.first, n = r.first+came, 1
		}
		if err != nil && (n == tries || ctx.Err() != nil || !errors.Is(err, errTransfer)) {
			return err
		}
	}
	return nil
}

// fetchPart fetches as many chunks as one response brings, and returns their number.
func (p *partial) fetchPart(ctx context.Context, r run) (came int, err error) {
	body, r, err := p.open(ctx, r)
	if err != nil {
		return 0, errs.Wrap("blobcache.fetch", err)
	}
	defer body.Close()
	from := p.chunks[r.first].offset
	at, err := p.writeFrom(body, from, p.chunks[r.last-1].end())
	addBytes(ctx, at-from)
	if err == nil {
		if err = ended(body); err != nil {
			at-- // the last chunk is too long
		}
	}
	for i := r.first; i < r.last && p.chunks[i].end() <= at; i++ {
		p.markWritten(i)
		came++
	}
	return came, err
}

// open requests a run of chunks, or only its first chunk if the source sends single blobs.
func (p *partial) open(ctx context.Context, r run) (io.ReadCloser, run, error) {
	if r.last-r.first > 1 && !p.oneByOne.Load() {
		sums := make([]string, 0, r.last-r.first)
		for _, at := range p.chunks[r.first:r.last] {
			sums = append(sums, at.SHA256)
		}
		body, err := asUnavailable(p.cache.source.Row(ctx, sums))
		if !errs.Is(err, errs.NotFound) {
			return body, r, err
		}
		p.oneByOne.Store(true)
	}
	body, err := asUnavailable(p.cache.source.Blob(ctx, p.chunks[r.first].SHA256))
	return body, run{r.first, r.first + 1}, err
}

// ended returns an error if the body is longer than requested.
func ended(body io.Reader) error {
	switch n, err := io.ReadFull(body, make([]byte, 1)); {
	case n > 0:
		return transferError(errors.New("the response is longer than requested"))
	case errors.Is(err, io.EOF):
		return nil
	default:
		return transferError(err)
	}
}

func transferError(err error) error {
	return errs.WrapAs(errs.Unavailable, "blobcache.fetch", errors.Join(err, errTransfer))
}

// writeFrom copies from a reader to the range from at to end. It also hashes the bytes if they
// are next in order. It returns the offset it reached.
func (p *partial) writeFrom(from io.Reader, at, end int64) (int64, error) {
	return p.writeFromExcept(span{}, from, at, end)
}

// writeFromExcept is writeFrom for a range in which the span there is already written.
func (p *partial) writeFromExcept(there span, from io.Reader, at, end int64) (int64, error) {
	b := p.cache.block()
	defer p.cache.blocks.Put(b)
	p.hasher.rewindTo(at)
	for at < end {
		// Blocks are aligned in the file, so that whole pages are written.
		n, err := io.ReadFull(from, (*b)[:min(end-at, blockSize-at%blockSize)])
		p.hasher.write(at, (*b)[:n])
		if err := p.writeExcept(there, (*b)[:n], at); err != nil {
			return at, diskError("blobcache.write", err)
		}
		at += int64(n)
		if err != nil {
			return at, transferError(err)
		}
	}
	return at, nil
}

// writeExcept writes the bytes outside a range.
func (p *partial) writeExcept(there span, b []byte, at int64) error {
	end := at + int64(len(b))
	if there.end <= at || there.from >= end {
		_, err := p.file.WriteAt(b, at)
		return err
	}
	if at < there.from {
		if _, err := p.file.WriteAt(b[:there.from-at], at); err != nil {
			return err
		}
	}
	if there.end < end {
		if _, err := p.file.WriteAt(b[there.end-at:], there.end); err != nil {
			return err
		}
	}
	return nil
}

// fileHasher hashes a file in order, while its chunks are written in any order.
type fileHasher struct {
	mu     sync.Mutex
	sum    hash.Hash
	offset int64 // everything before it is hashed
}

// write hashes bytes that are next in order. Others are read back and hashed later.
func (h *fileHasher) write(at int64, b []byte) {
	if !h.mu.TryLock() { // another chunk is being hashed
		return
	}
	defer h.mu.Unlock()
	if at == h.offset {
		h.sum.Write(b)
		h.offset += int64(len(b))
	}
}

// rewindTo starts again if bytes from offset at on were hashed already, because they are about
// to be overwritten. The hash always covers the bytes in the file.
func (h *fileHasher) rewindTo(at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at < h.offset {
		h.sum.Reset()
		h.offset = 0
	}
}

// catchUp reads back and hashes the written bytes that are next in order. With all it hashes
// all of them. Otherwise it returns at once if another worker does it, and hashes at most
// maxCatchUpBytes, because writers wait for it.
func (p *partial) catchUp(all bool) error {
	if all {
		p.hasher.mu.Lock()
	} else if !p.hasher.mu.TryLock() {
		return nil
	}
	defer p.hasher.mu.Unlock()
	end := p.writtenPrefix()
	if !all {
		end = min(end, p.hasher.offset+maxCatchUpBytes)
	}
	if end <= p.hasher.offset {
		return nil
	}
	if err := p.read(p.hasher.sum, p.hasher.offset, end); err != nil {
		return err
	}
	p.hasher.offset = end
	return nil
}

// writtenPrefix returns the end of the written chunks at the beginning of the file.
func (p *partial) writtenPrefix() (end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.chunks {
		if !at.written {
			break
		}
		end = at.end()
	}
	return end
}

// sum returns the hash of the whole file. All chunks must be written.
func (p *partial) sum() (string, error) {
	err := p.catchUp(true)
	return hex.EncodeToString(p.hasher.sum.Sum(nil)), err
}

// verifyChunks hashes each chunk and the whole file. It marks corrupt chunks, so that they are
// fetched next time.
func (p *partial) verifyChunks(ctx context.Context) (whole string, damaged int, err error) {
	sum := sha256.New()
	for i, at := range p.chunks {
		if ctx.Err() != nil {
			return "", 0, errs.Wrap("blobcache.verifyChunks", ctx.Err())
		}
		got, err := p.hashOf(i, sum)
		if err != nil {
			return "", 0, err
		}
		if got == at.SHA256 {
			continue
		}
		damaged++
		p.markMissing(i)
		switch {
		case at.local != nil:
			p.cache.unverify(at.local.path)
		case at.first == i:
			// An error of this report does not matter: the chunk is requested again anyway.
			_ = p.cache.source.Suspect(ctx, at.SHA256)
		}
	}
	p.hasher = fileHasher{sum: sha256.New()}
	return hex.EncodeToString(sum.Sum(nil)), damaged, nil
}

// markMissing marks a chunk to be fetched again.
func (p *partial) markMissing(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chunks[i].written, p.chunks[i].local = false, nil
	p.bytes -= p.chunks[i].Size
	p.updateSize()
}

// commit renames the complete file to path.
func (p *partial) commit(path string) error {
	if err := errors.Join(p.file.Chmod(0o444), p.file.Close(), os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
		return diskError("blobcache.commit", err)
	}
	if err := os.Rename(p.name, path); err != nil {
		return diskError("blobcache.commit", err)
	}
	p.cache.mu.Lock()
	defer p.cache.mu.Unlock()
	p.cache.files.remove(p.name)
	return nil
}

// close closes the file. An incomplete file stays, and its disk usage counts.
func (p *partial) close() {
	_ = p.file.Close() // fails after commit, which is fine
	switch fi, err := os.Stat(p.name); {
	case err != nil: // it was committed
	case allocated(fi) == 0:
		p.cache.remove(p.name)
	default:
		p.cache.setSize(p.name, allocated(fi))
	}
}

// remove removes a file from the cache.
func (c *Cache) remove(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if os.Remove(path) == nil {
		c.files.remove(path)
	}
}
