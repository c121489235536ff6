package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// MaxSearch is the most one call looks through, in bytes; less for a pattern that is
	// slow to match.
	MaxSearch = 64 << 20
	// searchBlock is how much of a log is looked at at a time.
	searchBlock = 256 << 10
)

// Query asks for a page of a log: the last Lines of those that lie before an offset,
// were written within a time and match.
type Query struct {
	Lines int
	// Before is the offset at which the page ends; 0 means the log's end.
	Before int64
	// Since and Until bound the time; zero sets no bound. They are as exact as the times
	// noted: a second. Lines nobody saw coming count as written when they were found.
	Since, Until time.Time
	// Match is what a line must match, escape sequences aside; the zero value matches all.
	Match Pattern
	// Count has the page tell how many lines the log has.
	Count bool
}

// Page is a page of a log. It holds where its lines are and reads them when they are
// asked for, so it costs little however long they are. Close it.
type Page struct {
	// More is true when older lines may belong to the answer: ask for those before Before.
	More   bool
	Before int64
	// Total is the number of lines that are kept of the log; 0 unless Query.Count asked for it.
	Total int64

	log   source // nil where there is no log
	size  int64  // of the log when it was opened
	times times
	// found are the lines, the newest first.
	found []extent
}

// extent is where a line stands, with its newline.
type extent struct {
	from int64
	size int
}

// Find returns a page. It reads backwards and stops as soon as the page is full, and at
// the latest after MaxSearch bytes. A line of more than 4 MiB is taken for several. Canceled when ctx ends.
//
// Of a log that is kept, it notes the time of what was printed since the keeper looked last.
func (f *Follower) Find(ctx context.Context, path string, q Query) (*Page, error) {
	log, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Page{}, nil
	}
	if err != nil {
		return nil, errs.As(errs.Unavailable, "console.Find", err)
	}
	size, err := log.size()
	if err != nil {
		_ = log.Close()
		return nil, errs.As(errs.Unavailable, "console.Find", err)
	}
	f.date(path, size)
	p, err := q.page(ctx, log, size, openTimes(path))
	if err == nil && q.Count {
		p.Total, err = f.countOf(path).count(ctx, p)
	}
	if err != nil {
		p.Close()
		return nil, errs.Wrap("console.Find", err)
	}
	return p, nil
}

// Close lets go of the log.
func (p *Page) Close() {
	if p.log != nil {
		_ = p.log.Close()
	}
	p.times.close()
}

// page looks for the page in the first size bytes of an open log.
func (q Query) page(ctx context.Context, log source, size int64, t times) (*Page, error) {
	p := &Page{log: log, size: size, times: t}
	from, to := t.span(q.Since, q.Until, size)
	from, to = lineFrom(log, from, size), lineFrom(log, to, size)
	if q.Before > 0 {
		to = min(to, q.Before)
	}
	return p, q.search(ctx, p, max(from, p.kept()), to)
}

// kept is where what is kept of the log begins, at a line.
func (p *Page) kept() int64 {
	head := min(p.log.data(0), p.size)
	if head == 0 {
		return 0
	}
	return wholeFrom(p.log, head, p.size)
}

// search collects the page's lines between two offsets, from the end.
func (q Query) search(ctx context.Context, p *Page, from, to int64) error {
	p.Before = to
	wanted, budget, room := min(max(q.Lines, 0), MaxLines), q.Match.budget(), MaxBytes
	b := blocks{log: p.log}
	for to > from && len(p.found) < wanted && budget > 0 && room > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		start, text, err := b.before(from, to)
		if err != nil {
			return err
		}
		if head := p.log.data(start); head > start { // given back meanwhile: the text may be zeros
			if from = max(from, p.kept()); from > start {
				continue
			}
		}
		for at, line := range backwards(text) {
			if len(p.found) == wanted || room <= 0 {
				break
			}
			p.Before = start + int64(at)
			if q.Match.match(line) {
				p.found = append(p.found, extent{p.Before, len(line)})
				room -= len(line)
			}
		}
		budget -= to - start
		to = start
	}
	p.More = p.Before > from && wanted > 0
	return nil
}

// backwards are a text's lines with their newlines, the last one first, each with where it begins.
func backwards(text []byte) func(yield func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		for end := len(text); end > 0; {
			begin := bytes.LastIndexByte(text[:end-1], '\n') + 1
			if !yield(begin, text[begin:end]) {
				return
			}
			end = begin
		}
	}
}

// blocks reads a log backwards in whole lines. What it returns is good until the next.
type blocks struct {
	log io.ReaderAt
	buf []byte
}

// before reads the last whole lines of what lies between two offsets, and tells
// where they begin. A line that is longer than longest is taken for several.
func (b *blocks) before(from, to int64) (start int64, text []byte, err error) {
	for size := int64(searchBlock); ; size *= 4 {
		start = max(from, to-size)
		b.buf = slices.Grow(b.buf[:0], int(to-start))
		text = b.buf[:to-start]
		if n, err := b.log.ReadAt(text, start); err != nil && !(errors.Is(err, io.EOF) && n == len(text)) {
			return 0, nil, errs.As(errs.Unavailable, "console.before", err)
		}
		if start == from {
			return start, text, nil
		}
		if i := bytes.IndexByte(text, '\n'); i >= 0 && i+1 < len(text) {
			return start + int64(i) + 1, text[i+1:], nil
		}
		if size >= longest {
			head := 0
			for head < utf8.UTFMax && !utf8.RuneStart(text[head]) {
				head++
			}
			return start + int64(head), text[head:], nil
		}
	}
}
