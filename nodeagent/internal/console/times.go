package console

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// mark is one entry of a log's times: what lies before end, and after the entry
// before it, was written at a time. at is in milliseconds since 1970; negative where
// nobody was there to see: then it was written before that time, and when is not known.
type mark struct{ end, at int64 }

const (
	markBytes = 16
	// maxTimes bounds the times kept of one log, in bytes: three days of a mark a second.
	maxTimes = 4 << 20
	// sameTime is how long a mark is extended in place of another one being added: readers
	// note times as often as they ask.
	sameTime = 250 * time.Millisecond
)

// timesPath is where a log's times stand, beside it.
func timesPath(log string) string { return strings.TrimSuffix(log, filepath.Ext(log)) + ".times" }

// stamp notes that a log had size bytes at a time; seen is false when nobody knows
// when they came. What is noted already stays. A time before the one noted last, as of
// a clock that was set back, counts as that one: times are searched by halves.
func stamp(log string, size int64, at time.Time, seen bool) error {
	if size == 0 { // a file for nothing costs a good part of a start
		return nil
	}
	f, err := os.OpenFile(timesPath(log), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return errs.As(errs.Unavailable, "console.stamp", err)
	}
	defer f.Close()
	n, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return errs.As(errs.Unavailable, "console.stamp", err)
	}
	n -= n % markBytes // what a crash cut off is written over
	var last mark
	if n > 0 {
		if last, err = readMark(f, n/markBytes-1); err != nil {
			return err
		}
	}
	if size <= last.end {
		return nil
	}
	m := mark{end: size, at: max(at.UnixMilli(), abs(last.at))}
	if seen && last.at > 0 && m.at-last.at < sameTime.Milliseconds() {
		m.at, n = last.at, n-markBytes
	}
	if !seen {
		m.at = -m.at
	}
	var b [markBytes]byte
	binary.LittleEndian.PutUint64(b[:8], uint64(m.end))
	binary.LittleEndian.PutUint64(b[8:], uint64(m.at))
	if _, err := f.WriteAt(b[:], n); err != nil {
		return errs.As(errs.Unavailable, "console.stamp", err)
	}
	if n > maxTimes && n%(maxTimes/16) == 0 {
		return punch(f, (n-maxTimes)/page*page)
	}
	return nil
}

// trimTimes gives back the times of what lies before an offset.
func trimTimes(log string, offset int64) error {
	f, err := os.OpenFile(timesPath(log), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.As(errs.Unavailable, "console.trimTimes", err)
	}
	defer f.Close()
	t, err := timesOf(f)
	if err != nil {
		return err
	}
	return punch(f, int64(t.before(offset)-1)*markBytes/page*page)
}

func readMark(f io.ReaderAt, i int64) (mark, error) {
	var b [markBytes]byte
	if _, err := f.ReadAt(b[:], i*markBytes); err != nil {
		return mark{}, errs.As(errs.Unavailable, "console.readMark", err)
	}
	return markOf(b[:]), nil
}

func markOf(b []byte) mark {
	return mark{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}
}

// times are a log's times, read entry by entry where they are needed.
type times struct {
	f     *os.File // nil where there are none
	count int
}

func timesOf(f *os.File) (times, error) {
	n, err := f.Seek(0, io.SeekEnd)
	return times{f, int(n / markBytes)}, errs.As(errs.Unavailable, "console.times", err)
}

// openTimes opens a log's times; there are none where they cannot be read. Close them.
func openTimes(log string) times {
	f, err := os.Open(timesPath(log))
	if err != nil {
		return times{}
	}
	t, err := timesOf(f)
	if err != nil {
		_ = f.Close()
		return times{}
	}
	return t
}

func (t times) close() {
	if t.f != nil {
		_ = t.f.Close()
	}
}

// get is an entry; one that cannot be read, was given back or does not exist is zero.
func (t times) get(i int) mark {
	if i < 0 || i >= t.count {
		return mark{}
	}
	m, err := readMark(t.f, int64(i))
	if err != nil {
		return mark{}
	}
	return m
}

// before counts the entries that end at an offset or before it.
func (t times) before(offset int64) int {
	return sort.Search(t.count, func(i int) bool { return t.get(i).end > offset })
}

// Since is where the part of a log begins that was written at a time or later; 0 where nothing
// is known of its times.
func Since(log string, at time.Time) int64 {
	t := openTimes(log)
	defer t.close()
	from, _ := t.span(at, time.Time{}, 0)
	return from
}

// span is the part of a log that was written from one time to another; a zero time
// sets no bound. Where nothing is known, nothing is left out. It may begin and end
// within a line: a line counts as written when its first byte was.
func (t times) span(since, until time.Time, size int64) (from, to int64) {
	to = size
	if t.count == 0 {
		return 0, to
	}
	if !since.IsZero() {
		i := sort.Search(t.count, func(i int) bool { return abs(t.get(i).at) >= since.UnixMilli() })
		from = t.get(i - 1).end
	}
	if !until.IsZero() && until.UnixMilli() < abs(t.get(t.count-1).at) {
		i := sort.Search(t.count, func(i int) bool { return abs(t.get(i).at) > until.UnixMilli() })
		to = t.get(i - 1).end
	}
	return from, to
}

func abs(n int64) int64 { return max(n, -n) }

// read are some entries; none where they cannot be read.
func (t times) read(from, n int) []mark {
	raw := make([]byte, n*markBytes)
	if _, err := t.f.ReadAt(raw, int64(from)*markBytes); err != nil {
		return nil
	}
	marks := make([]mark, 0, n)
	for b := range slices.Chunk(raw, markBytes) {
		marks = append(marks, markOf(b))
	}
	return marks
}
