package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/ansi"
)

const (
	// MaxSearch is the most one call looks through, in bytes.
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
	// Match is what a line must match, colours aside; nil matches all.
	Match *regexp.Regexp
}

// Page is a page of a log, oldest line first.
type Page struct {
	Lines []Line
	// More is true when older lines may belong to the answer: ask for those before Before.
	More   bool
	Before int64
}

// Find returns a page. It reads backwards and stops as soon as the page is full, and at
// the latest after MaxSearch bytes. Canceled when ctx ends.
func Find(ctx context.Context, path string, q Query) (Page, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Page{Lines: []Line{}}, nil
	}
	if err != nil {
		return Page{}, errs.As(errs.Unavailable, "console.Find", err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return Page{}, errs.As(errs.Unavailable, "console.Find", err)
	}
	t, done := openTimes(path)
	defer done()
	from, to := t.span(q.Since, q.Until, size)
	if q.Before > 0 {
		to = min(to, q.Before)
	}
	head := firstData(f)
	if head > 0 {
		head = nextLine(f, head, make([]byte, block))
	}
	p, err := q.search(ctx, f, max(from, head), to)
	t.date(p.Lines)
	return p, err
}

// openTimes opens a log's times; there are none where they cannot be read.
func openTimes(log string) (t times, done func()) {
	f, err := os.Open(timesPath(log))
	if err != nil {
		return times{}, func() {}
	}
	t, err = timesOf(f)
	if err != nil {
		t = times{}
	}
	return t, func() { _ = f.Close() }
}

// search collects the page's lines between two offsets, from the end.
func (q Query) search(ctx context.Context, f io.ReaderAt, from, to int64) (Page, error) {
	p := Page{Lines: []Line{}, Before: to}
	wanted, budget, kept := min(max(q.Lines, 0), MaxLines), int64(MaxSearch), int64(MaxBytes)
	for to > from && len(p.Lines) < wanted && budget > 0 && kept > 0 {
		if err := ctx.Err(); err != nil {
			return Page{}, errs.Wrap("console.Find", err)
		}
		start, text, err := blockBefore(f, from, to)
		if err != nil {
			return Page{}, err
		}
		lines := split(text, start)
		for _, l := range slices.Backward(lines) {
			if len(p.Lines) == wanted || kept <= 0 {
				break
			}
			p.Before = l.Offset
			if q.Match == nil || q.Match.MatchString(ansi.Strip(l.Text)) {
				p.Lines = append(p.Lines, l)
				kept -= int64(len(l.Text)) + 1
			}
		}
		budget -= to - start
		to = start
	}
	slices.Reverse(p.Lines)
	p.More = p.Before > from && wanted > 0
	return p, nil
}

// blockBefore reads the last whole lines of what lies between two offsets, and tells
// where they begin. A line that is longer than MaxBytes is taken for several.
func blockBefore(f io.ReaderAt, from, to int64) (start int64, text []byte, err error) {
	for size := int64(searchBlock); ; size *= 4 {
		start = max(from, to-size)
		text = make([]byte, to-start)
		if n, err := f.ReadAt(text, start); err != nil && !(errors.Is(err, io.EOF) && n == len(text)) {
			return 0, nil, errs.As(errs.Unavailable, "console.Find", err)
		}
		if start == from {
			return start, text, nil
		}
		if i := bytes.IndexByte(text, '\n'); i >= 0 && i+1 < len(text) {
			return start + int64(i) + 1, text[i+1:], nil
		}
		if size >= MaxBytes {
			return start, text, nil
		}
	}
}
