package console_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
)

func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// tail are the last n lines.
func tail(path string, n int) ([]client.Line, error) {
	p, err := look(context.Background(), path, console.Query{Lines: n})
	return p.Lines, err
}

func texts(lines []client.Line) []string {
	out := []string{}
	for _, l := range lines {
		out = append(out, l.Text)
	}
	return out
}

func TestTail(t *testing.T) {
	cases := []struct {
		name, text string
		n          int
		want       []string
	}{
		{"an empty log has no lines", "", 5, []string{}},
		{"a short log is returned whole", "a\nb\n", 5, []string{"a", "b"}},
		{"the last lines are returned", "a\nb\nc\n", 2, []string{"b", "c"}},
		{"an unfinished line counts", "a\nb", 1, []string{"b"}},
		{"an empty line is a line", "a\n\nb\n", 2, []string{"", "b"}},
		{"a trailing CR is dropped", "a\r\nb\r\n", 2, []string{"a", "b"}},
		{"colours stay", "\x1b[31mred\x1b[0m\n", 1, []string{"\x1b[31mred\x1b[0m"}},
		{"no lines requested", "a\n", 0, []string{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := tail(write(t, c.text), c.n)
			if err != nil || !slices.Equal(texts(got), c.want) {
				t.Errorf("%q, %v; want %q", texts(got), err, c.want)
			}
		})
	}
}

func TestPageKeepsLongLineWhole(t *testing.T) {
	long := strings.Repeat("☃", 350_000) // more than 1 MiB
	got, err := tail(write(t, "first\n"+long+"\nlast\n"), 3)
	if err != nil || len(got) != 3 || got[0].Text != "first" || got[1].Text != long || got[2].Text != "last" {
		t.Fatalf("%d lines, %v", len(got), err)
	}
	if got, err = tail(write(t, long), 1); err != nil || len(got) != 1 || got[0].Text != long {
		t.Errorf("unfinished: %d lines, %v", len(got), err)
	}
}

func TestPageSplitsHugeLine(t *testing.T) {
	long := strings.Repeat("☃", 3_000_000) // more than 8 MiB
	got, err := tail(write(t, "first\n"+long+"\nlast\n"), 9)
	if err != nil || len(got) < 4 || got[0].Text != "first" || got[len(got)-1].Text != "last" {
		t.Fatalf("%d lines, %v", len(got), err)
	}
	parts := texts(got[1 : len(got)-1])
	for _, p := range parts {
		if !utf8.ValidString(p) {
			t.Error("a character is cut")
		}
	}
	if strings.Join(parts, "") != long {
		t.Errorf("%d parts are not the line", len(parts))
	}
}

func TestTailOfMissingFileIsEmpty(t *testing.T) {
	got, err := tail(filepath.Join(t.TempDir(), "none"), 3)
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestTailEqualsSplittingWholeLog(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`[a-z]{0,40}`), 0, 50).Draw(t, "lines")
		repeat := rapid.IntRange(1, 200).Draw(t, "repeat")
		n := rapid.IntRange(1, 500).Draw(t, "n")
		all := []string{}
		for range repeat {
			all = append(all, lines...)
		}
		var text strings.Builder
		for _, l := range all {
			text.WriteString(l + "\n")
		}
		path := filepath.Join(dir, "log")
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := tail(path, n)
		if err != nil {
			t.Fatal(err)
		}
		if want := all[max(0, len(all)-n):]; !slices.Equal(texts(got), want) {
			t.Fatalf("got %d lines, want %d", len(got), len(want))
		}
		for _, l := range got {
			if !strings.HasPrefix(text.String()[l.Offset:], l.Text) {
				t.Fatalf("offset %d does not hold %q", l.Offset, l.Text)
			}
		}
	})
}

func TestDiscardedHeadIsSkipped(t *testing.T) {
	var text strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	path := write(t, text.String())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 64<<10); err != nil {
		t.Fatalf("this filesystem cannot punch holes: %v", err)
	}
	got, err := tail(path, console.MaxLines)
	if err != nil || len(got) >= 100_000 || got[len(got)-1].Text != "line 99999" || got[0].Offset < 64<<10 {
		t.Errorf("%d lines from offset %d, %v", len(got), got[0].Offset, err)
	}
	data, next, err := console.Read(path, 0, 10)
	if err != nil || len(data) != 10 || next != 64<<10+10 {
		t.Errorf("Read gave %q up to %d, %v", data, next, err)
	}
}

func TestReadContinuesAtNext(t *testing.T) {
	path := write(t, "hello world")
	var all []byte
	for offset := int64(0); ; {
		data, next, err := console.Read(path, offset, 4)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) == 0 {
			break
		}
		all, offset = append(all, data...), next
	}
	if string(all) != "hello world" {
		t.Errorf("read %q", all)
	}
}

func TestDiscardedLogHasNoLines(t *testing.T) {
	path := write(t, strings.Repeat("line\n", 40_000))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20); err != nil {
		t.Fatal(err)
	}
	if got, err := tail(path, 10); err != nil || len(got) != 0 {
		t.Errorf("%d lines, %v", len(got), err)
	}
}

func TestByteLimitCutsNoLine(t *testing.T) {
	path := write(t, strings.Repeat("0123456789"+strings.Repeat("x", 289)+"\n", 100_000))
	got, err := tail(path, console.MaxLines)
	if err != nil || len(got) == 0 || !strings.HasPrefix(got[0].Text, "0123456789") {
		t.Errorf("%d lines, %v", len(got), err)
	}
}
