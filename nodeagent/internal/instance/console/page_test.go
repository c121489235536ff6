package console_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
)

// page is a page with its lines.
type page struct {
	Lines  []client.Line
	More   bool
	Before int64
}

func find(t testing.TB, path string, q console.Query) page {
	t.Helper()
	p, err := look(t.Context(), path, q)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func look(ctx context.Context, path string, q console.Query) (page, error) {
	return lookAs(ctx, console.NewFollower(discard()), path, q)
}

// lookAs is look with a follower that may maintain the log.
func lookAs(ctx context.Context, f *console.Follower, path string, q console.Query) (page, error) {
	p, err := f.Find(ctx, path, q)
	if err != nil {
		return page{}, err
	}
	defer p.Close()
	out := page{Lines: []client.Line{}, More: p.More, Before: p.Before}
	for l, err := range p.Lines() {
		if err != nil {
			return out, err
		}
		out.Lines = append(out.Lines, l)
	}
	return out, nil
}

func pattern(t testing.TB, text string) console.Pattern {
	t.Helper()
	p, err := console.Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPagesJoinToWholeLog(t *testing.T) {
	var text strings.Builder
	var want []string
	for n := range 30_000 {
		line := fmt.Sprintf("line %d %s", n, strings.Repeat("z", n%97))
		text.WriteString(line + "\n")
		want = append(want, line)
	}
	path := write(t, text.String())
	var got []string
	for q := (console.Query{Lines: 7000}); ; {
		p := find(t, path, q)
		got = append(texts(p.Lines), got...)
		if !p.More {
			break
		}
		q.Before = p.Before
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d lines of %d", len(got), len(want))
	}
}

func TestSearchFindsLastMatchesIgnoringColours(t *testing.T) {
	text := "error one\nfine\n\x1b[1;31mer\x1b]0;title\aror two\nfine\nerror three\n"
	path := write(t, text)
	match := pattern(t, "^error")
	if p := find(t, path, console.Query{Lines: 2, Match: match}); !slices.Equal(texts(p.Lines), []string{"\x1b[1;31mer\x1b]0;title\aror two", "error three"}) || !p.More {
		t.Errorf("%q, more %v", texts(p.Lines), p.More)
	}
	if p := find(t, path, console.Query{Lines: 9, Match: match}); len(p.Lines) != 3 || p.More {
		t.Errorf("%q, more %v", texts(p.Lines), p.More)
	}
}

func TestSearchIsBoundedAndContinues(t *testing.T) {
	line := strings.Repeat("x", 1023) + "\n"
	path := write(t, "needle\n"+strings.Repeat(line, console.MaxSearch/len(line)+1000))
	q := console.Query{Lines: 5, Match: pattern(t, "needle")}
	p := find(t, path, q)
	if len(p.Lines) != 0 || !p.More || p.Before == 0 {
		t.Fatalf("%d lines, more %v before %d", len(p.Lines), p.More, p.Before)
	}
	q.Before = p.Before
	if p = find(t, path, q); len(p.Lines) != 1 || p.More {
		t.Errorf("%d lines, more %v", len(p.Lines), p.More)
	}
}

func TestSearchEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := look(ctx, write(t, "a\n"), console.Query{Lines: 1}); !errs.Is(err, errs.Canceled) {
		t.Errorf("err = %v", err)
	}
}

func TestLatestLinesHaveTimesAtOnce(t *testing.T) {
	f, path := console.NewFollower(discard()), write(t, "before\n") // it does not run: the keeper never looks
	began := time.Now().Truncate(time.Millisecond)
	f.Maintain(path, 1<<20, false) // found by an agent that was away
	var first time.Time
	for n, line := range []string{"one", "two", "three"} {
		add(t, path, line+"\n")
		p, err := lookAs(t.Context(), f, path, console.Query{Lines: 9})
		if err != nil || len(p.Lines) != n+2 || !p.Lines[0].At.IsZero() {
			t.Fatalf("%+v, %v", p.Lines, err)
		}
		for _, l := range p.Lines[1:] {
			if l.At.Before(began) || l.At.After(time.Now()) {
				t.Errorf("%s was printed at %s", l.Text, l.At)
			}
		}
		if n == 0 {
			first = p.Lines[1].At
		}
		if !p.Lines[1].At.Equal(first) {
			t.Errorf("the first line is told of %s, and later of %s", first, p.Lines[1].At)
		}
	}
}

func TestConcurrentReadsKeepTimesComplete(t *testing.T) {
	f, path := follower(t), write(t, "")
	f.Maintain(path, 1<<20, true)
	defer f.Release(path)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 200 {
				p, err := lookAs(t.Context(), f, path, console.Query{Lines: 1000})
				if err != nil {
					t.Error(err)
					return
				}
				if n := slices.IndexFunc(p.Lines, func(l client.Line) bool { return l.At.IsZero() }); n >= 0 {
					t.Errorf("line %d of %d has no time", n, len(p.Lines))
					return
				}
			}
		})
	}
	for n := range 1000 {
		add(t, path, fmt.Sprintf("line %d\n", n))
	}
	readers.Wait()
}

func TestLinesHaveTimesIfObserved(t *testing.T) {
	f, path := console.NewFollower(discard()), write(t, "before\n")
	began := time.Now().Truncate(time.Millisecond)
	f.Maintain(path, 1<<20, false) // found by an agent that was away
	add(t, path, "seen\n")
	f.Release(path)
	add(t, path, "after\n")
	p := find(t, path, console.Query{Lines: 9})
	if len(p.Lines) != 3 || !p.Lines[0].At.IsZero() || p.Lines[1].At.Before(began) || !p.Lines[2].At.IsZero() {
		t.Errorf("%+v", p.Lines)
	}
	if p = find(t, path, console.Query{Lines: 9, Since: time.Now().Add(time.Minute)}); !slices.Equal(texts(p.Lines), []string{"after"}) {
		t.Errorf("since later: %q", texts(p.Lines))
	}
	if p = find(t, path, console.Query{Lines: 9, Until: began.Add(-time.Minute)}); len(p.Lines) != 0 {
		t.Errorf("until earlier: %q", texts(p.Lines))
	}
	if p = find(t, path, console.Query{Lines: 9, Since: began.Add(-time.Minute), Until: time.Now().Add(time.Minute)}); len(p.Lines) != 3 {
		t.Errorf("around: %q", texts(p.Lines))
	}
}
