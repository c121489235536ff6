package templates

import (
	"fmt"
	"strings"
)

const (
	// contextLines is the number of unchanged lines around a change.
	contextLines = 3
	// maxCells bounds the work of a comparison. Larger differences count as one change.
	maxCells = 4 << 20
)

// line is a line of a comparison: ' ' is in both texts, '-' only in the old, '+' only in the new.
type line struct {
	mark byte
	text string
}

// unified returns the differences of two texts in the format of diff -u. It returns "" if they are
// equal.
func unified(path, old, next string) string {
	all := compareLines(lines(old), lines(next))
	var out strings.Builder
	for from := 0; from < len(all); {
		first := from
		for first < len(all) && all[first].mark == ' ' {
			first++
		}
		if first == len(all) {
			break
		}
		begin, end := max(from, first-contextLines), hunkEnd(all, first)
		if out.Len() == 0 {
			fmt.Fprintf(&out, "--- a/%s\n+++ b/%s\n", path, path)
		}
		writeHunk(&out, all, begin, end)
		from = end
	}
	return out.String()
}

// hunkEnd returns the end of the hunk that contains the change at first. Changes with little
// context between them share a hunk.
func hunkEnd(all []line, first int) int {
	last := first
	for i := first; i < len(all) && i-last <= 2*contextLines; i++ {
		if all[i].mark != ' ' {
			last = i
		}
	}
	return min(len(all), last+1+contextLines)
}

func writeHunk(out *strings.Builder, all []line, begin, end int) {
	count := func(part []line, not byte) (n int) {
		for _, l := range part {
			if l.mark != not {
				n++
			}
		}
		return n
	}
	start := func(not byte) (int, int) {
		before, n := count(all[:begin], not), count(all[begin:end], not)
		if n > 0 {
			before++
		}
		return before, n
	}
	o, on := start('+')
	n, nn := start('-')
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", o, on, n, nn)
	for _, l := range all[begin:end] {
		out.WriteByte(l.mark)
		out.WriteString(l.text)
		if !strings.HasSuffix(l.text, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

func lines(text string) []string {
	var out []string
	for l := range strings.Lines(text) {
		out = append(out, l)
	}
	return out
}

// compareLines compares two texts by their longest common subsequence of lines, after trimming the
// common beginning and end.
func compareLines(a, b []string) (out []line) {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		out = append(out, line{' ', a[head]})
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	out = append(out, compareMiddle(a[head:len(a)-tail], b[head:len(b)-tail])...)
	for _, l := range a[len(a)-tail:] {
		out = append(out, line{' ', l})
	}
	return out
}

func compareMiddle(a, b []string) (out []line) {
	i, j := 0, 0
	if len(a)*len(b) <= maxCells {
		common := commonLengths(a, b)
		for i < len(a) && j < len(b) {
			switch {
			case a[i] == b[j]:
				out = append(out, line{' ', a[i]})
				i, j = i+1, j+1
			case common[i+1][j] >= common[i][j+1]:
				out = append(out, line{'-', a[i]})
				i++
			default:
				out = append(out, line{'+', b[j]})
				j++
			}
		}
	}
	for _, l := range a[i:] {
		out = append(out, line{'-', l})
	}
	for _, l := range b[j:] {
		out = append(out, line{'+', l})
	}
	return out
}

// commonLengths[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
func commonLengths(a, b []string) [][]int32 {
	common := make([][]int32, len(a)+1)
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	return common
}
