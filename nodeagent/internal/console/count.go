package console

import (
	"bytes"
	"context"
	"io"
	"maps"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
)

// maxCount is how much of a log's end lines are counted in, in bytes.
const maxCount = 1 << 30

// lineCount counts the lines of a log. It remembers the newlines of whole blocks, since what
// a log has does not change: clients ask for the number again and again.
type lineCount struct {
	mu     sync.Mutex
	blocks map[int64]int64 // by the number of the block
}

// countOf is the count of a log. It remembers nothing of a log that is not kept.
func (f *Follower) countOf(path string) *lineCount {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l, ok := f.logs[path]; ok && l.kept {
		return l.lines
	}
	return newLineCount()
}

func newLineCount() *lineCount { return &lineCount{blocks: map[int64]int64{}} }

// count is the number of lines that are kept of a page's log, an unfinished last one included.
func (c *lineCount) count(ctx context.Context, p *Page) (lines int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := max(p.kept(), p.size-maxCount)
	if from >= p.size {
		return 0, nil
	}
	maps.DeleteFunc(c.blocks, func(block, _ int64) bool { return block < from/searchBlock })
	buf := make([]byte, searchBlock)
	for at := from; at < p.size; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		block := at / searchBlock
		next := min((block+1)*searchBlock, p.size)
		n, known := c.blocks[block]
		if whole := next-at == searchBlock; !whole || !known {
			if n, err = newlines(p.log, at, buf[:next-at]); err != nil {
				return 0, err
			}
			if whole {
				c.blocks[block] = n
			}
		}
		lines += n
		at = next
	}
	last, err := newlines(p.log, p.size-1, buf[:1])
	return lines + 1 - last, err
}

// newlines counts the newlines that a log has from an offset on in as many bytes as buf takes.
func newlines(log io.ReaderAt, at int64, buf []byte) (int64, error) {
	if _, err := io.ReadFull(io.NewSectionReader(log, at, int64(len(buf))), buf); err != nil {
		return 0, errs.As(errs.Unavailable, "console.newlines", err)
	}
	return int64(bytes.Count(buf, []byte{'\n'})), nil
}
