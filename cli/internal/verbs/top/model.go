// Package top is the full-screen view of nodes, groups and instances.
package top

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/output/terminal"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/tidwall/gjson"
)

// Actions are what a person can do with the selected instance. Each returns the command that does it.
type Actions struct {
	// Attach and Logs take the terminal.
	Attach, Logs func(name string) tea.Cmd
	// Act stops, restarts or kills.
	Act func(verb, name string) tea.Cmd
	// Explain tells why an instance is as it is.
	Explain func(name string) tea.Cmd
}

// The messages of the feed and of actions.
type (
	// itemsMsg has objects as they were read. With whole they are all of their tab.
	itemsMsg struct {
		tab   tab
		items []*item
		whole bool
		// gone are names that no longer exist.
		gone []string
	}
	// eventsMsg has events in order.
	eventsMsg []orrery.Event
	// problemsMsg is the number of problems; unknown if the user may not see it.
	problemsMsg int64
	// connectionMsg says that the connection is up, or why not.
	connectionMsg struct{ err error }
	// endedMsg says why there are no more events.
	endedMsg struct{ err error }
	// noticeMsg is the result of an action.
	noticeMsg string
	// overlayMsg shows a text over the table.
	overlayMsg struct {
		title string
		lines []string
	}
)

// Model is what the screen shows. It does no I/O.
type Model struct {
	actions Actions
	style   output.Style
	// cluster is the server that is shown.
	cluster       string
	width, height int
	tab           tab
	tables        []*table
	problems      int64
	// loaded is false until the first lists have arrived. lost is why there is no connection; empty with one.
	loaded bool
	lost   string
	// notice is the result of the last action. question is asked before confirmed runs.
	notice, question string
	confirmed        tea.Cmd
	// filtering is true while a filter is typed.
	filtering bool
	overlay   *overlay
	// err ended the program.
	err error
}

// overlay is a text over the table.
type overlay struct {
	title string
	lines []string
	first int
}

// NewModel returns the Model of a server.
func NewModel(cluster string, style output.Style, actions Actions) *Model {
	m := &Model{actions: actions, style: style, cluster: cluster, width: 80, height: 24, tab: instancesTab, problems: unknown}
	for _, columns := range columnsOf() {
		m.tables = append(m.tables, newTable(columns))
	}
	return m
}

// Init does nothing: the feed sends messages.
func (m *Model) Init() tea.Cmd { return nil }

// Update takes a message.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 1), max(msg.Height, 1)
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case tea.PasteMsg:
		if m.filtering {
			m.table().setFilter(m.table().filter + terminal.Clean(msg.Content))
		}
	case tea.MouseWheelMsg:
		m.wheel(msg)
	case tea.MouseClickMsg:
		m.click(msg)
	case itemsMsg:
		m.take(msg)
	case eventsMsg:
		for _, event := range msg {
			m.event(event)
		}
	case problemsMsg:
		m.problems = int64(msg)
	case connectionMsg:
		m.lost = ""
		if msg.err != nil {
			m.lost = terminal.Clean(msg.err.Error())
		}
	case endedMsg:
		m.err = msg.err
		return m, tea.Quit
	case noticeMsg:
		m.notice = terminal.Clean(string(msg))
	case overlayMsg:
		m.overlay = &overlay{title: msg.title, lines: msg.lines}
	}
	return m, nil
}

func (m *Model) table() *table { return m.tables[m.tab] }

// take sets objects that were read.
func (m *Model) take(msg itemsMsg) {
	t := m.tables[msg.tab]
	if msg.whole {
		t.replace(msg.items)
		m.loaded = m.loaded || msg.tab == instancesTab
		return
	}
	for _, i := range msg.items {
		old := t.all[i.name]
		if old != nil && old.uid != i.uid && kinds.IsOver(i.state) {
			continue // its name has another instance
		}
		i.inherit(old)
		t.put(i)
	}
	for _, name := range msg.gone {
		t.remove(name)
	}
}

// event applies what an event says. The feed reads what it does not say.
func (m *Model) event(event orrery.Event) {
	text, number := read(event.Data)
	nodes, groups, instances := m.tables[nodesTab], m.tables[groupsTab], m.tables[instancesTab]
	switch event.Type {
	case "INSTANCE_STATE_CHANGED":
		m.stateChanged(text)
	case "INSTANCE_REMOVED":
		if i := instances.all[text("instanceId")]; i != nil && i.uid == text("uid") {
			instances.remove(i.name)
		}
	case "INSTANCE_METRICS":
		instances.change(text("instanceId"), func(i *item) {
			if players := number("playerCount"); players >= 0 {
				i.players = players
				record(&i.playerSeries, players)
			}
		})
	case "GROUP_AGGREGATES_UPDATED":
		groups.change(text("groupName"), func(i *item) {
			i.running, i.players = number("runningInstances"), number("totalPlayers")
			record(&i.playerSeries, i.players)
		})
	case "GROUP_DELETED":
		groups.remove(text("groupName"))
	case "NODE_STATUS":
		nodes.change(text("nodeId"), func(i *item) {
			i.memory, i.memoryLimit = number("usedMemoryMb"), number("totalMemoryMb")
			i.cpu = gjson.GetBytes(event.Data, "cpuUsage").Num
		})
	}
}

// stateChanged applies a change of the state of an instance. The end of an instance whose name another one has is not
// shown.
func (m *Model) stateChanged(text func(string) string) {
	t, name, uid := m.tables[instancesTab], text("instanceId"), text("uid")
	state := text("newState")
	old := t.all[name]
	if old == nil || old.uid != uid {
		if old != nil && kinds.IsOver(state) {
			return
		}
		t.put(&item{
			name: name, uid: uid, group: text("group"), node: text("nodeId"), state: state, reason: text("reason"),
			message: text("message"), players: unknown, memory: unknown, port: unknown,
		})
		return
	}
	t.change(name, func(i *item) {
		i.state, i.reason, i.message = state, text("reason"), text("message")
		if node := text("nodeId"); node != "" {
			i.node = node
		}
		if kinds.IsOver(state) {
			i.players, i.memory = 0, unknown
		}
	})
}

// ask asks before it does something.
func (m *Model) ask(verb string) {
	if i := m.selectedInstance(); i != nil {
		m.question, m.confirmed = fmt.Sprintf("%s %s?", verb, i.name), m.actions.Act(verb, i.name)
	}
}

// selectedInstance returns the selected instance; nil, and a notice, if something else is selected.
func (m *Model) selectedInstance() *item {
	i := m.table().current()
	if m.tab != instancesTab || i == nil {
		m.notice = "select an instance first"
		return nil
	}
	return i
}

// filterText is the filter of the tab, with the cursor while it is typed.
func (m *Model) filterText() string {
	text := m.table().filter
	if m.filtering {
		text += "▏"
	}
	return strings.TrimSpace(text)
}
