package console

import (
	"bytes"
	"context"
	"io"
	"maps"
	"sync"

	"github.com/orreryhq/orrery/libs/errs"
)

// maxCount is the size of the part at a log's end in which lines are counted, in bytes.
const maxCount = 1 << 30

// lineCounter counts the lines of a log. It caches the counts of whole blocks, which do not
// change, because clients request the number repeatedly.
type lineCounter struct {
	mu     sync.Mutex
	blocks map[int64]int64 // by the number of the block
}

// counterOf is the counter of a log. It is temporary if the log is not maintained.
func (f *Follower) counterOf(path string) *lineCounter {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l, ok := f.logs[path]; ok && l.maintained {
		return l.lines
	}
	return newLineCounter()
}

func newLineCounter() *lineCounter { return &lineCounter{blocks: map[int64]int64{}} }

// count counts the stored lines of a page's log, including an unfinished last line.
func (c *lineCounter) count(ctx context.Context, p *Page) (lines int64, err error) {
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

// newlines counts the newlines in the len(buf) bytes of a log at an offset.
func newlines(log io.ReaderAt, at int64, buf []byte) (int64, error) {
	if _, err := io.ReadFull(io.NewSectionReader(log, at, int64(len(buf))), buf); err != nil {
		return 0, errs.WrapAs(errs.Unavailable, "console.newlines", err)
	}
	return int64(bytes.Count(buf, []byte{'\n'})), nil
}
