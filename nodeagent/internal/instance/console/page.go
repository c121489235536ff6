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
	// MaxSearch bounds the part of a log that one call searches, in bytes. It is less for
	// patterns that are slow to match.
	MaxSearch = 64 << 20
	// searchBlock is the size of the blocks that are searched.
	searchBlock = 256 << 10
)

// Query selects a page of a log: the last Lines before an offset that were written within a
// time range and match a pattern.
type Query struct {
	Lines int
	// Before is the offset at which the page ends; 0 means the log's end.
	Before int64
	// Since and Until bound the time; zero means no bound. The recorded times are exact to a
	// second. Lines whose time is unknown count as written when they were found.
	Since, Until time.Time
	// Match matches lines without their escape sequences. The zero value matches all.
	Match Pattern
	// Count requests the number of lines of the log.
	Count bool
}

// Page is a page of a log. It holds the positions of its lines and reads their text on
// demand, so that it needs little memory. The caller closes it.
type Page struct {
	// More is true if there may be older lines, before the offset Before.
	More   bool
	Before int64
	// Total is the number of stored lines of the log; 0 unless Query.Count requested it.
	Total int64

	log   source // nil if there is no log
	size  int64  // of the log when it was opened
	times times
	// found are the lines, newest first.
	found []extent
}

// extent is the position of a line, including its newline.
type extent struct {
	from int64
	size int
}

// Find returns a page. It searches backwards until the page is full or MaxSearch bytes were
// searched. It splits lines longer than 4 MiB. Canceled if ctx ends.
//
// For a maintained log, it first records when the output since the last round was written.
func (f *Follower) Find(ctx context.Context, path string, q Query) (*Page, error) {
	log, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Page{}, nil
	}
	if err != nil {
		return nil, errs.WrapAs(errs.Unavailable, "console.Find", err)
	}
	size, err := log.size()
	if err != nil {
		_ = log.Close()
		return nil, errs.WrapAs(errs.Unavailable, "console.Find", err)
	}
	f.stampNow(path, size)
	p, err := q.page(ctx, log, size, openTimes(path))
	if err == nil && q.Count {
		p.Total, err = f.counterOf(path).count(ctx, p)
	}
	if err != nil {
		p.Close()
		return nil, errs.Wrap("console.Find", err)
	}
	return p, nil
}

// Close releases the log.
func (p *Page) Close() {
	if p.log != nil {
		_ = p.log.Close()
	}
	p.times.close()
}

// page finds the page in the first size bytes of a log.
func (q Query) page(ctx context.Context, log source, size int64, t times) (*Page, error) {
	p := &Page{log: log, size: size, times: t}
	from, to := t.span(q.Since, q.Until, size)
	from, to = lineFrom(log, from, size), lineFrom(log, to, size)
	if q.Before > 0 {
		to = min(to, q.Before)
	}
	return p, q.search(ctx, p, max(from, p.kept()), to)
}

// kept is the offset of the first complete line that is stored.
func (p *Page) kept() int64 {
	head := min(p.log.data(0), p.size)
	if head == 0 {
		return 0
	}
	return wholeFrom(p.log, head, p.size)
}

// search collects the page's lines between two offsets, starting at the end.
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
		if head := p.log.data(start); head > start { // discarded meanwhile: the text may be zeros
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

// backwards iterates over a text's lines with their newlines and offsets, last line first.
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

// blocks reads a log backwards in whole lines. Each result is valid until the next call.
type blocks struct {
	log io.ReaderAt
	buf []byte
}

// before reads the last whole lines between two offsets and returns the offset of the first.
// It splits lines longer than maxPageLine.
func (b *blocks) before(from, to int64) (start int64, text []byte, err error) {
	for size := int64(searchBlock); ; size *= 4 {
		start = max(from, to-size)
		b.buf = slices.Grow(b.buf[:0], int(to-start))
		text = b.buf[:to-start]
		if n, err := b.log.ReadAt(text, start); err != nil && !(errors.Is(err, io.EOF) && n == len(text)) {
			return 0, nil, errs.WrapAs(errs.Unavailable, "console.before", err)
		}
		if start == from {
			return start, text, nil
		}
		if i := bytes.IndexByte(text, '\n'); i >= 0 && i+1 < len(text) {
			return start + int64(i) + 1, text[i+1:], nil
		}
		if size >= maxPageLine {
			head := 0
			for head < utf8.UTFMax && !utf8.RuneStart(text[head]) {
				head++
			}
			return start + int64(head), text[head:], nil
		}
	}
}
