package console

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Lines are the page's lines, the oldest first. What was given back since they were
// found is left out. After an error there are no more.
func (p *Page) Lines() iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		w, d := window{page: p}, dates{times: p.times}
		for n, e := range slices.Backward(p.found) {
			text, there, err := w.line(n)
			if err != nil {
				yield(Line{}, errs.As(errs.Unavailable, "console.Lines", err))
				return
			}
			if there && !yield(Line{Offset: e.from, Text: string(trimmed(text)), At: d.of(e.from)}, nil) {
				return
			}
		}
	}
}

// trimmed is a line without its newline and a trailing CR.
func trimmed(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
}

// window is the part of a page that was read last: lines beside one another are read together.
type window struct {
	page *Page
	from int64
	text []byte
	buf  []byte
	// gone is up to where the log was given back.
	gone int64
}

// line is the text of a found line. there is false when it was given back.
func (w *window) line(n int) (text []byte, there bool, err error) {
	e := w.page.found[n]
	if e.from < w.gone {
		return nil, false, nil
	}
	if e.from < w.from || e.from+int64(e.size) > w.from+int64(len(w.text)) {
		if err := w.read(n); err != nil {
			return nil, false, err
		}
	}
	if e.from < w.gone { // meanwhile
		return nil, false, nil
	}
	at := e.from - w.from
	return w.text[at : at+int64(e.size)], true, nil
}

// read takes in a line and those that follow it at once, of at most a block together.
func (w *window) read(n int) error {
	first := w.page.found[n]
	end := first.from + int64(first.size)
	for n--; n >= 0 && w.page.found[n].from == end && end-first.from < block; n-- {
		end += int64(w.page.found[n].size)
	}
	w.buf = slices.Grow(w.buf[:0], int(end-first.from))
	text := w.buf[:end-first.from]
	if got, err := w.page.log.ReadAt(text, first.from); err != nil && !(errors.Is(err, io.EOF) && got == len(text)) {
		return err
	}
	w.from, w.text = first.from, text
	if head := w.page.log.data(first.from); head > first.from { // what lies before was given back and may be zeros
		w.gone = head
	}
	return nil
}

// dates tell when lines, in the order of their offsets, were written.
type dates struct {
	times times
	begun bool
	at    int // the entry that the latest line is in
	// first is the number of the first of the entries that were read last.
	first   int
	entries []mark
}

// of is when the line at an offset was written; zero when nobody saw it.
func (d *dates) of(offset int64) time.Time {
	if d.times.count == 0 {
		return time.Time{}
	}
	if !d.begun {
		d.begun, d.at = true, d.times.before(offset)
	}
	for d.at < d.times.count && d.entry(d.at).end <= offset {
		d.at++
	}
	if d.at >= d.times.count || d.at > 0 && d.entry(d.at-1).end == 0 { // its beginning was given back
		return time.Time{}
	}
	m := d.entry(d.at)
	if m.at <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(m.at).UTC()
}

// entry is one entry, read with those that follow it; zero where there is none to read.
func (d *dates) entry(n int) mark {
	if n < d.first || n >= d.first+len(d.entries) {
		const together = 1024
		d.first = max(0, n-1)
		d.entries = d.times.read(d.first, min(together, d.times.count-d.first))
	}
	if n-d.first >= len(d.entries) {
		return mark{}
	}
	return d.entries[n-d.first]
}
