package top

import (
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/orreryhq/orrery/cli/internal/output/terminal"
)

// key handles a key.
func (m *Model) key(key tea.KeyPressMsg) tea.Cmd {
	pressed := key.String()
	m.notice = ""
	switch {
	case pressed == "ctrl+c":
		return tea.Quit
	case m.question != "":
		return m.answer(pressed)
	case m.overlay != nil:
		m.overlayKey(pressed)
		return nil
	case m.filtering:
		m.filterKey(key)
		return nil
	case m.move(pressed), m.arrange(pressed):
		return nil
	}
	return m.act(pressed)
}

// answer does what was asked, or not.
func (m *Model) answer(pressed string) tea.Cmd {
	do := m.confirmed
	m.question, m.confirmed = "", nil
	if pressed == "y" || pressed == "Y" {
		return do
	}
	return nil
}

func (m *Model) overlayKey(pressed string) {
	o := m.overlay
	switch pressed {
	case "up":
		o.first--
	case "down":
		o.first++
	case "pgup":
		o.first -= m.rows()
	case "pgdown", "space":
		o.first += m.rows()
	case "home":
		o.first = 0
	default:
		m.overlay = nil
	}
	o.first = max(min(o.first, len(o.lines)-1), 0)
}

func (m *Model) filterKey(key tea.KeyPressMsg) {
	t := m.table()
	switch key.String() {
	case "enter":
		m.filtering = false
	case "esc":
		m.filtering = false
		t.setFilter("")
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(t.filter)
		t.setFilter(t.filter[:len(t.filter)-n])
	case "ctrl+u":
		t.setFilter("")
	default:
		t.setFilter(t.filter + terminal.Clean(key.Text))
	}
}

// move moves the selection, and reports whether the key does so.
func (m *Model) move(pressed string) bool {
	t := m.table()
	switch pressed {
	case "up":
		t.choose(t.at - 1)
	case "down":
		t.choose(t.at + 1)
	case "pgup":
		t.choose(t.at - m.rows())
	case "pgdown", "space":
		t.choose(t.at + m.rows())
	case "home", "g":
		t.choose(0)
	case "end", "G":
		t.choose(len(t.order) - 1)
	default:
		return false
	}
	return true
}

// arrange changes the tab, the order or the filter, and reports whether the key does so.
func (m *Model) arrange(pressed string) bool {
	t := m.table()
	switch pressed {
	case "1", "2", "3":
		m.tab = tab(pressed[0] - '1')
	case "tab":
		m.tab = (m.tab + 1) % tab(len(tabs))
	case "shift+tab":
		m.tab = (m.tab + tab(len(tabs)) - 1) % tab(len(tabs))
	case "<", ">":
		m.sortNext(pressed == ">")
	case "r":
		t.reverse = !t.reverse
		t.arrange()
	case "/":
		m.filtering = true
	case "esc":
		t.setFilter("")
	default:
		return false
	}
	return true
}

// sortNext sorts by the next visible column, or the one before.
func (m *Model) sortNext(forward bool) {
	t := m.table()
	columns := layout(t.columns, m.width)
	at := 0
	for i, c := range columns {
		if c.index == t.sort {
			at = i
		}
	}
	step := len(columns) - 1
	if forward {
		step = 1
	}
	if next := columns[(at+step)%len(columns)].index; next != t.sort {
		t.sortBy(next)
	}
}

// act does something with the selected object.
func (m *Model) act(pressed string) tea.Cmd {
	switch pressed {
	case "q":
		return tea.Quit
	case "?":
		m.overlay = &overlay{title: "help", lines: helpLines}
	case "enter":
		if m.tab != instancesTab {
			m.showInstances()
			return nil
		}
		return m.withInstance(m.actions.Attach)
	case "a":
		return m.withInstance(m.actions.Attach)
	case "l":
		return m.withInstance(m.actions.Logs)
	case "e":
		return m.withInstance(m.actions.Explain)
	case "s":
		m.ask("stop")
	case "R":
		m.ask("restart")
	case "k":
		m.ask("kill")
	}
	return nil
}

func (m *Model) withInstance(do func(name string) tea.Cmd) tea.Cmd {
	if i := m.selectedInstance(); i != nil {
		return do(i.name)
	}
	return nil
}

// showInstances shows the instances of the selected node or group.
func (m *Model) showInstances() {
	if i := m.table().current(); i != nil {
		m.tab = instancesTab
		m.table().setFilter(i.name)
	}
}

// wheelRows is how far a step of the wheel scrolls.
const wheelRows = 3

func (m *Model) wheel(msg tea.MouseWheelMsg) {
	step := wheelRows
	if msg.Button == tea.MouseWheelUp {
		step = -wheelRows
	}
	if m.overlay != nil {
		m.overlay.first = max(min(m.overlay.first+step, len(m.overlay.lines)-1), 0)
		return
	}
	m.table().choose(m.table().at + step)
}

// click selects a tab, a row, or the column to sort by.
func (m *Model) click(msg tea.MouseClickMsg) {
	if msg.Button != tea.MouseLeft || m.overlay != nil {
		return
	}
	t := m.table()
	switch row := msg.Y - firstRow; {
	case msg.Y == tabsLine:
		for _, label := range m.tabLabels() {
			if msg.X >= label.x && msg.X < label.x+label.width {
				m.tab = label.tab
			}
		}
	case msg.Y == headingsLine:
		for _, c := range layout(t.columns, m.width) {
			if msg.X >= c.x && msg.X < c.x+c.width+columnGap {
				t.sortBy(c.index)
			}
		}
	case row >= 0 && row < m.rows() && t.first+row < len(t.order):
		t.choose(t.first + row)
	}
}

// helpLines is the help.
var helpLines = []string{
	"1 2 3, Tab          nodes, groups, instances",
	"up down, PgUp PgDn  move; Home and End too, and the wheel",
	"< >                 sort by the next column; or click on it",
	"r                   reverse the order",
	"/                   filter; Esc clears it",
	"Enter               open the console of an instance, or show",
	"                    the instances of a node or group",
	"a                   attach: open the console",
	"l                   logs: follow the output",
	"e                   explain why an instance is as it is",
	"s  R  k             stop, restart, kill an instance",
	"q, Ctrl-C           quit",
	"",
	"Memory and players change when a node or a server reports.",
}
