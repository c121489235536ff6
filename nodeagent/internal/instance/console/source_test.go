package console

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

// meddled is a log that calls a function on each read and counts the reads.
type meddled struct {
	source
	before func()
	bytes  int64
}

func (m *meddled) ReadAt(b []byte, at int64) (int, error) {
	if m.before != nil {
		m.before()
		m.before = nil
	}
	n, err := m.source.ReadAt(b, at)
	m.bytes += int64(n)
	return n, err
}

// logOf makes a log, of size bytes in all, that ends with a text.
func logOf(t *testing.T, size int64, text string) (path string, log *meddled) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), max(0, size-int64(len(text)))); err != nil {
		t.Fatal(err)
	}
	s, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return path, &meddled{source: s}
}

// give discards the first bytes of a log.
func give(t *testing.T, path string, n int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, n); err != nil {
		t.Fatal(err)
	}
}

const ten = "012345678\n"

// sizeOf is a log's size.
func sizeOf(t *testing.T, log source) int64 {
	t.Helper()
	size, err := log.size()
	if err != nil {
		t.Fatal(err)
	}
	return size
}

func TestHeadDiscardedDuringReadIsNotShown(t *testing.T) {
	const given = 512 << 10
	meddle := func(t *testing.T) *meddled {
		path, log := logOf(t, 0, strings.Repeat(ten, 100_000))
		log.before = func() { give(t, path, given) }
		return log
	}
	t.Run("a viewer skips it", func(t *testing.T) {
		v := NewViewer("", 0)
		v.file = meddle(t)
		p, err := v.Next(false)
		if err != nil || p.Skipped == nil || p.From != 0 || p.Next < given || len(p.Data) > 0 {
			t.Fatalf("%.20q from %d to %d, skipped %v, %v", p.Data, p.From, p.Next, p.Skipped, err)
		}
		if p, err = v.Next(false); err != nil || !strings.HasPrefix(string(p.Data), ten) {
			t.Errorf("then %.20q, %v", p.Data, err)
		}
	})
	t.Run("a slow viewer does not count its lines", func(t *testing.T) {
		path, log := logOf(t, 0, ten)
		v := NewViewer("", 0)
		v.file = log
		if _, err := v.Next(false); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Repeat(ten, 400_000)), 0o600); err != nil {
			t.Fatal(err)
		}
		log.before = func() { give(t, path, given) }
		if p, err := v.Next(false); err != nil || p.Skipped == nil || p.Skipped.Lines != 0 {
			t.Errorf("%+v, %v", p, err)
		}
	})
	t.Run("a search omits it", func(t *testing.T) {
		log := meddle(t)
		p, err := Query{Lines: MaxLines}.page(t.Context(), log, sizeOf(t, log), times{})
		if err != nil {
			t.Fatal(err)
		}
		shown(t, p, given)
	})
	t.Run("an earlier page omits it", func(t *testing.T) {
		log := meddle(t)
		then := log.before
		log.before = nil
		p, err := Query{Lines: MaxLines}.page(t.Context(), log, sizeOf(t, log), times{})
		if err != nil {
			t.Fatal(err)
		}
		log.before, log.bytes = then, 0
		shown(t, p, given)
		if log.bytes > 1<<20 {
			t.Errorf("%d bytes were read of it", log.bytes)
		}
	})
	t.Run("a read begins after it", func(t *testing.T) {
		data, next, err := readFrom(meddle(t), 0, 20)
		if err != nil || next != given+20 || bytes.ContainsRune(data, 0) {
			t.Errorf("%q up to %d, %v", data, next, err)
		}
	})
}

// shown fails the test unless a page of ten-byte lines begins at an offset.
func shown(t *testing.T, p *Page, from int64) {
	t.Helper()
	n := 0
	for l, err := range p.Lines() {
		if err != nil || l.Text+"\n" != ten || l.Offset < from {
			t.Fatalf("%q at %d, %v", l.Text, l.Offset, err)
		}
		n++
	}
	if n == 0 {
		t.Error("there is nothing")
	}
}

func TestLongLineIsCutBetweenCharacters(t *testing.T) {
	text := "ab" + strings.Repeat("☃", 100_000) + "\n"
	_, log := logOf(t, 0, text)
	v := NewViewer("", 0)
	v.file = log
	var got strings.Builder
	for got.Len() < len(text) {
		p, err := v.Next(false)
		if err != nil || !utf8.Valid(p.Data) || len(p.Data) == 0 {
			t.Fatalf("%d bytes after %d, %v", len(p.Data), got.Len(), err)
		}
		got.Write(p.Data)
	}
	if got.String() != text {
		t.Error("the parts are not the line")
	}
}

func TestPageOfHugeLogReadsLittle(t *testing.T) {
	const huge, little = 1 << 30, 1 << 20
	lines := strings.Repeat(ten, 1000)
	for name, end := range map[string]int64{"at its end": huge, "at its beginning": int64(len(lines))} {
		t.Run("lines "+name, func(t *testing.T) {
			path, log := logOf(t, end, lines)
			if err := os.Truncate(path, huge); err != nil {
				t.Fatal(err)
			}
			p, err := Query{Lines: 100, Before: end}.page(t.Context(), log, sizeOf(t, log), times{})
			if err != nil || len(p.found) != 100 || !p.More {
				t.Fatalf("%d lines, more %v, %v", len(p.found), p.More, err)
			}
			shown(t, p, end-1000)
			if log.bytes > little {
				t.Errorf("%d bytes were read for a page", log.bytes)
			}
		})
	}
	_, log := logOf(t, huge, lines)
	if from, err := startOf(t.Context(), log, huge, 100); err != nil || from != huge-1000 || log.bytes > little {
		t.Errorf("the last lines begin at %d, %d bytes were read, %v", from, log.bytes, err)
	}
}

func TestPageByTimeHasWholeLines(t *testing.T) {
	path, log := logOf(t, 0, "first\nsecond\nthird\n")
	began := time.Unix(1_000_000_000, 0)
	for at, size := range []int64{3, 9, 19} { // within the first, within the second, at the end
		if err := stamp(path, size, began.Add(time.Duration(at)*time.Minute), true); err != nil {
			t.Fatal(err)
		}
	}
	cases := []struct {
		rule  string
		query Query
		want  string
	}{
		{"a line has the time of its first byte", Query{Since: began.Add(time.Minute)}, "second third"},
		{"an earlier line is omitted", Query{Since: began.Add(2 * time.Minute)}, "third"},
		{"a line that began in time is complete", Query{Until: began}, "first"},
		{"so is the next line", Query{Until: began.Add(time.Minute)}, "first second"},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			c.query.Lines = 9
			noted := openTimes(path)
			defer noted.close()
			p, err := c.query.page(t.Context(), log, sizeOf(t, log), noted)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for l := range p.Lines() {
				got = append(got, l.Text)
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("%q, want %q", text, c.want)
			}
		})
	}
}

func TestTimesStayOrderedWhenClockIsSetBack(t *testing.T) {
	path, _ := logOf(t, 0, strings.Repeat(ten, 9))
	now := time.Unix(1_000_000_000, 0)
	for n, minutes := range []int{0, 10, -60, -59, 11} {
		if err := stamp(path, int64(n+1)*10, now.Add(time.Duration(minutes)*time.Minute), true); err != nil {
			t.Fatal(err)
		}
	}
	noted := openTimes(path)
	defer noted.close()
	var last int64
	for _, m := range noted.read(0, noted.count) {
		if m.at < last {
			t.Errorf("%d after %d", m.at, last)
		}
		last = m.at
	}
	if from, _ := noted.span(now.Add(11*time.Minute), time.Time{}, 90); from != 40 {
		t.Errorf("what came after it begins at %d", from)
	}
}

func TestHugePatternIsRefused(t *testing.T) {
	for _, text := range []string{
		`(((a{1,100}){1,100}){1,100})`, `(a{1,100}){1,10}`, strings.Repeat(`(x{1,30}|y{1,30})`, 58), `(`, `\p{Nosuch}`,
	} {
		if _, err := Compile(text); !errs.Is(err, errs.Invalid) {
			t.Errorf("%.40s: %v", text, err)
		}
	}
	for _, text := range []string{"", "error", `(?i)\b(fatal|error|failed)\b.*\d{1,3}`, `^\[\d{2}:\d{2}:\d{2}\] .{0,200}joined`} {
		if _, err := Compile(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSlowPatternSearchesLess(t *testing.T) {
	quickly, err := Compile("needle")
	if err != nil {
		t.Fatal(err)
	}
	slowly, err := Compile("(.*x){1,100}needle")
	if err != nil {
		t.Fatal(err)
	}
	if a, b := quickly.budget(), slowly.budget(); a != MaxSearch || b >= a/4 || b < MaxSearch*fastPattern/MaxPattern {
		t.Errorf("%d and %d bytes", a, b)
	}
	slow := Pattern{expr: quickly.expr, steps: MaxPattern} // as if it were slow
	_, log := logOf(t, 0, strings.Repeat("a line without it\n", 500_000))
	p, err := Query{Lines: 1, Match: slow}.page(t.Context(), log, sizeOf(t, log), times{})
	if err != nil || !p.More || log.bytes > slow.budget()+searchBlock {
		t.Errorf("more %v, %d bytes read, %v", p.More, log.bytes, err)
	}
}

func BenchmarkSearch(b *testing.B) {
	logs := NewFollower(slog.New(slog.DiscardHandler))
	for _, text := range []string{"needle", "(?i)needle", "(.*x){1,100}needle"} {
		b.Run(fmt.Sprint(text), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "log")
			if err := os.WriteFile(path, []byte(strings.Repeat("[12:00:00] [Server thread/INFO]: a line without it\n", 1<<20)), 0o600); err != nil {
				b.Fatal(err)
			}
			match, err := Compile(text)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				p, err := logs.Find(b.Context(), path, Query{Lines: 10, Match: match})
				if err != nil {
					b.Fatal(err)
				}
				p.Close()
			}
		})
	}
}

func TestSinceFindsFirstLine(t *testing.T) {
	path, began := filepath.Join(t.TempDir(), "console.log"), time.Unix(1e9, 0)
	if from := Since(path, began); from != 0 {
		t.Errorf("of a log without times: %d", from)
	}
	for n, size := range []int64{10, 25, 40} {
		if err := stamp(path, size, began.Add(time.Duration(n)*time.Minute), true); err != nil {
			t.Fatal(err)
		}
	}
	for at, want := range map[time.Duration]int64{-time.Hour: 0, 0: 0, time.Second: 10, time.Minute: 10, 2 * time.Minute: 25, time.Hour: 40} {
		if from := Since(path, began.Add(at)); from != want {
			t.Errorf("since %v: %d, want %d", at, from, want)
		}
	}
}

// Readers record the log's time with each request.
func TestCloseTimesShareOneMark(t *testing.T) {
	path, began := filepath.Join(t.TempDir(), "log"), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for n := range 1000 {
		if err := stamp(path, int64(n+1), began.Add(time.Duration(n)*time.Millisecond), true); err != nil {
			t.Fatal(err)
		}
	}
	got := openTimes(path)
	defer got.close()
	if got.count != 4 || got.get(0).end != 250 || got.get(3) != (mark{1000, began.Add(750 * time.Millisecond).UnixMilli()}) {
		t.Errorf("%d marks, %+v to %+v", got.count, got.get(0), got.get(got.count-1))
	}
}
