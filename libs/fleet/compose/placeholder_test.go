package compose

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
)

func TestSubstitute(t *testing.T) {
	values := map[string]string{"PORT": "25565", "a.b-c": "dotted", "_x": "under", "LOOP": "%LOOP%", "HALF": "%PO", "EMPTY": "", "P": "%"}
	value := func(n string) (string, bool) { v, ok := values[n]; return v, ok }
	cases := []struct {
		rule, text, want string
		unknown          []string
	}{
		{"text without a percent sign stays", "server-port=1", "server-port=1", nil},
		{"a placeholder is replaced", "port=%PORT%!", "port=25565!", nil},
		{"each of several is", "%PORT%%PORT% %_x%", "2556525565 under", nil},
		{"a name may have dots and dashes", "%a.b-c%", "dotted", nil},
		{"a value may be empty", "[%EMPTY%]", "[]", nil},
		{"a value is not looked into", "%LOOP%", "%LOOP%", nil},
		{"nor does it join what follows", "%HALF%RT%", "%PORT%", nil},
		{"nor what stands before", "%P%PORT%", "%PORT%", nil},
		{"an unknown one stays and is named", "a %NOPE% b", "a %NOPE% b", []string{"NOPE"}},
		{"unknown ones are named once, in order", "%B% %A% %B%", "%B% %A% %B%", []string{"B", "A"}},
		{"names are told apart by case", "%port%", "%port%", []string{"port"}},
		{"a lone percent sign stays", "100% sure", "100% sure", nil},
		{"one at the end does", "100%", "100%", nil},
		{"two in a row do", "%%", "%%", nil},
		{"a placeholder may follow one", "%%PORT%", "%25565", nil},
		{"a name does not start with a digit", "%1x%PORT%", "%1x25565", nil},
		{"nor with a dot", "%.x%", "%.x%", nil},
		{"a space ends the attempt", "50% of %PORT%", "50% of 25565", nil},
		{"bytes that are no text stay", "\xff%PORT%\xfe", "\xff25565\xfe", nil},
	}
	for _, c := range cases {
		t.Run(c.rule, func(t *testing.T) {
			got, unknown := configfile.Substitute(c.text, value)
			if got != c.want || !slices.Equal(unknown, c.unknown) {
				t.Errorf("Substitute(%q) = %q, %q; want %q, %q", c.text, got, unknown, c.want, c.unknown)
			}
		})
	}
}

// FuzzSubstitute compares with a definition by regular expression: one pass that does not look into
// values, keeps unknown placeholders and reports each of them once.
func FuzzSubstitute(f *testing.F) {
	pattern := regexp.MustCompile(`%[A-Za-z_][A-Za-z0-9_.-]*%`)
	for _, s := range []string{"%PORT%", "%%PORT%%", "a%B%c%B%", "%A %B%", "100%", "%\xff%", "%A%B%"} {
		f.Add(s, "%PORT%")
	}
	f.Fuzz(func(t *testing.T, text, v string) {
		value := func(n string) (string, bool) { return v, n[0]%2 == 0 }
		var unknown []string
		want := pattern.ReplaceAllStringFunc(text, func(s string) string {
			n := strings.Trim(s, "%")
			if r, ok := value(n); ok {
				return r
			}
			if !slices.Contains(unknown, n) {
				unknown = append(unknown, n)
			}
			return s
		})
		got, names := configfile.Substitute(text, value)
		if got != want || !slices.Equal(names, unknown) {
			t.Errorf("Substitute(%q) = %q, %q; want %q, %q", text, got, names, want, unknown)
		}
	})
}

func TestPlaceholders(t *testing.T) {
	c := PlaceholderContext{
		Plan: fleet.Plan{
			InstanceGroups: []string{"a", "b"}, Resources: fleet.Resources{MemoryMiB: 512}, MaxPlayers: 20,
			Variables: map[string]string{"FROM": "group", "BOTH": "group", "MAX_PLAYERS": "7"},
		},
		Placement: fleet.Placement{
			Instance: "abc123", Name: "lobby-1", Group: "lobby", Node: "n1", Port: 30000,
			Ports: map[string]int{"query": 30001}, Values: map[string]string{"BOTH": "start"},
		},
		Node:    fleet.Node{ID: "n1", Address: "10.0.0.1", AgentURL: "http://10.0.0.1:8091", Variables: map[string]string{"FROM": "node", "RACK": "7"}},
		APIHost: "gw", APIPort: "8080",
	}
	want := map[string]string{
		"PORT": "30000", "PORT_QUERY": "30001", "INSTANCE_ID": "abc123", "INSTANCE_NAME": "lobby-1",
		"GROUP": "lobby", "CONFIGURATION_NAME": "lobby", "INSTANCE_GROUPS": "a;b", "NODE_ID": "n1",
		"NODE_ADDRESS": "10.0.0.1", "HOST_ADDRESS": "10.0.0.1", "RAM_MB": "512", "MEMORY": "512",
		"MASTER_IP": "gw", "MASTER_ADDRESS": "gw", "MASTER_PORT": "8080", "MASTER_API_PORT": "8080", "NODE_PORT": "8091",
		"RACK": "7", "FROM": "group", "BOTH": "start", "MAX_PLAYERS": "7",
	}
	before := maps.Clone(c.Plan.Variables)
	if diff := cmp.Diff(want, Placeholders(c)); diff != "" {
		t.Error(diff)
	}
	if !maps.Equal(before, c.Plan.Variables) {
		t.Error("the plan's own variables were changed")
	}
	c.HostAddress = "play.example.org"
	if got := Placeholders(c)["HOST_ADDRESS"]; got != "play.example.org" {
		t.Errorf("HOST_ADDRESS = %q", got)
	}
}

func TestPlaceholdersOmitSealedValues(t *testing.T) {
	got := Placeholders(PlaceholderContext{
		Plan:      fleet.Plan{Variables: map[string]string{"GROUPS": "sealed:eA", "BOTH": "text"}},
		Placement: fleet.Placement{Values: map[string]string{"STARTS": "sealed:eA", "BOTH": "sealed:eA", "TEXT": "unsealed:x"}},
	})
	for key, want := range map[string]string{"GROUPS": "", "STARTS": "", "BOTH": "text", "TEXT": "unsealed:x"} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
}

func TestBuiltInPlaceholdersHaveValues(t *testing.T) {
	for name := range builtIns(PlaceholderContext{}) {
		if !configfile.BuiltIn(name) {
			t.Errorf("BuiltIn(%q) = false, but every instance has a value for it", name)
		}
	}
	for _, name := range configfile.BuiltInNames {
		if _, ok := builtIns(PlaceholderContext{})[name]; !ok {
			t.Errorf("no instance has a value for the built-in placeholder %q", name)
		}
	}
}
