package command

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// table prints rows with aligned columns.
func (c *call) table(rows [][]string) error {
	var widths []int
	for _, row := range rows {
		for n, cell := range row {
			if n == len(widths) {
				widths = append(widths, 0)
			}
			widths[n] = max(widths[n], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for n, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[n]-utf8.RuneCountInString(cell)+2))
		}
		if err := c.say("%s", strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// dash returns "-" for an empty text.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// number formats n; "-" for 0.
func number(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}
