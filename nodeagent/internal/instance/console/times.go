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

// mark is an entry of a log's times: the bytes from the previous entry's end up to end were
// written at a time. at is in milliseconds since 1970. It is negative if the bytes were
// written at an unknown time before it.
type mark struct{ end, at int64 }

const (
	markBytes = 16
	// maxTimes bounds the stored times of a log, in bytes: three days with a mark a second.
	maxTimes = 4 << 20
	// mergeWithin is how long a mark is extended instead of adding another one: readers record
	// times with every request.
	mergeWithin = 250 * time.Millisecond
)

// timesPath is the path of a log's times.
func timesPath(log string) string { return strings.TrimSuffix(log, filepath.Ext(log)) + ".times" }

// stamp records that a log had size bytes at a time. seen is false if the time of the new
// bytes is unknown. Recorded bytes keep their time. Times never decrease, because they are
// searched by bisection: a time before the last one, as after the clock was set, counts as
// the last one.
func stamp(log string, size int64, at time.Time, seen bool) error {
	if size == 0 { // an empty file would slow down starts
		return nil
	}
	f, err := os.OpenFile(timesPath(log), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "console.stamp", err)
	}
	defer f.Close()
	n, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "console.stamp", err)
	}
	n -= n % markBytes // overwrite an incomplete mark
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
	if seen && last.at > 0 && m.at-last.at < mergeWithin.Milliseconds() {
		m.at, n = last.at, n-markBytes
	}
	if !seen {
		m.at = -m.at
	}
	var b [markBytes]byte
	binary.LittleEndian.PutUint64(b[:8], uint64(m.end))
	binary.LittleEndian.PutUint64(b[8:], uint64(m.at))
	if _, err := f.WriteAt(b[:], n); err != nil {
		return errs.WrapAs(errs.Unavailable, "console.stamp", err)
	}
	if n > maxTimes && n%(maxTimes/16) == 0 {
		return punch(f, (n-maxTimes)/page*page)
	}
	return nil
}

// trimTimes discards the times before an offset.
func trimTimes(log string, offset int64) error {
	f, err := os.OpenFile(timesPath(log), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.WrapAs(errs.Unavailable, "console.trimTimes", err)
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
		return mark{}, errs.WrapAs(errs.Unavailable, "console.readMark", err)
	}
	return markOf(b[:]), nil
}

func markOf(b []byte) mark {
	return mark{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}
}

// times are a log's times. Entries are read on demand.
type times struct {
	f     *os.File // nil if there are none
	count int
}

func timesOf(f *os.File) (times, error) {
	n, err := f.Seek(0, io.SeekEnd)
	return times{f, int(n / markBytes)}, errs.WrapAs(errs.Unavailable, "console.times", err)
}

// openTimes opens a log's times. They are empty if they cannot be read. The caller closes them.
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

// get is an entry; zero if it does not exist, was discarded or cannot be read.
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

// before counts the entries that end at or before an offset.
func (t times) before(offset int64) int {
	return sort.Search(t.count, func(i int) bool { return t.get(i).end > offset })
}

// Since is the offset of the first byte that was written at a time or later; 0 if no times
// are recorded.
func Since(log string, at time.Time) int64 {
	t := openTimes(log)
	defer t.close()
	from, _ := t.span(at, time.Time{}, 0)
	return from
}

// span is the part of a log that was written between two times. A zero time means no bound.
// Bytes with unknown times are included. The part may begin and end within a line: a line
// counts as written when its first byte was.
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

// read reads n entries; none if they cannot be read.
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
