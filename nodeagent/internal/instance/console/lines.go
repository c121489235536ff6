package console

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// Lines iterates over the page's lines, oldest first. It leaves out lines that were discarded
// meanwhile. After an error it stops.
func (p *Page) Lines() iter.Seq2[client.Line, error] {
	return func(yield func(client.Line, error) bool) {
		w, d := window{page: p}, lineTimes{times: p.times}
		for n, e := range slices.Backward(p.found) {
			text, there, err := w.line(n)
			if err != nil {
				yield(client.Line{}, errs.WrapAs(errs.Unavailable, "console.Lines", err))
				return
			}
			if there && !yield(client.Line{Offset: e.from, Text: string(trimEOL(text)), At: d.of(e.from)}, nil) {
				return
			}
		}
	}
}

// trimEOL removes a line's newline and a trailing CR.
func trimEOL(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
}

// window is a part of a page in memory. Adjacent lines are read together.
type window struct {
	page *Page
	from int64
	text []byte
	buf  []byte
	// gone is the offset up to which the log was discarded.
	gone int64
}

// line is the text of a found line. there is false if it was discarded.
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
	if e.from < w.gone { // discarded meanwhile
		return nil, false, nil
	}
	at := e.from - w.from
	return w.text[at : at+int64(e.size)], true, nil
}

// read reads a line and those that directly follow it, up to a block.
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
	if head := w.page.log.data(first.from); head > first.from { // the text before head may be zeros
		w.gone = head
	}
	return nil
}

// lineTimes finds when lines were written. Lines are requested in the order of their offsets.
type lineTimes struct {
	times times
	begun bool
	at    int // the entry of the latest line
	// first is the index of entries[0].
	first   int
	entries []mark
}

// of is when the line at an offset was written; zero if unknown.
func (d *lineTimes) of(offset int64) time.Time {
	if d.times.count == 0 {
		return time.Time{}
	}
	if !d.begun {
		d.begun, d.at = true, d.times.before(offset)
	}
	for d.at < d.times.count && d.entry(d.at).end <= offset {
		d.at++
	}
	if d.at >= d.times.count || d.at > 0 && d.entry(d.at-1).end == 0 { // the previous entry was discarded
		return time.Time{}
	}
	m := d.entry(d.at)
	if m.at <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(m.at).UTC()
}

// entry is an entry, read along with those that follow it; zero if it cannot be read.
func (d *lineTimes) entry(n int) mark {
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
