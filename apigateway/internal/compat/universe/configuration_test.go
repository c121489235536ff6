package universe

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/score"
	"github.com/orreryhq/orrery/libs/wire"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a value's JSON with a file.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (-want +got)\n%s", path, d)
	}
}

// put decodes a body as PUT does.
func put(t interface{ Fatalf(string, ...any) }, body string, old *fleet.GroupSpec) fleet.GroupSpec {
	var b configurationBody
	if _, err := wire.DecodeJSONLenient(strings.NewReader(body), 0, &b); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	s, err := b.spec(old)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return s
}

func TestAnEmptyBodyIsTheDocumentedDefaults(t *testing.T) {
	for _, body := range []string{`{}`, `{"runtime":null,"nodes":null,"availablePorts":{},"environmentVariables":null,"templateInstallationConfig":null}`} {
		s := put(t, body, nil)
		golden(t, "configuration-defaults", ConfigurationOf(&fleet.Group{Name: "default", Spec: s}))
		if problems := s.Validate(); len(problems) > 0 {
			t.Errorf("the defaults are refused: %v", problems)
		}
		if s.Scaling.Max != 0 {
			t.Errorf("a maximum of %d: this dialect knows none", s.Scaling.Max)
		}
	}
}

func TestEveryFieldIsReadAndShown(t *testing.T) {
	body, err := os.ReadFile("testdata/configuration-full.json")
	if err != nil {
		t.Fatal(err)
	}
	s := put(t, string(body), nil)
	golden(t, "configuration-full", ConfigurationOf(&fleet.Group{Name: "lobby", Spec: s}))
	if problems := s.Validate(); len(problems) > 0 {
		t.Errorf("refused: %v", problems)
	}
	if s.Where.Nodes[1] != "node-2" || s.AdditionalPorts[0].Protocol != "udp" || s.Templates.AllOf[0].Priority != 7 {
		t.Errorf("read as %+v", s)
	}
}

func TestSpecialReadings(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		ok         func(fleet.GroupSpec) bool
	}{
		{"any node is no list", `{"nodes":["*"]}`, func(s fleet.GroupSpec) bool { return s.Where.Nodes == nil && s.Where.Allows("x") }},
		{"a declared environment loses the default entry", `{"environmentVariables":{}}`, func(s fleet.GroupSpec) bool { return len(s.Env) == 0 }},
		{"no command is none, whatever a native group would run", `{}`, func(s fleet.GroupSpec) bool {
			return compose.Compose(fleet.Group{Spec: s}, compose.Materials{}, 0).Command == ""
		}},
		{"a jarFile that is given", `{"jarFile":"own.jar"}`, func(s fleet.GroupSpec) bool { return s.Software.JarFile == "own.jar" }},
		{"numbers as text", `{"ramMB":"512","cpu":"50.0","minimumServiceCount":2.0,"availablePorts":{"min":"25568","max":25569},"additionalPorts":[{"port":"9000","protocol":"UDP","name":"q"}],` +
			`"templateInstallationConfig":{"allOf":[{"name":"x","group":"g","storage":"local","priority":"7"}]}}`, func(s fleet.GroupSpec) bool {
			return s.Resources.MemoryMiB == 512 && s.Resources.CPU == 50 && s.Scaling.Min == 2 && s.Ports == fleet.PortRange{Start: 25568, End: 25569} &&
				s.AdditionalPorts[0].Range == fleet.PortRange{Start: 9000, End: 9000} && s.Templates.AllOf[0].Priority == 7
		}},
		{"numbers that are null", `{"ramMB":null,"additionalPorts":[{"port":9000,"end":null}]}`, func(s fleet.GroupSpec) bool {
			return s.Resources.MemoryMiB == defaultRAM && s.AdditionalPorts[0].Range.End == 9000
		}},
		{"half a port range keeps the other default", `{"availablePorts":{"min":25568}}`, func(s fleet.GroupSpec) bool { return s.Ports == fleet.PortRange{Start: 25568, End: 25570} }},
		{"a port without protocol and name has both", `{"additionalPorts":[{"port":9000}]}`, func(s fleet.GroupSpec) bool {
			return s.AdditionalPorts[0] == fleet.NamedPort{Name: "port-9000", Protocol: "tcp", Range: fleet.PortRange{Start: 9000, End: 9000}}
		}},
		{"a port with an end is a range", `{"additionalPorts":[{"port":9000,"end":9009,"name":"q"}]}`, func(s fleet.GroupSpec) bool {
			return s.AdditionalPorts[0].Range == fleet.PortRange{Start: 9000, End: 9009}
		}},
		{"a template without a group is of the default one", `{"templateInstallationConfig":{"oneOf":[{"name":"x"}]}}`, func(s fleet.GroupSpec) bool {
			return s.Templates.OneOf[0].TemplateRef == content.TemplateRef{Group: "default", Name: "x"}
		}},
		{"a field of the other dialect", `{"shutdownGraceSeconds":7,"readiness":{"type":"port"},"maxInstances":9}`, func(s fleet.GroupSpec) bool {
			return s.Stop.GraceSeconds == 7 && s.Readiness.Type == fleet.CheckPort && s.Scaling.Max == 9
		}},
		{"what files are made with", `{"autoLayers":true,"mergeFiles":["*.yml"],"configRules":[{"file":"a","path":"b","op":"regex","value":"c"}]}`, func(s fleet.GroupSpec) bool {
			return s.AutoLayers && slices.Equal(s.MergeFiles, []string{"*.yml"}) && len(s.ConfigRules) == 1 && s.ConfigRules[0].Op == configfile.PatchRegex
		}},
		{"placing, in the words of the other dialect", `{"nodePreferences":[{"label":"ssd","weight":-5}],"spreadConstraint":"rack","spreadMaxSkew":1,"maxPerNode":2,
			"exclusiveNode":true,"placementProfile":"pack","placementWeights":{"warm":1},"labels":{"a":"b"},"quota":{"memoryMb":3},
			"reserved":{"cpu":4},"preempts":true,"rebalance":true}`, func(s fleet.GroupSpec) bool {
			return cmp.Equal(s.Where, fleet.Where{
				Nodes: s.Where.Nodes, Prefer: []fleet.Preference{{Label: "ssd", Weight: -5}}, Spread: "rack", MaxSkew: 1, MaxPerNode: 2,
				Alone: true, Profile: score.ProfilePack, Weights: map[score.Part]float64{score.Warm: 1},
			}) && s.Labels["a"] == "b" && s.Quota.MemoryMiB == 3 && s.Reserved.CPU == 4 && s.Preempts && s.Rebalance
		}},
		{"how it runs, in the words of the other dialect", `{"readiness":{"type":"log","pattern":"Done"},"liveness":{"type":"heartbeat","intervalSeconds":60,"then":"report"},
			"limits":{"processes":5,"ioWeight":6,"diskMb":7,"logMb":8},"confine":{"user":"games","privateTmp":true},"container":{"image":"a:1"},
			"additionalPorts":[{"port":9,"name":"r"}],"rcon":{"port":"r","password":"x"},"maxLifetimeSeconds":9}`, func(s fleet.GroupSpec) bool {
			return s.Readiness == fleet.Check{Type: fleet.CheckLog, Pattern: "Done"} && s.Liveness.Interval() == time.Minute && s.Liveness.Then == fleet.UnhealthyReport &&
				s.Limits == isolation.Limits{Processes: 5, IOWeight: 6, DiskMiB: 7, LogMiB: 8} && s.Confine == isolation.Confine{User: "games", PrivateTmp: true} &&
				s.Container.Image == "a:1" && s.RCON == fleet.RCON{Port: "r", Password: "x"} && s.MaxLifetimeSeconds == 9
		}},
		{"no liveness is none", `{"liveness":{"type":"none"}}`, func(s fleet.GroupSpec) bool { return s.Liveness == fleet.Liveness{} }},
		{"the most free memory wins", `{}`, func(s fleet.GroupSpec) bool { return s.Where.Profile == score.ProfileMemory }},
		{"weights are those of the default profile", `{"placementWeights":{"cpu":0}}`, func(s fleet.GroupSpec) bool { return s.Where.Profile == "" }},
		{"a spread needs a profile that counts it", `{"spreadConstraint":"rack"}`, func(s fleet.GroupSpec) bool { return s.Where.Profile == "" }},
		{"the default profile has no name", `{"placementProfile":"balanced"}`, func(s fleet.GroupSpec) bool { return s.Where.Profile == "" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if s := put(t, tc.body, nil); !tc.ok(s) {
				t.Errorf("%s is read as %+v", tc.body, s)
			}
		})
	}
}

func TestUnknownFieldsAreNamed(t *testing.T) {
	var b configurationBody
	ignored, err := wire.DecodeJSONLenient(strings.NewReader(`{"name":"x","nonsense":1,"stopCommand":"end","b":2}`), 0, &b)
	if err != nil || !cmp.Equal(ignored, []string{"b", "nonsense"}) {
		t.Errorf("ignored %v, %v", ignored, err)
	}
}

func TestAnEmptyNodeListIsRefused(t *testing.T) {
	_, err := configurationBody{Nodes: []string{}}.spec(nil)
	if !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "nodes" || !strings.Contains(errs.MessageOf(err), `["*"]`) {
		t.Errorf("err = %v", err)
	}
}

func TestProblemsNameTheFieldOfThisDialect(t *testing.T) {
	for _, tc := range []struct{ body, field, message string }{
		{`{"availablePorts":{"min":9,"max":3}}`, "availablePorts.min", "must not be greater than availablePorts.max (9 > 3): set both"},
		{`{"availablePorts":{"max":99999}}`, "availablePorts.max", ""},
		{`{"ramMB":-1}`, "ramMB", "must not be negative, is -1"},
		{`{"cpu":-1}`, "cpu", ""},
		{`{"runtime":"warp"}`, "runtime", ""},
		{`{"minimumServiceCount":-3}`, "minimumServiceCount", ""},
		{`{"minimumServiceCount":5,"maxInstances":2}`, "minimumServiceCount", ""},
		{`{"environmentVariables":{"LD_PRELOAD":"x"}}`, "environmentVariables", ""},
		{`{"properties":{"a b":"x"}}`, "properties", ""},
		{`{"nodes":["node-1","!"]}`, "nodes[1]", ""},
		{`{"nodePreferences":[{"label":"a b"}]}`, "nodePreferences[0].label", ""},
		{`{"placementWeights":{"luck":1}}`, "placementWeights.luck", ""},
		{`{"quota":{"memoryMb":-1}}`, "quota.memoryMb", ""},
		{`{"fileModifications":["../x"]}`, "fileModifications[0]", ""},
		{`{"liveness":{"type":"port","failures":-1}}`, "liveness.failures", ""},
		{`{"limits":{"diskMb":-1}}`, "limits.diskMb", ""},
		{`{"rcon":{"password":"x"}}`, "rcon.port", ""},
		{`{"additionalPorts":[{"port":0,"name":"q"}]}`, "additionalPorts[0].port", ""},
		{`{"additionalPorts":[{"port":9,"end":3,"name":"q"}]}`, "additionalPorts[0].port", "must not be greater than additionalPorts[0].end (9 > 3): set both"},
		{`{"templateInstallationConfig":{"allOf":[{"name":"..","group":"g"}]}}`, "templateInstallationConfig.allOf[0]", ""},
	} {
		t.Run(tc.body, func(t *testing.T) {
			problems := put(t, tc.body, nil).Validate()
			if len(problems) == 0 {
				t.Fatal("accepted")
			}
			err := inOurWords(errs.Wrap("operate.PutGroup", problems[0]))
			if errs.FieldOf(err) != tc.field || tc.message != "" && errs.MessageOf(err) != tc.message || !errs.Is(err, errs.Invalid) {
				t.Errorf("field %q, message %q", errs.FieldOf(err), errs.MessageOf(err))
			}
		})
	}
	if err := errs.New(errs.NotFound, "no such group"); inOurWords(err) != error(err) {
		t.Error("an error about no field is changed")
	}
}

// specs generates groups with fields that the dialect does not have.
func specs() *rapid.Generator[fleet.GroupSpec] {
	word := rapid.StringMatching(`[a-z][a-z0-9]{0,6}`)
	words := rapid.SliceOfN(word, 0, 3)
	table := rapid.MapOfN(word, rapid.String(), 0, 3)
	layers := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) content.TemplateLayer {
		return content.TemplateLayer{
			TemplateRef: content.TemplateRef{Group: word.Draw(t, "group"), Name: word.Draw(t, "name")},
			Storage:     rapid.SampledFrom([]string{"", "s3"}).Draw(t, "storage"), Priority: rapid.IntRange(-5, 5).Draw(t, "priority"),
		}
	}), 0, 3)
	count := rapid.IntRange(0, 100)
	return rapid.Custom(func(t *rapid.T) fleet.GroupSpec {
		s := fleet.DefaultSpec()
		s.Software = fleet.Software{Platform: word.Draw(t, "platform"), JarFile: "x.jar", JVMArgs: words.Draw(t, "jvmArgs")}
		s.Command, s.HostAddress = rapid.String().Draw(t, "command"), word.Draw(t, "host")
		s.Runtime = rapid.SampledFrom(fleet.RuntimeNames[:]).Draw(t, "runtime")
		s.Resources = fleet.Resources{MemoryMiB: count.Draw(t, "memory"), CPU: count.Draw(t, "cpu"), DiskMiB: count.Draw(t, "disk")}
		s.CPULimit = count.Draw(t, "limit")
		s.Ports = fleet.PortRange{Start: 1 + count.Draw(t, "start"), End: 200}
		for i := range rapid.IntRange(0, 2).Draw(t, "ports") {
			s.AdditionalPorts = append(s.AdditionalPorts, fleet.NamedPort{
				Name: fmt.Sprintf("p%d", i), Protocol: rapid.SampledFrom([]string{"tcp", "udp"}).Draw(t, "protocol"),
				Range: fleet.PortRange{Start: 300 + i, End: 300 + i + count.Draw(t, "width")},
			})
		}
		for _, n := range words.Draw(t, "nodes") {
			s.Where.Nodes = append(s.Where.Nodes, fleet.NodeID(n))
		}
		s.Where.Affinity, s.Where.Spread = words.Draw(t, "affinity"), word.Draw(t, "spread")
		s.Where.Prefer = []fleet.Preference{{Label: word.Draw(t, "preferred"), Weight: count.Draw(t, "weight")}}
		s.Where.MaxSkew, s.Where.MaxPerNode, s.Where.Alone = count.Draw(t, "skew"), count.Draw(t, "per node"), rapid.Bool().Draw(t, "alone")
		s.Where.Profile = rapid.SampledFrom([]score.Profile{"", score.ProfileSpread, score.ProfilePack, score.ProfileMemory}).Draw(t, "profile")
		s.Where.Weights = map[score.Part]float64{score.Warm: rapid.Float64Range(0, 10).Draw(t, "warm")}
		s.Labels, s.Preempts, s.Rebalance = table.Draw(t, "labels"), rapid.Bool().Draw(t, "preempts"), rapid.Bool().Draw(t, "rebalance")
		s.Quota, s.Reserved = fleet.Budget{MemoryMiB: count.Draw(t, "quota")}, fleet.Budget{Instances: count.Draw(t, "reserved")}
		s.Scaling.Min, s.Scaling.Max = count.Draw(t, "min"), 100+count.Draw(t, "max")
		s.Players.Max, s.Players.DefaultGroup = count.Draw(t, "players"), rapid.Bool().Draw(t, "default")
		s.Templates = content.TemplateSelection{
			AllOf: layers.Draw(t, "allOf"), AllInGroups: words.Draw(t, "allInGroups"),
			OneOf: layers.Draw(t, "oneOf"), OneInGroups: words.Draw(t, "oneInGroups"), Override: rapid.Bool().Draw(t, "override"),
		}
		s.FileModifications, s.InstanceGroups = words.Draw(t, "files"), words.Draw(t, "groups")
		s.Env, s.Variables = table.Draw(t, "env"), table.Draw(t, "variables")
		s.Static = fleet.Static{Enabled: rapid.Bool().Draw(t, "static"), ProtectedPaths: words.Draw(t, "paths")}
		s.Stop.GraceSeconds, s.StartupTimeoutSeconds = count.Draw(t, "grace"), count.Draw(t, "startup")
		s.Readiness.Type = rapid.SampledFrom([]fleet.CheckType{fleet.CheckNone, fleet.CheckPort}).Draw(t, "readiness")
		s.Liveness.Type, s.Liveness.Failures = rapid.SampledFrom([]fleet.CheckType{"", fleet.CheckPort}).Draw(t, "liveness"), count.Draw(t, "failures")
		s.Limits, s.Confine.PrivateTmp = isolation.Limits{DiskMiB: count.Draw(t, "disk limit")}, rapid.Bool().Draw(t, "tmp")
		s.Container.Image, s.RCON.Password = word.Draw(t, "image"), word.Draw(t, "password")
		s.OnCrash = rapid.SampledFrom([]fleet.OnCrash{fleet.CrashReplace, fleet.CrashRestart, fleet.CrashStop}).Draw(t, "onCrash")
		s.Maintenance.Bypass, s.Motd.Lines, s.DependsOn = words.Draw(t, "bypass"), words.Draw(t, "motd"), nil
		return s
	})
}

func TestWhatIsShownAndPutBackChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := specs().Draw(t, "spec")
		body, err := json.Marshal(ConfigurationOf(&fleet.Group{Name: "g", Spec: before}))
		if err != nil {
			t.Fatal(err)
		}
		after := put(t, string(body), &before)
		if d := cmp.Diff(before, after, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%s", d)
		}
	})
}

func TestFieldsOfTheOtherDialectSurviveAnyPut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, given := specs().Draw(t, "before"), specs().Draw(t, "given")
		body, err := json.Marshal(ConfigurationOf(&fleet.Group{Name: "g", Spec: given}))
		if err != nil {
			t.Fatal(err)
		}
		after := put(t, string(body), &before)
		// Fields of the dialect come from the body; all others are unchanged.
		want := before
		want.Runtime, want.Command, want.HostAddress, want.Ports = given.Runtime, given.Command, given.HostAddress, given.Ports
		want.Static.Enabled, want.Resources.MemoryMiB, want.Resources.CPU = given.Static.Enabled, given.Resources.MemoryMiB, given.Resources.CPU
		want.InstanceGroups, want.Where.Nodes, want.Scaling.Min = given.InstanceGroups, given.Where.Nodes, given.Scaling.Min
		want.Env, want.Variables, want.Templates, want.FileModifications = given.Env, given.Variables, given.Templates, given.FileModifications
		want.AdditionalPorts = after.AdditionalPorts // their ranges have their own test
		if d := cmp.Diff(want, after, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%s", d)
		}
	})
}

func FuzzABodyNeverBreaksTheReader(f *testing.F) {
	f.Add(`{"nodes":["*"],"additionalPorts":[{"port":1}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		var b configurationBody
		if _, err := wire.DecodeJSONLenient(strings.NewReader(body), 0, &b); err != nil {
			if k := errs.KindOf(err); k != errs.Malformed && k != errs.TooLarge {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		if s, err := b.spec(nil); err == nil {
			_ = ConfigurationOf(&fleet.Group{Spec: s})
		}
	})
}
