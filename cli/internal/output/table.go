package output

import (
	"bufio"
	"fmt"
	"iter"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/tidwall/gjson"
)

// gap is what separates two columns.
const gap = "   "

// table prints rows in aligned columns, and nothing if there are none. On a terminal the last column is cut to its width.
func (p Printer) table(columns []Column, rows iter.Seq2[Row, error]) error {
	if p.Format.Name != "wide" {
		columns = slices.DeleteFunc(slices.Clone(columns), func(c Column) bool { return c.Wide })
	}
	var cells [][]string
	if !p.NoHeaders {
		cells = append(cells, headers(columns))
	}
	for row, err := range rows {
		if err != nil {
			return err
		}
		cells = append(cells, cellsOf(columns, row))
	}
	if len(cells) == 1 && !p.NoHeaders {
		return nil
	}
	return p.aligned(cells, func(row, column int, text string) string {
		switch {
		case row == 0 && !p.NoHeaders:
			return p.Style.Bold(text)
		case columns[column].State:
			return p.Style.State(text)
		}
		return text
	})
}

// Lines prints cells in aligned columns without headings.
func (p Printer) Lines(cells [][]string) error {
	return p.aligned(cells, func(_, _ int, text string) string { return text })
}

func headers(columns []Column) []string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = c.Header
	}
	return out
}

func cellsOf(columns []Column, row Row) []string {
	out := make([]string, len(columns))
	for i, c := range columns {
		field := gjson.GetBytes(row, c.Path)
		text := plain(field)
		if c.Text != nil {
			text = c.Text(field)
		}
		out[i] = oneLine(text)
	}
	return out
}

// plain returns the text of a field; that of a list of simple values is them with commas between.
func plain(field gjson.Result) string {
	if !field.IsArray() {
		return field.String()
	}
	var parts []string
	for _, element := range field.Array() {
		if element.IsObject() || element.IsArray() {
			return field.String()
		}
		parts = append(parts, element.String())
	}
	return strings.Join(parts, ",")
}

// oneLine is OneLine for a cell: an empty text is a dash.
func oneLine(text string) string {
	if text == "" {
		return "-"
	}
	return OneLine(text)
}

// OneLine returns text without characters that would break a line or steer a terminal.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if steers(r) {
			return ' '
		}
		return r
	}, text)
}

// aligned prints cells. paint colours the text of a cell, which does not change its width.
func (p Printer) aligned(cells [][]string, paint func(row, column int, text string) string) error {
	widths := widthsOf(cells)
	b := bufio.NewWriter(p.Out) // Flush returns its errors
	for r, line := range cells {
		used := 0
		for c, text := range line {
			if c == len(line)-1 {
				_, _ = b.WriteString(paint(r, c, p.cut(text, used)))
				break
			}
			_, _ = b.WriteString(paint(r, c, text))
			_, _ = b.WriteString(strings.Repeat(" ", widths[c]-lipgloss.Width(text)) + gap)
			used += widths[c] + len(gap)
		}
		_ = b.WriteByte('\n')
	}
	return b.Flush()
}

func widthsOf(cells [][]string) []int {
	var widths []int
	for _, line := range cells {
		for c, text := range line {
			if c == len(widths) {
				widths = append(widths, 0)
			}
			widths[c] = max(widths[c], lipgloss.Width(text))
		}
	}
	return widths
}

// shortest is the least number of columns that a cell is cut to.
const shortest = 12

// cut shortens text that would not fit behind used columns of the terminal.
func (p Printer) cut(text string, used int) string {
	if p.Width == 0 {
		return text
	}
	return Cut(text, max(p.Width-used, shortest))
}

// Counted returns a number with its noun: "1 instance", "2 instances".
func Counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Cut shortens text to a number of columns.
func Cut(text string, room int) string {
	if lipgloss.Width(text) <= room {
		return text
	}
	runes := []rune(text)
	for lipgloss.Width(string(runes)) > room-1 {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}
