package top

import (
	"strings"

	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/orreryhq/orrery/cli/internal/output/terminal"
	"github.com/tidwall/gjson"
)

// seriesLength is how many points a series has at most.
const seriesLength = 60

// series has the latest values of a measurement.
type series struct {
	points [seriesLength]float32
	// length is how many points there are, and next where the next one goes.
	length, next int
}

func (s *series) add(value float64) {
	s.points[s.next] = float32(value)
	s.next = (s.next + 1) % seriesLength
	s.length = min(s.length+1, seriesLength)
}

// bars are the heights of a sparkline.
var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the latest points, the newest at the right. It is empty for a nil series.
func (s *series) sparkline(width int) string {
	if s == nil || width <= 0 {
		return ""
	}
	n, most := min(s.length, width), float32(0)
	at := func(i int) float32 { return s.points[(s.next-n+i+seriesLength)%seriesLength] }
	for i := range n {
		most = max(most, at(i))
	}
	line := make([]rune, 0, width)
	for i := range n {
		level := 0
		if most > 0 {
			level = int(max(at(i), 0) / most * float32(len(bars)-1))
		}
		line = append(line, bars[level])
	}
	return string(line)
}

// unknown is a number that the server does not know.
const unknown = -1

// item is a node, a group or an instance.
type item struct {
	name, uid, group, node, state, reason, message string
	// players, running, least, most and port are numbers of the kinds that have them.
	players, running, least, most, port int64
	// memory and memoryLimit are in MiB. cpu is from 0 to 1 for nodes, and in cores for instances.
	memory, memoryLimit int64
	cpu                 float64
	version, scaling    string
	// memorySeries and playerSeries are nil until a value arrives.
	memorySeries, playerSeries *series
}

// record adds a value to a series, and makes the series for the first value.
func record(s **series, value int64) {
	if value < 0 {
		return
	}
	if *s == nil {
		*s = &series{}
	}
	(*s).add(float64(value))
}

// matches reports whether a lower-case text occurs in the item.
func (i *item) matches(text string) bool {
	for _, field := range []string{i.name, i.group, i.node, i.state, i.reason, i.message} {
		if strings.Contains(strings.ToLower(field), text) {
			return true
		}
	}
	return false
}

// read returns a function that returns fields of a row as text, and one that returns them as numbers.
func read(row []byte) (text func(string) string, number func(string) int64) {
	parsed := gjson.ParseBytes(row)
	text = func(name string) string {
		return output.OneLine(terminal.Clean(strings.ReplaceAll(parsed.Get(name).String(), "\n", " ")))
	}
	number = func(name string) int64 {
		if field := parsed.Get(name); field.Type == gjson.Number {
			return field.Int()
		}
		return unknown
	}
	return text, number
}

func nodeItem(row output.Row) *item {
	text, number := read(row)
	return &item{
		name: text("id"), state: text("status"), message: text("message"), version: text("version"),
		running: number("instanceCount"), memory: number("usedMemoryMb"), memoryLimit: number("totalMemoryMb"),
		cpu: gjson.GetBytes(row, "cpuUsage").Num,
	}
}

func groupItem(row output.Row) *item {
	text, number := read(row)
	return &item{
		name: text("name"), message: text("message"), scaling: text("scalingMode"), version: text("platform"),
		running: number("runningInstances"), least: number("minInstances"), most: number("maxInstances"),
		players: number("totalPlayers"), memoryLimit: number("memoryMb"),
	}
}

func instanceItem(row output.Row) *item {
	text, number := read(row)
	return &item{
		name: text("id"), uid: text("uid"), group: text("group"), node: text("node"), state: text("state"), reason: text("reason"),
		message: text("message"), port: number("port"), players: number("playerCount"), most: number("maxPlayers"),
		memory: number("usedMemoryMb"), memoryLimit: number("memoryMb"), cpu: gjson.GetBytes(row, "usedCpu").Num / 100,
	}
}

// tab is a kind of objects with a table.
type tab int

const (
	nodesTab tab = iota
	groupsTab
	instancesTab
)

// tabs has the kind of each tab.
var tabs = []struct {
	title string
	kind  *kinds.Kind
	read  func(output.Row) *item
}{
	nodesTab:     {"nodes", kinds.Get("node"), nodeItem},
	groupsTab:    {"groups", kinds.Get("group"), groupItem},
	instancesTab: {"instances", kinds.Get("instance"), instanceItem},
}
