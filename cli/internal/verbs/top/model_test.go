package top

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/orreryhq/orrery/cli/internal/clitest/golden"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/tidwall/gjson"
)

// recorded returns the items of a tab that a gateway returned.
func recorded(t testing.TB, tab tab) []*item {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", tabs[tab].kind.Plural+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var items []*item
	for _, row := range gjson.GetBytes(content, "data").Array() {
		items = append(items, tabs[tab].read(output.Row(row.Raw)))
	}
	if len(items) == 0 {
		t.Fatalf("no %s", tabs[tab].title)
	}
	return items
}

// done is the message of the actions of tests.
type done string

func testActions() Actions {
	do := func(verb string) func(string) tea.Cmd {
		return func(name string) tea.Cmd { return func() tea.Msg { return done(verb + " " + name) } }
	}
	return Actions{
		Attach: do("attach"), Logs: do("logs"), Explain: do("explain"),
		Act: func(verb, name string) tea.Cmd { return do(verb)(name) },
	}
}

// loaded returns a Model with the recorded objects and one more instance.
func loaded(t testing.TB) *Model {
	t.Helper()
	m := NewModel("production", output.Style{}, testActions())
	update(m, connectionMsg{})
	for at := range tabs {
		update(m, itemsMsg{tab: tab(at), items: recorded(t, tab(at)), whole: true})
	}
	update(m, event(`{"type":"INSTANCE_STATE_CHANGED","instanceId":"lobby-12","uid":"u12","group":"lobby","nodeId":"node-1","oldState":"RUNNING","newState":"CRASHED","reason":"ProcessExited","message":"the process ended with exit code 1, see orrery crashes for the last lines that it printed before it ended"}`))
	update(m, problemsMsg(1))
	return m
}

func update(m *Model, msg tea.Msg) tea.Msg {
	_, cmd := m.Update(msg)
	if cmd == nil {
		return nil
	}
	return cmd()
}

func event(data string) eventsMsg {
	return eventsMsg{orrery.Event{Type: gjson.Get(data, "type").String(), Data: json.RawMessage(data)}}
}

// press presses keys that are named like those of bubbletea and returns the message of the last one.
func press(m *Model, keys ...string) (msg tea.Msg) {
	special := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "tab": tea.KeyTab, "backspace": tea.KeyBackspace, "end": tea.KeyEnd, "pgdown": tea.KeyPgDown}
	for _, name := range keys {
		key := tea.KeyPressMsg{Code: special[name]}
		if key.Code == 0 {
			key = tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
		}
		msg = update(m, key)
	}
	return msg
}

func TestScreens(t *testing.T) {
	for _, size := range []struct{ width, height int }{{80, 24}, {120, 40}, {40, 10}} {
		for name, prepare := range map[string]func(m *Model){
			"nodes":     func(m *Model) { press(m, "1") },
			"groups":    func(m *Model) { press(m, "2") },
			"instances": func(m *Model) { press(m, "down") },
			"sorted":    func(m *Model) { press(m, ">", "r") },
			"filter":    func(m *Model) { press(m, "/", "l", "o", "b") },
			"question":  func(m *Model) { press(m, "k") },
			"help":      func(m *Model) { press(m, "?") },
			"lost":      func(m *Model) { update(m, connectionMsg{fmt.Errorf("lost the stream from http://127.0.0.1:8080")}) },
			"trends": func(m *Model) {
				for n := range 20 {
					update(m, event(fmt.Sprintf(`{"type":"INSTANCE_METRICS","instanceId":"arena-1","playerCount":%d}`, n)))
				}
			},
		} {
			t.Run(fmt.Sprintf("%s-%dx%d", name, size.width, size.height), func(t *testing.T) {
				m := loaded(t)
				update(m, tea.WindowSizeMsg{Width: size.width, Height: size.height})
				prepare(m)
				screen := m.Screen()
				for _, line := range strings.Split(screen, "\n") {
					if width := ansi.StringWidth(line); width > size.width {
						t.Errorf("a line has %d columns: %q", width, line)
					}
				}
				if lines := strings.Count(screen, "\n") + 1; lines != size.height {
					t.Errorf("the screen has %d lines", lines)
				}
				golden.Equal(t, fmt.Sprintf("%s-%dx%d.txt", name, size.width, size.height), trimmed(ansi.Strip(screen)))
			})
		}
	}
}

// trimmed removes the spaces at the ends of lines.
func trimmed(screen string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(screen, "\n") {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

func TestEveryScreenFits(t *testing.T) {
	for width := 1; width < 130; width += 3 {
		for height := 1; height < 30; height += 4 {
			m := loaded(t)
			update(m, tea.WindowSizeMsg{Width: width, Height: height})
			for _, keys := range [][]string{{"1"}, {"2"}, {"3"}, {"/", "x"}, {"esc"}, {"?"}} {
				press(m, keys...)
				screen := m.Screen()
				for _, line := range strings.Split(screen, "\n") {
					if ansi.StringWidth(line) > width {
						t.Fatalf("%dx%d after %v: %q", width, height, keys, line)
					}
				}
				if strings.Count(screen, "\n")+1 > height {
					t.Fatalf("%dx%d after %v: too many lines", width, height, keys)
				}
			}
		}
	}
}

func TestWideAndControlCharactersKeepTheColumns(t *testing.T) {
	m := loaded(t)
	update(m, tea.WindowSizeMsg{Width: 120, Height: 40})
	for _, name := range []string{"ノード-1", "👩‍🚀-1", "e\u0301cole-1", "a\tb\x1b[2Jc-1", "\u202eevil-1"} {
		encoded, err := json.Marshal(map[string]string{
			"type": "INSTANCE_STATE_CHANGED", "instanceId": name, "uid": name, "group": "lobby", "nodeId": "node-1",
			"oldState": "STARTING", "newState": "RUNNING", "message": name,
		})
		if err != nil {
			t.Fatal(err)
		}
		update(m, event(string(encoded)))
	}
	column := 0
	for _, line := range strings.Split(m.Screen(), "\n") {
		line = ansi.Strip(line)
		before, _, found := strings.Cut(line, "RUNNING")
		if strings.ContainsFunc(line, unicode.IsControl) || strings.ContainsRune(line, '\u202e') {
			t.Errorf("%q could steer the terminal", line)
		}
		if !found || strings.Contains(line, "  uid ") { // the last lines describe the selected instance
			continue
		}
		if width := ansi.StringWidth(before); column == 0 {
			column = width
		} else if width != column {
			t.Errorf("the state of %q is in column %d, not %d", line, width, column)
		}
	}
	if column == 0 {
		t.Error("no running instance is on the screen")
	}
}

func TestEvents(t *testing.T) {
	state := func(m *Model, name string) string {
		if i := m.tables[instancesTab].all[name]; i != nil {
			return i.uid + " " + i.state
		}
		return "none"
	}
	changed := func(name, uid, state string) eventsMsg {
		return event(fmt.Sprintf(`{"type":"INSTANCE_STATE_CHANGED","instanceId":%q,"uid":%q,"newState":%q}`, name, uid, state))
	}
	for name, test := range map[string]struct {
		events []eventsMsg
		want   string
	}{
		"a new instance appears":                        {[]eventsMsg{changed("new-1", "a", "STARTING")}, "a STARTING"},
		"its state changes":                             {[]eventsMsg{changed("new-1", "a", "STARTING"), changed("new-1", "a", "RUNNING")}, "a RUNNING"},
		"the next one of its name replaces it":          {[]eventsMsg{changed("new-1", "a", "CRASHED"), changed("new-1", "b", "STARTING")}, "b STARTING"},
		"a late end of the one before does not show":    {[]eventsMsg{changed("new-1", "b", "STARTING"), changed("new-1", "a", "STOPPED")}, "b STARTING"},
		"a removed one goes":                            {[]eventsMsg{changed("new-1", "a", "STOPPED"), event(`{"type":"INSTANCE_REMOVED","instanceId":"new-1","uid":"a"}`)}, "none"},
		"but not for the removal of the one before":     {[]eventsMsg{changed("new-1", "b", "RUNNING"), event(`{"type":"INSTANCE_REMOVED","instanceId":"new-1","uid":"a"}`)}, "b RUNNING"},
		"metrics of an unknown instance have no effect": {[]eventsMsg{event(`{"type":"INSTANCE_METRICS","instanceId":"new-1","playerCount":3}`)}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			m := loaded(t)
			for _, e := range test.events {
				update(m, e)
			}
			if got := state(m, "new-1"); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestActionsAreAboutTheSelectedInstance(t *testing.T) {
	for _, test := range []struct {
		keys []string
		want tea.Msg
	}{
		{[]string{"enter"}, done("attach arena-1")},
		{[]string{"down", "a"}, done("attach arena-2")},
		{[]string{"end", "l"}, done("logs lobby-12")},
		{[]string{"e"}, done("explain arena-1")},
		{[]string{"s", "y"}, done("stop arena-1")},
		{[]string{"R", "y"}, done("restart arena-1")},
		{[]string{"k", "y"}, done("kill arena-1")},
		{[]string{"k", "n"}, nil},
		{[]string{"k", "esc"}, nil},
		{[]string{"1", "k"}, nil},
		{[]string{"q"}, tea.QuitMsg{}},
		{[]string{"/", "q"}, nil},
		{[]string{"?", "q"}, nil},
		{[]string{"2", "enter", "a"}, done("attach arena-1")},
	} {
		if got := press(loaded(t), test.keys...); got != test.want {
			t.Errorf("%v: got %v, want %v", test.keys, got, test.want)
		}
	}
}

func TestTheSelectionStaysWithItsObject(t *testing.T) {
	m := loaded(t)
	press(m, "down")
	update(m, event(`{"type":"INSTANCE_STATE_CHANGED","instanceId":"a-1","uid":"x","newState":"RUNNING"}`))
	press(m, "r")
	if selected := m.table().current().name; selected != "arena-2" {
		t.Errorf("%s is selected", selected)
	}
	update(m, event(`{"type":"INSTANCE_REMOVED","instanceId":"arena-2","uid":"`+m.table().current().uid+`"}`))
	if m.table().current() == nil || m.table().current().name != m.table().selected {
		t.Errorf("%+v is selected", m.table().current())
	}
}

func TestMouse(t *testing.T) {
	m := loaded(t)
	m.Screen()
	click := func(x, y int) { update(m, tea.MouseClickMsg{X: x, Y: y, Button: tea.MouseLeft}) }
	click(3, firstRow+2)
	if name := m.table().current().name; name != m.table().order[2].name {
		t.Errorf("%s is selected", name)
	}
	update(m, tea.MouseWheelMsg{Button: tea.MouseWheelUp})
	if m.table().at != 0 {
		t.Errorf("row %d is selected", m.table().at)
	}
	x := layout(m.table().columns, m.width)[1].x
	click(x, headingsLine)
	if m.table().columns[m.table().sort].title != "STATE" || m.table().order[0].state != "CRASHED" {
		t.Errorf("sorted by %s, %s is first", m.table().columns[m.table().sort].title, m.table().order[0].name)
	}
	click(x, headingsLine)
	if !m.table().reverse {
		t.Error("the second click does not reverse the order")
	}
	click(1, tabsLine)
	if m.tab != nodesTab {
		t.Errorf("tab %d", m.tab)
	}
}

func TestTheOrderIsThatOfSorting(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	table := newTable(columnsOf()[instancesTab])
	for range 5000 {
		name := fmt.Sprint("i-", random.IntN(40))
		switch random.IntN(8) {
		case 0:
			table.remove(name)
		case 1:
			table.sortBy(random.IntN(len(table.columns)))
		case 2:
			table.setFilter([]string{"", "1", "running"}[random.IntN(3)])
		case 3:
			table.choose(random.IntN(40))
		case 4, 5:
			table.put(&item{name: name, state: "RUNNING", players: random.Int64N(5)})
		default:
			table.change(name, func(i *item) { i.players, i.state = random.Int64N(5), []string{"RUNNING", "STOPPED"}[random.IntN(2)] })
		}
		if !slices.IsSortedFunc(table.order, table.compare) {
			t.Fatal("the order is wrong")
		}
		want := 0
		for _, i := range table.all {
			if table.filter == "" || i.matches(table.filter) {
				want++
			}
		}
		if len(table.order) != want {
			t.Fatalf("%d rows, want %d", len(table.order), want)
		}
		if current := table.current(); want > 0 && (current == nil || current.name != table.selected) {
			t.Fatalf("%v is selected, want %s", current, table.selected)
		}
	}
}

func TestSeriesKeepTheLatestPoints(t *testing.T) {
	var s series
	if got := s.sparkline(5); got != "" {
		t.Errorf("an empty series: %q", got)
	}
	for n := range 100 {
		s.add(float64(n % 10))
	}
	if got := s.sparkline(10); got != "▁▁▂▃▄▄▅▆▇█" {
		t.Errorf("got %s", got)
	}
	if got := len([]rune(s.sparkline(1000))); got != seriesLength {
		t.Errorf("%d points", got)
	}
}

// BenchmarkRedraw applies an event to ten thousand instances and draws the screen.
func BenchmarkRedraw(b *testing.B) {
	m := loaded(b)
	update(m, tea.WindowSizeMsg{Width: 200, Height: 60})
	var items []*item
	for n := range 10_000 {
		items = append(items, &item{name: fmt.Sprintf("lobby-%d", n), uid: fmt.Sprint(n), group: "lobby", node: "node-1", state: "RUNNING", players: int64(n % 100), memory: int64(n)})
	}
	update(m, itemsMsg{tab: instancesTab, items: items, whole: true})
	press(m, ">", ">", ">") // by a column that changes
	b.ResetTimer()
	for n := range b.N {
		update(m, event(fmt.Sprintf(`{"type":"INSTANCE_METRICS","instanceId":"lobby-%d","playerCount":%d}`, n%10_000, n%97)))
		if len(m.View().Content) == 0 {
			b.Fatal("nothing is drawn")
		}
	}
}
