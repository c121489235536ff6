package blobs

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
	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	partialDir = "partial"
	// runPieces and runBytes bound what is asked for at a time: so much that asking costs
	// little, so little that others come to their turn.
	runPieces = 16
	runBytes  = 8 << 20
	// catchUpBytes bounds what is read back and hashed at a time: as much as a run has at
	// most, so that the hash keeps up with what comes.
	catchUpBytes = runBytes + maxChunk
	// sharedBlock is a multiple of what filesystems that share blocks between files have for one.
	sharedBlock = 4 << 10
	// blockSize is how many bytes are held of what comes: they fit into a processor's
	// cache, where they are hashed and written.
	blockSize = 256 << 10
)

// partial is a large file on its way: pieces are written where they belong, in any order.
// It outlives the agent; what stands in it then is hashed before it counts, since neither
// a death nor a power cut tells what was written.
type partial struct {
	cache *Cache
	name  string
	file  *os.File

	alone atomic.Bool // pieces come one at a time alone

	mu     sync.Mutex
	pieces []piece // in the file's order
	bytes  int64   // of those that are here

	order inOrder
}

// piece is a piece of a partial file.
type piece struct {
	fleet.Chunk
	offset int64
	// first is the first piece with the same content, mostly itself; the others are
	// copied from it.
	first int
	donor *donor // nil: it is fetched
	here  bool   // it was written
}

func (p piece) end() int64 { return p.offset + p.Size }

// run is pieces that follow each other, from the first to before the last.
type run struct{ first, last int }

// partialPath is where a large file stands on its way.
func (c *Cache) partialPath(hash string) string { return filepath.Join(c.dir, partialDir, hash) }

// openPartial opens a large file on its way, as an earlier attempt left it.
func (c *Cache) openPartial(e fleet.ManifestEntry, donors map[string]donor) (*partial, error) {
	p := &partial{cache: c, name: c.partialPath(e.SHA256), order: inOrder{sum: sha256.New()}}
	firsts, offset := map[string]int{}, int64(0)
	for i, ch := range e.Chunks {
		at := piece{Chunk: ch, offset: offset, first: i}
		if first, ok := firsts[ch.SHA256]; ok {
			at.first = first
		} else {
			firsts[ch.SHA256] = i
		}
		if d, ok := donors[ch.SHA256]; ok && d.path != c.path(e.SHA256) { // that one is damaged
			at.donor = &d
		}
		p.pieces = append(p.pieces, at)
		offset += ch.Size
	}
	err := os.MkdirAll(filepath.Dir(p.name), 0o755)
	if err == nil {
		_ = os.Chmod(p.name, 0o600) // one that was whole, but did not get to its place
		p.file, err = os.OpenFile(p.name, os.O_RDWR|os.O_CREATE, 0o600)
	}
	if err != nil {
		return nil, disk("blobs.openPartial", err)
	}
	if err := p.file.Truncate(e.Size); err != nil {
		return nil, disk("blobs.openPartial", errors.Join(err, p.file.Close()))
	}
	return p, nil
}

// recover counts the pieces that an earlier attempt left and that have their hash.
func (p *partial) recover(ctx context.Context) error {
	for i, at := range p.pieces {
		if ctx.Err() != nil {
			return errs.Wrap("blobs.recover", ctx.Err())
		}
		data, err := unix.Seek(int(p.file.Fd()), at.offset, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing follows but a hole
			return nil
		}
		if err == nil && data > at.offset {
			continue
		}
		if got, err := p.hashOf(i); err == nil && got == at.SHA256 { // what cannot be read is written anew
			p.came(i)
		}
	}
	return nil
}

// hashOf is the hash of what stands where a piece belongs.
func (p *partial) hashOf(i int, more ...io.Writer) (string, error) {
	h := sha256.New()
	err := p.read(io.MultiWriter(append(more, h)...), p.pieces[i].offset, p.pieces[i].end())
	return hex.EncodeToString(h.Sum(nil)), err
}

// read reads a range of the file back.
func (p *partial) read(to io.Writer, from, end int64) error {
	b := p.cache.block()
	defer p.cache.blocks.Put(b)
	_, err := io.CopyBuffer(to, io.NewSectionReader(p.file, from, end-from), *b)
	return errs.As(errs.Unavailable, "blobs.read", err)
}

// block is memory for what comes.
func (c *Cache) block() *[]byte {
	if b, ok := c.blocks.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, blockSize)
	return &b
}

// came notes that a piece was written.
func (p *partial) came(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pieces[i].here = true
	p.bytes += p.pieces[i].Size
	p.weigh()
}

// weigh has the cache count what is here. The lock is held.
func (p *partial) weigh() { p.cache.weigh(p.name, p.bytes) }

func (c *Cache) weigh(path string, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stock.put(path, bytes)
}

// runs are the pieces that are not here, in order. One that repeats another is in none.
func (p *partial) runs() (all []run) {
	var bytes int64
	for i, at := range p.pieces {
		if at.here || at.first != i {
			continue
		}
		if n := len(all) - 1; n >= 0 && all[n].last == i && i-all[n].first < runPieces && bytes < runBytes &&
			(p.pieces[i-1].donor == nil) == (at.donor == nil) {
			all[n].last, bytes = i+1, bytes+at.Size
		} else {
			all, bytes = append(all, run{i, i + 1}), at.Size
		}
	}
	return all
}

// bring brings all that is not here. One worker goes from the beginning to the end, so that
// the file can be hashed as it comes; others help as long as nobody else wants their slots.
func (p *partial) bring(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := p.runs()
	next := make(chan run, len(all))
	for _, r := range all {
		next <- r
	}
	work := func() (more bool) {
		defer p.cache.giveBack()
		select {
		case r := <-next:
			if err := p.bringRun(ctx, r); err != nil {
				cancel(err)
			}
		default: // others took the last
		}
		return len(next) > 0 && ctx.Err() == nil
	}
	var helpers sync.WaitGroup
	for len(next) > 0 && p.cache.slot(ctx) == nil {
		for range len(next) - 1 {
			if !p.cache.freeSlot() {
				break
			}
			helpers.Go(func() {
				for work() && p.cache.freeSlot() {
				}
			})
		}
		work()
	}
	helpers.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return p.repeat(ctx)
}

// bringRun brings some pieces, and hashes what is in order now.
func (p *partial) bringRun(ctx context.Context, r run) error {
	if p.pieces[r.first].donor == nil {
		if err := p.fetch(ctx, r); err != nil {
			return err
		}
		return p.catchUp(false)
	}
	for i := r.first; i < r.last; i++ {
		err := p.copyFrom(*p.pieces[i].donor, i)
		if errors.Is(err, errBroken) { // it is gone
			p.cache.forget(p.pieces[i].donor.path)
			p.withoutDonor(i)
			err = p.fetch(ctx, run{i, i + 1})
		}
		if err != nil {
			return err
		}
	}
	return p.catchUp(false)
}

// withoutDonor has a piece fetched.
func (p *partial) withoutDonor(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pieces[i].donor = nil
}

// copyFrom copies a piece from where another file has it.
func (p *partial) copyFrom(d donor, i int) error {
	in, err := os.Open(d.path)
	if err != nil {
		return broken(err)
	}
	defer in.Close()
	at := p.pieces[i]
	shared := p.share(in, d.offset, at)
	if _, err := p.receiveBut(shared, io.NewSectionReader(in, d.offset, at.Size), at.offset, at.end()); err != nil {
		return err
	}
	p.came(i)
	return nil
}

// span is a range of the file, up to before its end.
type span struct{ from, end int64 }

// share has the file share a piece's whole blocks with another one that holds it, where
// the filesystem can and they lie alike in both, and says which range that is. A piece
// that lies otherwise, and what is before and after whole blocks, is copied.
func (p *partial) share(in *os.File, from int64, at piece) span {
	of := span{(at.offset + sharedBlock - 1) / sharedBlock * sharedBlock, at.end() / sharedBlock * sharedBlock}
	if (at.offset-from)%sharedBlock != 0 || of.from >= of.end || p.cache.unshared.Load() {
		return span{}
	}
	err := unix.IoctlFileCloneRange(int(p.file.Fd()), &unix.FileCloneRange{
		Src_fd: int64(in.Fd()), Src_offset: uint64(of.from - at.offset + from),
		Src_length: uint64(of.end - of.from), Dest_offset: uint64(of.from),
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) {
		p.cache.unshared.Store(true) // this filesystem never will
	}
	if err != nil {
		return span{}
	}
	return of
}

// repeat writes the pieces whose content came at another place of the file.
func (p *partial) repeat(ctx context.Context) error {
	for i, at := range p.pieces {
		if at.here {
			continue
		}
		if ctx.Err() != nil {
			return errs.Wrap("blobs.repeat", ctx.Err())
		}
		from := io.NewSectionReader(p.file, p.pieces[at.first].offset, at.Size)
		if _, err := p.receive(from, at.offset, at.end()); err != nil {
			return err
		}
		p.came(i)
	}
	return nil
}

// fetch fetches pieces that follow each other, and goes on where they break off.
func (p *partial) fetch(ctx context.Context, r run) error {
	for n := 1; r.first < r.last; n++ {
		came, err := p.stream(ctx, r)
		if came > 0 {
			r.first, n = r.first+came, 1
		}
		if err != nil && (n == tries || ctx.Err() != nil || !errors.Is(err, errBroken)) {
			return err
		}
	}
	return nil
}

// stream fetches pieces, as many as come at a time, and says how many did.
func (p *partial) stream(ctx context.Context, r run) (came int, err error) {
	body, r, err := p.open(ctx, r)
	if err != nil {
		return 0, errs.Wrap("blobs.fetch", err)
	}
	defer body.Close()
	from := p.pieces[r.first].offset
	at, err := p.receive(body, from, p.pieces[r.last-1].end())
	count(ctx, at-from)
	if err == nil {
		if err = ended(body); err != nil {
			at-- // the last of them is not what it should be
		}
	}
	for i := r.first; i < r.last && p.pieces[i].end() <= at; i++ {
		p.came(i)
		came++
	}
	return came, err
}

// open asks for a run of pieces, or for its first one where they cannot be had together.
func (p *partial) open(ctx context.Context, r run) (io.ReadCloser, run, error) {
	if r.last-r.first > 1 && !p.alone.Load() {
		sums := make([]string, 0, r.last-r.first)
		for _, at := range p.pieces[r.first:r.last] {
			sums = append(sums, at.SHA256)
		}
		body, err := p.cache.source.Row(ctx, sums)
		if !errs.Is(err, errs.NotFound) {
			return body, r, err
		}
		p.alone.Store(true)
	}
	body, err := p.cache.source.Blob(ctx, p.pieces[r.first].SHA256)
	return body, run{r.first, r.first + 1}, err
}

// ended is an error when more comes than was asked for.
func ended(body io.Reader) error {
	switch n, err := io.ReadFull(body, make([]byte, 1)); {
	case n > 0:
		return broken(errors.New("it is larger than it should be"))
	case errors.Is(err, io.EOF):
		return nil
	default:
		return broken(err)
	}
}

func broken(err error) error {
	return errs.As(errs.Unavailable, "blobs.fetch", errors.Join(err, errBroken))
}

// receive writes what comes to a range of the file, hashes it if that is what comes next,
// and says how far it got.
func (p *partial) receive(from io.Reader, at, end int64) (int64, error) {
	return p.receiveBut(span{}, from, at, end)
}

// receiveBut is receive where a range stands there already: that is hashed, not written.
func (p *partial) receiveBut(there span, from io.Reader, at, end int64) (int64, error) {
	b := p.cache.block()
	defer p.cache.blocks.Put(b)
	p.order.writtenFrom(at)
	for at < end {
		// Blocks of the file, so that it is written by whole pages.
		n, err := io.ReadFull(from, (*b)[:min(end-at, blockSize-at%blockSize)])
		p.order.follow(at, (*b)[:n])
		if err := p.writeBut(there, (*b)[:n], at); err != nil {
			return at, disk("blobs.write", err)
		}
		at += int64(n)
		if err != nil {
			return at, broken(err)
		}
	}
	return at, nil
}

// writeBut writes what is before and after a range.
func (p *partial) writeBut(there span, b []byte, at int64) error {
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

// inOrder hashes a file from its beginning to its end, though it comes in any order.
type inOrder struct {
	mu  sync.Mutex
	sum hash.Hash
	at  int64 // so far it was hashed
}

// follow hashes what comes next, as long as it is at hand. What is not hashed here is
// read back later.
func (o *inOrder) follow(at int64, b []byte) {
	if !o.mu.TryLock() { // somebody is at another place of the file
		return
	}
	defer o.mu.Unlock()
	if at == o.at {
		o.sum.Write(b)
		o.at += int64(len(b))
	}
}

// writtenFrom begins anew where what follows was hashed already: it broke off, comes again,
// and need not be the same. What was hashed is always what stands in the file.
func (o *inOrder) writtenFrom(at int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at < o.at {
		o.sum.Reset()
		o.at = 0
	}
}

// catchUp reads back and hashes what is here and comes next, all of it. Otherwise it does
// so unless somebody does it already, and no more than catchUpBytes: others wait for it who
// are about to write.
func (p *partial) catchUp(all bool) error {
	if all {
		p.order.mu.Lock()
	} else if !p.order.mu.TryLock() {
		return nil
	}
	defer p.order.mu.Unlock()
	end := p.contiguous()
	if !all {
		end = min(end, p.order.at+catchUpBytes)
	}
	if end <= p.order.at {
		return nil
	}
	if err := p.read(p.order.sum, p.order.at, end); err != nil {
		return err
	}
	p.order.at = end
	return nil
}

// contiguous is how far the file is here from its beginning.
func (p *partial) contiguous() (end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.pieces {
		if !at.here {
			break
		}
		end = at.end()
	}
	return end
}

// hash is the hash of the whole, of which all is here.
func (p *partial) hash() (string, error) {
	err := p.catchUp(true)
	return hex.EncodeToString(p.order.sum.Sum(nil)), err
}

// examine hashes each piece for itself, and the whole with them. Those that are damaged
// are missing then, and fetched next time, whoever gave them.
func (p *partial) examine(ctx context.Context) (whole string, damaged int, err error) {
	sum := sha256.New()
	for i, at := range p.pieces {
		if ctx.Err() != nil {
			return "", 0, errs.Wrap("blobs.examine", ctx.Err())
		}
		got, err := p.hashOf(i, sum)
		if err != nil {
			return "", 0, err
		}
		if got == at.SHA256 {
			continue
		}
		damaged++
		p.lose(i)
		switch {
		case at.donor != nil:
			p.cache.forget(at.donor.path)
		case at.first == i:
			// The complaint may fail: the content is asked for anew all the same.
			_ = p.cache.source.Suspect(ctx, at.SHA256)
		}
	}
	p.order = inOrder{sum: sha256.New()}
	return hex.EncodeToString(sum.Sum(nil)), damaged, nil
}

// lose has a piece fetched anew.
func (p *partial) lose(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pieces[i].here, p.pieces[i].donor = false, nil
	p.bytes -= p.pieces[i].Size
	p.weigh()
}

// settle moves the whole file to its place.
func (p *partial) settle(path string) error {
	if err := errors.Join(p.file.Chmod(0o444), p.file.Close(), os.MkdirAll(filepath.Dir(path), 0o755)); err != nil {
		return disk("blobs.settle", err)
	}
	if err := os.Rename(p.name, path); err != nil {
		return disk("blobs.settle", err)
	}
	p.cache.mu.Lock()
	defer p.cache.mu.Unlock()
	p.cache.stock.remove(p.name)
	return nil
}

// leave closes the file. One that is not whole stays and counts, pieces of pieces too.
func (p *partial) leave() {
	_ = p.file.Close() // again, where it was settled
	switch fi, err := os.Stat(p.name); {
	case err != nil: // it was settled
	case allocated(fi) == 0:
		p.cache.drop(p.name)
	default:
		p.cache.weigh(p.name, allocated(fi))
	}
}

// drop removes a file of the cache that nobody may use.
func (c *Cache) drop(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if os.Remove(path) == nil {
		c.stock.remove(path)
	}
}
