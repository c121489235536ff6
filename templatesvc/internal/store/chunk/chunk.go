// Package chunk splits a stream into content-defined chunks, so that a change affects only
// the boundaries near it. It implements FastCDC (Xia et al., USENIX ATC 2016) with a Gear
// hash and two masks.
//
// Invariants: The joined chunks are the input. The same bytes give the same boundaries,
// regardless of the sizes of reads. Every chunk but the last has Min to Max bytes. Existing
// versions depend on the boundaries: if a number here changes, every large file is uploaded
// again. A test pins them.
package chunk

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
)

// Sizes of chunks in bytes. Min is a quarter of the average. With half, the strict mask
// would rarely be used, and the sizes would vary more.
const (
	Min     = 128 << 10
	Average = 512 << 10
	Max     = 2 << 20
)

// The masks have 21 and 17 bits, two more and two less than the 19 of the average size:
// boundaries are rarer before the average size and more frequent after it. They use the
// upper bits, which depend on the most bytes.
const (
	strictMask = uint64(1<<21-1) << 43
	looseMask  = uint64(1<<17-1) << 47
)

// gearTable returns a random number for each byte value, derived from a fixed seed.
func gearTable() (t [256]uint64) {
	for i := range t {
		sum := sha256.Sum256([]byte{'o', 'r', 'r', 'e', 'r', 'y', byte(i)})
		t[i] = binary.LittleEndian.Uint64(sum[:])
	}
	return t
}

// Cutter splits a stream into chunks, in one buffer of 2 × Max. Create it with New.
type Cutter struct {
	r        io.Reader
	gear     [256]uint64
	buf      []byte
	from, to int   // the unread part of buf
	err      error // the error that ended the stream
}

// New returns a Cutter for r.
func New(r io.Reader) *Cutter { return &Cutter{r: r, gear: gearTable(), buf: make([]byte, 2*Max)} }

// Next returns the next chunk, which is valid until the next call. It returns io.EOF after
// the last one; an empty stream has none. Other errors come from the reader, and bytes
// since the last chunk are lost.
func (c *Cutter) Next() ([]byte, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	n := c.cut(c.buf[c.from:c.to])
	chunk := c.buf[c.from : c.from+n]
	c.from += n
	return chunk, nil
}

// fill fills the buffer with at least Max bytes, or up to the end of the stream.
func (c *Cutter) fill() error {
	if c.to-c.from < Max && c.err == nil {
		c.to = copy(c.buf, c.buf[c.from:c.to])
		c.from = 0
		var n int
		n, c.err = io.ReadAtLeast(c.r, c.buf[c.to:], Max-c.to)
		c.to += n
	}
	switch {
	case c.err != nil && !errors.Is(c.err, io.EOF) && !errors.Is(c.err, io.ErrUnexpectedEOF):
		return c.err
	case c.from == c.to:
		return io.EOF
	}
	return nil
}

// cut returns the length of the first chunk of b.
func (c *Cutter) cut(b []byte) int {
	if len(b) <= Min {
		return len(b)
	}
	b = b[:min(len(b), Max)]
	var hash uint64
	i := Min
	for normal := min(len(b), Average); i < normal; i++ {
		if hash = hash<<1 + c.gear[b[i]]; hash&strictMask == 0 {
			return i + 1
		}
	}
	for ; i < len(b); i++ {
		if hash = hash<<1 + c.gear[b[i]]; hash&looseMask == 0 {
			return i + 1
		}
	}
	return len(b)
}
