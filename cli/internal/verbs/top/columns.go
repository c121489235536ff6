package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/orreryhq/orrery/cli/internal/kinds"
)

// column is a column of a table.
type column struct {
	title string
	// width is the least width. grows lets the column have what is left.
	width int
	grows bool
	// priority orders the columns: those with the highest numbers go first when the screen is narrow.
	priority int
	// right aligns numbers. state is coloured by its value.
	right, state bool
	// descending is how a click on the heading sorts first.
	descending bool
	// text returns the cell, for a width.
	text func(i *item, width int) string
	// compare orders items; nil compares the texts.
	compare func(a, b *item) int
}

func textColumn(title string, width, priority int, field func(*item) string) column {
	return column{
		title: title, width: width, priority: priority,
		text:    func(i *item, _ int) string { return field(i) },
		compare: func(a, b *item) int { return cmp.Compare(field(a), field(b)) },
	}
}

func numberColumn(title string, width, priority int, field func(*item) int64, show func(int64) string) column {
	return column{
		title: title, width: width, priority: priority, right: true, descending: true,
		text:    func(i *item, _ int) string { return show(field(i)) },
		compare: func(a, b *item) int { return cmp.Compare(field(a), field(b)) },
	}
}

func sparkColumn(title string, priority int, field func(*item) *series, last func(*item) int64) column {
	return column{
		title: title, width: 12, priority: priority, descending: true,
		text:    func(i *item, width int) string { return field(i).sparkline(width) },
		compare: func(a, b *item) int { return cmp.Compare(last(a), last(b)) },
	}
}

func (c column) growing() column { c.grows = true; return c }
func (c column) states() column  { c.state = true; return c }

// byName orders by name alone: compare of table does that for equal items.
func nameColumn(width int) column {
	c := textColumn("NAME", width, 0, func(i *item) string { return i.name })
	c.compare = func(*item, *item) int { return 0 }
	return c
}

func stateOf(i *item) string     { return i.state }
func messageOf(i *item) string   { return cmp.Or(i.message, i.reason) }
func memoryOf(i *item) int64     { return i.memory }
func playersOf(i *item) int64    { return i.players }
func memories(i *item) *series   { return i.memorySeries }
func playerRows(i *item) *series { return i.playerSeries }

func plainNumber(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func positive(n int64) string {
	if n <= 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func unlimited(n int64) string {
	if n == 0 {
		return "∞"
	}
	return plainNumber(n)
}

func mebibytes(n int64) string {
	if n < 0 {
		return "-"
	}
	return kinds.Size(n << 20)
}

func percent(i *item) int64 { return int64(i.cpu*100 + 0.5) }

func percentText(n int64) string { return fmt.Sprintf("%d%%", n) }

// columnsOf returns the columns of each tab.
func columnsOf() [][]column {
	message := textColumn("MESSAGE", 12, 6, messageOf).growing()
	return [][]column{
		nodesTab: {
			nameColumn(14),
			textColumn("STATUS", 11, 1, stateOf).states(),
			numberColumn("INST", 5, 2, func(i *item) int64 { return i.running }, plainNumber),
			numberColumn("CPU", 4, 3, percent, percentText),
			numberColumn("USED", 8, 4, memoryOf, mebibytes),
			numberColumn("MEMORY", 8, 5, func(i *item) int64 { return i.memoryLimit }, mebibytes),
			sparkColumn("MEMORY TREND", 7, memories, memoryOf),
			textColumn("VERSION", 12, 8, func(i *item) string { return i.version }),
			message,
		},
		groupsTab: {
			nameColumn(14),
			numberColumn("RUNNING", 7, 1, func(i *item) int64 { return i.running }, plainNumber),
			numberColumn("MIN", 4, 4, func(i *item) int64 { return i.least }, plainNumber),
			numberColumn("MAX", 4, 5, func(i *item) int64 { return i.most }, unlimited),
			numberColumn("PLAYERS", 7, 2, playersOf, plainNumber),
			sparkColumn("PLAYER TREND", 3, playerRows, playersOf),
			textColumn("SCALING", 8, 7, func(i *item) string { return i.scaling }),
			message,
		},
		instancesTab: {
			nameColumn(14),
			textColumn("STATE", 9, 1, stateOf).states(),
			textColumn("NODE", 10, 2, func(i *item) string { return i.node }),
			numberColumn("PORT", 5, 5, func(i *item) int64 { return i.port }, positive),
			numberColumn("PLAYERS", 7, 3, playersOf, plainNumber),
			numberColumn("MEMORY", 8, 4, memoryOf, mebibytes),
			sparkColumn("PLAYER TREND", 7, playerRows, playersOf),
			sparkColumn("MEMORY TREND", 8, memories, memoryOf),
			message,
		},
	}
}

// placed is a column with its place on the screen.
type placed struct {
	column
	// index is that of the column in the table.
	index, x, width int
}

// columnGap is the space between columns, and marker the space before the first.
const columnGap, marker = 2, 2

// layout places the columns that fit into a width.
func layout(columns []column, width int) []placed {
	var chosen []placed
	for index, c := range columns {
		chosen = append(chosen, placed{column: c, index: index, width: max(c.width, ansi.StringWidth(c.title)+1)})
	}
	for len(chosen) > 1 && total(chosen) > width {
		worst := 0
		for i, c := range chosen {
			if c.priority > chosen[worst].priority {
				worst = i
			}
		}
		chosen = append(chosen[:worst], chosen[worst+1:]...)
	}
	grow(chosen, width-total(chosen))
	x := marker
	for i := range chosen {
		chosen[i].x = x
		x += chosen[i].width + columnGap
	}
	return chosen
}

func total(columns []placed) int {
	width := marker - columnGap
	for _, c := range columns {
		width += c.width + columnGap
	}
	return width
}

// maxName bounds the width that names grow to.
const maxName = 32

// grow gives the space that is left to the column that grows and to the names.
func grow(columns []placed, left int) {
	if left <= 0 {
		if left < 0 {
			columns[0].width = max(columns[0].width+left, 1)
		}
		return
	}
	names := min(left/4, maxName-columns[0].width)
	for i := range columns {
		if columns[i].grows {
			columns[i].width += left - names
			columns[0].width += names
			return
		}
	}
	columns[0].width += min(left, maxName-columns[0].width)
}

// fit cuts or pads a text to a width.
func fit(text string, width int, right bool) string {
	w := ansi.StringWidth(text)
	if w > width {
		text = ansi.Truncate(text, width, "…")
		w = ansi.StringWidth(text)
	}
	space := strings.Repeat(" ", max(width-w, 0))
	if right {
		return space + text
	}
	return text + space
}
