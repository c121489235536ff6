package top

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// The lines of the screen from the top: the header, the tabs, the headings, and the rows.
const (
	tabsLine     = 1
	headingsLine = 2
	firstRow     = 3
	// footerLines are the keys at the bottom.
	footerLines = 1
	// detailLines are the details of the selected object, on a screen that has detailHeight lines.
	detailLines  = 4
	detailHeight = 18
)

// details reports how many lines the details have.
func (m *Model) details() int {
	if m.height < detailHeight {
		return 0
	}
	return detailLines
}

// rows returns how many rows the table shows.
func (m *Model) rows() int { return max(m.height-firstRow-footerLines-m.details(), 1) }

// View returns the screen.
func (m *Model) View() tea.View {
	view := tea.NewView(m.Screen())
	view.AltScreen, view.MouseMode, view.WindowTitle = true, tea.MouseModeCellMotion, "orrery top"
	return view
}

// Screen returns the text of the screen: one line for each of its lines.
func (m *Model) Screen() string {
	lines := make([]string, 0, m.height)
	lines = append(lines, m.header())
	if m.overlay != nil {
		lines = append(lines, m.overlayLines()...)
	} else {
		lines = append(lines, m.tabLine())
		lines = append(lines, m.tableLines()...)
		lines = append(lines, m.detailLines()...)
	}
	lines = append(lines[:min(len(lines), m.height-1)], m.footer())
	return strings.Join(lines, "\n")
}

// header shows the server, the connection and the totals, as many as fit.
func (m *Model) header() string {
	connection := m.style.Green("connected")
	switch {
	case m.lost != "":
		connection = m.style.Red("reconnecting…")
	case !m.loaded:
		connection = m.style.Yellow("loading…")
	}
	parts := []string{connection}
	if m.loaded {
		parts = append(parts, m.countedInstances(), m.countedNodes())
		if m.problems > 0 {
			parts = append(parts, m.style.Red(fmt.Sprintf("problems %d", m.problems)))
		}
		parts = append(parts, fmt.Sprintf("players %d", m.players()))
	}
	line := m.style.Bold(m.cluster)
	for _, part := range parts {
		if ansi.StringWidth(line)+ansi.StringWidth(part)+columnGap > m.width {
			break
		}
		line += "  " + part
	}
	return ansi.Truncate(line, m.width, "…")
}

func (m *Model) countedInstances() string {
	running, ended, crashed, others := 0, 0, 0, 0
	for _, i := range m.tables[instancesTab].all {
		switch i.state {
		case "RUNNING":
			running++
		case "CRASHED":
			crashed++
		case "STOPPED":
			ended++
		default:
			others++
		}
	}
	text := fmt.Sprintf("running %d", running)
	if others > 0 {
		text += m.style.Yellow(fmt.Sprintf(" changing %d", others))
	}
	if crashed > 0 {
		text += m.style.Red(fmt.Sprintf(" crashed %d", crashed))
	}
	if ended > 0 {
		text += fmt.Sprintf(" stopped %d", ended)
	}
	return text
}

func (m *Model) countedNodes() string {
	online, all := 0, m.tables[nodesTab].all
	for _, i := range all {
		if i.state == "ONLINE" {
			online++
		}
	}
	return fmt.Sprintf("nodes %d/%d", online, len(all))
}

func (m *Model) players() (sum int64) {
	for _, i := range m.tables[groupsTab].all {
		sum += max(i.players, 0)
	}
	return sum
}

// tabLabel is the label of a tab with its place.
type tabLabel struct {
	tab      tab
	text     string
	x, width int
}

func (m *Model) tabLabels() []tabLabel {
	var labels []tabLabel
	x := 0
	for at, t := range tabs {
		text := fmt.Sprintf("%d %s %d", at+1, t.title, len(m.tables[at].all))
		labels = append(labels, tabLabel{tab(at), text, x, len(text) + 2})
		x += len(text) + 3
	}
	return labels
}

func (m *Model) tabLine() string {
	var line []string
	for _, label := range m.tabLabels() {
		if label.tab == m.tab {
			line = append(line, reversed("["+label.text+"]"))
		} else {
			line = append(line, " "+label.text+" ")
		}
	}
	text := strings.Join(line, " ")
	if filter := m.filterText(); filter != "" || m.filtering {
		text += m.style.Yellow(fmt.Sprintf("  /%s (%d)", filter, len(m.table().order)))
	}
	return ansi.Truncate(text, m.width, "…")
}

// reversed swaps the colours of text and background. It is not a colour, so NO_COLOR does not forbid it.
func reversed(text string) string { return "\x1b[7m" + text + "\x1b[27m" }

// tableLines returns the headings and the visible rows.
func (m *Model) tableLines() []string {
	t := m.table()
	columns := layout(t.columns, m.width)
	lines := []string{m.headings(columns)}
	visible := t.visible(m.rows())
	for i, row := range visible {
		lines = append(lines, m.row(columns, row, t.first+i == t.at))
	}
	if len(visible) == 0 && m.loaded {
		lines = append(lines, "  none")
	}
	for len(lines) < m.rows()+1 {
		lines = append(lines, "")
	}
	return lines
}

func (m *Model) headings(columns []placed) string {
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", marker))
	for i, c := range columns {
		title := c.title
		if c.index == m.table().sort {
			arrow := "↑"
			if m.table().reverse {
				arrow = "↓"
			}
			title += arrow
		}
		if i > 0 {
			b.WriteString(strings.Repeat(" ", columnGap))
		}
		b.WriteString(fit(title, c.width, c.right))
	}
	return m.style.Bold(ansi.Truncate(b.String(), m.width, ""))
}

func (m *Model) row(columns []placed, i *item, selected bool) string {
	var b strings.Builder
	mark := strings.Repeat(" ", marker)
	if selected {
		mark = fit("›", marker, false)
	}
	b.WriteString(mark)
	for at, c := range columns {
		if at > 0 {
			b.WriteString(strings.Repeat(" ", columnGap))
		}
		text := fit(c.text(i, c.width), c.width, c.right)
		if c.state && !selected {
			text = m.style.State(text)
		}
		b.WriteString(text)
	}
	line := b.String()
	if selected {
		return reversed(fit(line, m.width, false))
	}
	return strings.TrimRight(ansi.Truncate(line, m.width, ""), " ")
}

// detailLines returns what the table has no room for.
func (m *Model) detailLines() []string {
	if m.details() == 0 {
		return nil
	}
	lines := []string{m.style.Dim(strings.Repeat("─", m.width))}
	if i := m.table().current(); i != nil {
		lines = append(lines, m.style.Bold(i.name)+m.facts(i))
		text := i.message
		if i.reason != "" {
			text = i.reason + ": " + text
		}
		lines = append(lines, strings.Split(ansi.Wrap(text, m.width, ""), "\n")...)
	}
	for len(lines) < detailLines {
		lines = append(lines, "")
	}
	for at, line := range lines {
		lines[at] = ansi.Truncate(line, m.width, "…")
	}
	return lines[:detailLines]
}

// facts returns the fields of an object that the details show.
func (m *Model) facts(i *item) string {
	var facts []string
	add := func(shown bool, format string, args ...any) {
		if shown {
			facts = append(facts, fmt.Sprintf(format, args...))
		}
	}
	add(i.state != "", "%s", m.style.State(i.state))
	add(i.uid != "", "uid %s", i.uid)
	add(i.group != "", "group %s", i.group)
	add(i.node != "", "node %s", i.node)
	add(m.tab == instancesTab && i.memoryLimit > 0, "reserves %s", mebibytes(i.memoryLimit))
	add(m.tab == groupsTab && i.version != "", "platform %s", i.version)
	add(m.tab == nodesTab && i.version != "", "version %s", i.version)
	if len(facts) == 0 {
		return ""
	}
	return "  " + strings.Join(facts, "  ")
}

// overlayLines returns the text over the table.
func (m *Model) overlayLines() []string {
	height := m.height - 2
	lines := []string{reversed(fit(" "+m.overlay.title, m.width, false))}
	var wrapped []string
	for _, line := range m.overlay.lines {
		wrapped = append(wrapped, strings.Split(ansi.Wrap(line, m.width, ""), "\n")...)
	}
	first := min(m.overlay.first, max(len(wrapped)-height+1, 0))
	lines = append(lines, wrapped[first:]...)
	for len(lines) < height {
		lines = append(lines, "")
	}
	return lines[:max(height, 1)]
}

// footer shows the question, the result of an action, or the keys.
func (m *Model) footer() string {
	switch {
	case m.question != "":
		return ansi.Truncate(m.style.Yellow(m.question+" y/n"), m.width, "…")
	case m.notice != "":
		return ansi.Truncate(m.notice, m.width, "…")
	case m.lost != "" && m.overlay == nil:
		return ansi.Truncate(m.style.Red(m.lost), m.width, "…")
	}
	keys := []string{"q quit", "? help"}
	switch {
	case m.overlay != nil:
		keys = []string{"Esc close", "↑↓ scroll"}
	case m.filtering:
		keys = []string{"Enter keep", "Esc clear"}
	case m.tab == instancesTab:
		keys = append(keys, "a attach", "l logs", "s stop", "R restart", "k kill", "e explain", "/ filter", "<> sort", "r reverse", "Tab next")
	default:
		keys = append(keys, "Enter instances", "/ filter", "<> sort", "r reverse", "Tab next")
	}
	line := ""
	for at, key := range keys {
		if at > 0 {
			key = "  " + key
		}
		if ansi.StringWidth(line+key) > m.width {
			break
		}
		line += key
	}
	return m.style.Dim(line)
}
