package output_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"charm.land/lipgloss/v2"
	"github.com/orreryhq/orrery/cli/internal/clitest/golden"
	"github.com/orreryhq/orrery/cli/internal/output"
	"github.com/tidwall/gjson"
)

var columns = []output.Column{
	{Header: "NAME", Path: "id"},
	{Header: "STATE", Path: "state", State: true},
	{Header: "NODE", Path: "where.node", Wide: true},
	{Header: "PLAYERS", Path: "players"},
	{Header: "MESSAGE", Path: "message", Text: func(f gjson.Result) string { return f.String() }},
}

var rows = []output.Row{
	output.Row(`{"id":"lobby-1","state":"RUNNING","where":{"node":"node-1"},"players":12,"message":"the readiness check passed","tags":[],"extra":{"a":null}}`),
	output.Row(`{"id":"lobby-10","state":"CRASHED","where":{"node":"ノード"},"players":null,"message":"exit 1\n\u001b[31mred, \"quoted\""}`),
	output.Row(`{"id":"007","state":"STOPPED","players":3,"message":""}`),
}

func printer(t *testing.T, format string, out *bytes.Buffer) output.Printer {
	t.Helper()
	f, err := output.ParseFormat(format)
	if err != nil {
		t.Fatal(err)
	}
	return output.Printer{Out: out, Format: f}
}

func TestListInEachFormat(t *testing.T) {
	for _, format := range []string{"table", "wide", "json", "yaml", "name", "csv", "jsonpath={.items[*].id}", "jsonpath=$.items[0].where"} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			if err := printer(t, format, &out).List(columns, "id", rows); err != nil {
				t.Fatal(err)
			}
			name := strings.NewReplacer("=", "-", "{", "", "}", "", "[", "", "]", "", "*", "all", "$", "", ".", "-").Replace(format)
			golden.Equal(t, "list/"+name+".txt", out.String())
		})
	}
}

func TestObjectIsNotAnArray(t *testing.T) {
	var out bytes.Buffer
	if err := printer(t, "json", &out).Object(columns, "id", rows[2]); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "{\n") {
		t.Errorf("an object is printed as %q", out.String())
	}
}

func TestColoursDoNotMoveColumns(t *testing.T) {
	var plain, coloured bytes.Buffer
	p := printer(t, "table", &plain)
	if err := p.List(columns, "id", rows); err != nil {
		t.Fatal(err)
	}
	p.Out, p.Style = &coloured, output.Style{Colour: true}
	if err := p.List(columns, "id", rows); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(coloured.String(), "\x1b[32mRUNNING\x1b[0m") {
		t.Errorf("RUNNING is not green: %q", coloured.String())
	}
	for _, code := range []string{"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m"} {
		coloured = *bytes.NewBufferString(strings.ReplaceAll(coloured.String(), code, ""))
	}
	if coloured.String() != plain.String() {
		t.Errorf("colours change the table:\n%s\n%s", plain.String(), coloured.String())
	}
}

func TestNarrowTerminalCutsTheLastColumn(t *testing.T) {
	var out bytes.Buffer
	p := printer(t, "table", &out)
	p.Width = 40
	if err := p.List(columns, "id", rows); err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "narrow.txt", out.String())
}

func TestColumnsAreAlignedForAnyCharacter(t *testing.T) {
	var out bytes.Buffer
	names := []string{"plain", "ノード", "e\u0301cole", "👩‍🚀 crew", "🇩🇪", "a\tb\x1b[31mc\u009b", "\u202eevil", "한국어 서버", "x\u200by"}
	var all []output.Row
	for _, name := range names {
		encoded, err := json.Marshal(map[string]string{"id": name, "state": "RUNNING"})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, encoded)
	}
	if err := printer(t, "table", &out).List(columns[:2], "id", all); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	at := strings.Index(lines[0], "STATE")
	for i, line := range lines[1:] {
		before, _, _ := strings.Cut(line, "RUNNING")
		if lipgloss.Width(before) != at || strings.ContainsFunc(line, unicode.IsControl) || strings.ContainsRune(line, '\u202e') {
			t.Errorf("%q: the state is in column %d of %q, want %d", names[i], lipgloss.Width(before), line, at)
		}
	}
}

func TestCutCountsColumns(t *testing.T) {
	for text, want := range map[string]string{"ノードノード": "ノー…", "e\u0301cole!!": "e\u0301cole…", "👩‍🚀👩‍🚀👩‍🚀👩‍🚀": "👩‍🚀👩‍🚀…"} {
		room := lipgloss.Width(want)
		if got := output.Cut(text, room); got != want {
			t.Errorf("%q cut to %d columns is %q, want %q", text, room, got, want)
		}
	}
}

func TestUnknownFormatNamesTheFormats(t *testing.T) {
	for _, value := range []string{"xml", "jsonpath", "jsonpath={.items[", "JSON"} {
		if _, err := output.ParseFormat(value); err == nil {
			t.Errorf("-o %s was accepted", value)
		}
	}
}

func TestFilter(t *testing.T) {
	known := []string{"id", "state", "where", "players", "message"}
	for filter, want := range map[string]string{
		"state=RUNNING":        "lobby-1",
		"state=running":        "lobby-1",
		"state!=RUNNING":       "lobby-10 007",
		"players>2":            "lobby-1 007",
		"players>=12":          "lobby-1",
		"players<12,players>0": "007",
		"id~^lobby":            "lobby-1 lobby-10",
		"id!~^lobby":           "007",
		"where.node=node-1":    "lobby-1",
		"state=RUNNING,id~10":  "",
		"":                     "lobby-1 lobby-10 007",
	} {
		f, err := output.ParseFilter("--filter", filter, known)
		if err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		var got []string
		for _, row := range rows {
			if f.Matches(row) {
				got = append(got, gjson.GetBytes(row, "id").String())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q selects %v, want %s", filter, got, want)
		}
	}
	for _, filter := range []string{"stat=RUNNING", "state", "=x", "id~(", "players >1"} {
		if _, err := output.ParseFilter("--filter", filter, known); err == nil {
			t.Errorf("%q was accepted", filter)
		}
	}
}

func TestSort(t *testing.T) {
	for by, want := range map[string]string{
		"players":  "lobby-10 007 lobby-1",
		"-players": "lobby-1 007 lobby-10",
		"id":       "007 lobby-1 lobby-10",
		"":         "lobby-1 lobby-10 007",
	} {
		sorted := append([]output.Row(nil), rows...)
		if err := output.Sort(sorted, by, nil); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, row := range sorted {
			got = append(got, gjson.GetBytes(row, "id").String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("sorted by %q: %v, want %s", by, got, want)
		}
	}
	if err := output.Sort(nil, "-player", []string{"players"}); err == nil {
		t.Error("an unknown field was accepted")
	}
}

func TestASequenceThatFailsPrintsNothing(t *testing.T) {
	lost := errors.New("lost")
	for _, format := range []string{"table", "json", "yaml", "name", "csv", "jsonpath={.items[*].id}"} {
		var out bytes.Buffer
		err := printer(t, format, &out).Each(columns, "id", func(yield func(output.Row, error) bool) {
			_ = yield(rows[0], nil) && yield(nil, lost)
		})
		if !errors.Is(err, lost) || out.Len() > 0 {
			t.Errorf("-o %s: %v, printed %q", format, err, out.String())
		}
	}
}
