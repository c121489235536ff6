package reports

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCrashTailKeepsLastLinesWithinLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(rapid.SampledFrom([]string{"a", "é", "日"}).Draw(t, "letter"), rapid.IntRange(0, 2000).Draw(t, "length"))
		}), 0, 700).Draw(t, "lines")
		tail := NewCrashTail("x", lines, false)
		kept, err := tail.Lines()
		if err != nil {
			t.Fatal(err)
		}
		if len(kept) > MaxCrashLines || len(strings.Join(kept, "\n")) > MaxCrashBytes {
			t.Fatalf("%d lines, %d bytes", len(kept), len(strings.Join(kept, "\n")))
		}
		if tail.Truncated != (len(kept) < len(lines)) {
			t.Fatalf("%d of %d lines, truncated %v", len(kept), len(lines), tail.Truncated)
		}
		if len(lines) > 0 && len(kept) == 0 {
			t.Fatal("nothing is kept")
		}
		for n, l := range kept {
			if was := lines[len(lines)-len(kept)+n]; !strings.HasPrefix(was, l) || !utf8.ValidString(l) || len(was) <= maxCrashLine && l != was {
				t.Fatalf("line %d: %q was %q", n, l, was)
			}
		}
	})
}

func TestCrashTailKeepsEmptyLines(t *testing.T) {
	for _, lines := range [][]string{{}, {""}, {"", "a", ""}} {
		tail := NewCrashTail("x", lines, false)
		if got, err := tail.Lines(); err != nil || !slices.Equal(got, lines) {
			t.Errorf("%q became %q, %v", lines, got, err)
		}
	}
}

func TestLastLinesAreFewAndShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat(rapid.SampledFrom([]string{"a", "日", "\xff"}).Draw(t, "letter"), rapid.IntRange(0, 700).Draw(t, "length"))
		}), 0, 40).Draw(t, "lines")
		kept := LastLines(lines)
		if size := len(strings.Join(kept, "\n")); len(kept) > MaxLastLines || size > MaxLastBytes || len(lines) > 0 && len(kept) == 0 {
			t.Fatalf("%d lines, %d bytes of %d lines", len(kept), size, len(lines))
		}
		for n, l := range kept {
			was := strings.ToValidUTF8(lines[len(lines)-len(kept)+n], "\uFFFD")
			if !strings.HasPrefix(was, l) || !utf8.ValidString(l) || len(was) <= maxLastLine && l != was {
				t.Fatalf("line %d: %q was %q", n, l, was)
			}
		}
	})
}
