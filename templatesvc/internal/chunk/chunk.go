// Package chunk cuts a stream into chunks by its content, so that a change moves
// only the cuts near it: FastCDC (Xia et al., USENIX ATC 2016) with a Gear hash
// and two masks around the wanted average.
//
// Invariants: the chunks joined are the input; the same bytes give the same cuts,
// whatever sizes they are read in; every chunk but the last has Min to Max bytes.
// The cuts are part of what versions are made of: changing a number here makes
// every large file upload anew. A test pins them.
package chunk

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
)

// Sizes of chunks in bytes. Min is a quarter of the average: were it half, the
// stricter mask would hardly be used and sizes would spread more.
const (
	Min     = 128 << 10
	Average = 512 << 10
	Max     = 2 << 20
)

// The masks have 21 and 17 bits, two more and two less than the average's 19: cuts
// are rarer before the average and more frequent after it. The bits are the upper
// ones, on which the most bytes have an influence.
const (
	strictMask = uint64(1<<21-1) << 43
	looseMask  = uint64(1<<17-1) << 47
)

// gearTable gives each byte a random number. It is made anew for each cutter from
// a fixed seed, so that it needs no place in the source.
func gearTable() (t [256]uint64) {
	for i := range t {
		sum := sha256.Sum256([]byte{'o', 'r', 'r', 'e', 'r', 'y', byte(i)})
		t[i] = binary.LittleEndian.Uint64(sum[:])
	}
	return t
}

// Cutter reads a stream chunk by chunk in one buffer of 2 × Max. Make it with New.
type Cutter struct {
	r        io.Reader
	gear     [256]uint64
	buf      []byte
	from, to int   // what is read and not yet given out
	err      error // what ended the stream
}

// New makes a cutter of what r yields.
func New(r io.Reader) *Cutter { return &Cutter{r: r, gear: gearTable(), buf: make([]byte, 2*Max)} }

// Next is the next chunk, valid until the following call. io.EOF after the last; an
// empty stream has none. Any other error is the reader's, and what was read since the
// last chunk is lost.
func (c *Cutter) Next() ([]byte, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	n := c.cut(c.buf[c.from:c.to])
	chunk := c.buf[c.from : c.from+n]
	c.from += n
	return chunk, nil
}

// fill reads until a whole chunk of any size is at hand, or the stream's end.
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

// cut is the length of the chunk that b begins with.
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
