package fleet

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/score"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

func TestTheDefaultsAreValid(t *testing.T) {
	if problems := DefaultSpec().Validate(); len(problems) > 0 {
		t.Error(problems)
	}
}

func many[T any](n int, v T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}

func TestSpecValidationNamesField(t *testing.T) {
	cases := []struct {
		field, rule string
		spoil       func(*GroupSpec)
	}{
		{"runtime", "an unknown runtime", func(s *GroupSpec) { s.Runtime = "vm" }},
		{"runtime", "none", func(s *GroupSpec) { s.Runtime = "" }},
		{"command", "too long", func(s *GroupSpec) { s.Command = strings.Repeat("x", 1<<14+1) }},
		{"command", "a NUL", func(s *GroupSpec) { s.Command = "a\x00b" }},
		{"jarFile", "outside the directory", func(s *GroupSpec) { s.Software.JarFile = "../x.jar" }},
		{"jarFile", "an absolute path", func(s *GroupSpec) { s.Software.JarFile = "/x.jar" }},
		{"jvmArgs", "too many", func(s *GroupSpec) { s.Software.JVMArgs = many(257, "-x") }},
		{"jvmArgs[1]", "a newline", func(s *GroupSpec) { s.Software.JVMArgs = []string{"ok", "a\nb"} }},
		{"hostAddress", "a newline", func(s *GroupSpec) { s.HostAddress = "a\nb" }},
		{"platform", "too long", func(s *GroupSpec) { s.Software.Platform = strings.Repeat("x", validate.MaxWord+1) }},
		{"platform", "a NUL", func(s *GroupSpec) { s.Software.Platform = "PAPER\x00" }},
		{"platformVersion", "an escape sequence", func(s *GroupSpec) { s.Software.PlatformVersion = "1.21\x1b[2J" }},
		{"jvmArgs[0]", "null", func(s *GroupSpec) { s.Software.JVMArgs = []string{""} }},
		{"maintenanceMessage", "too long", func(s *GroupSpec) { s.Maintenance.Message = strings.Repeat("x", validate.MaxShown+1) }},
		{"maintenanceMessage", "a NUL", func(s *GroupSpec) { s.Maintenance.Message = "a\x00" }},
		{"maintenanceBypass", "too many", func(s *GroupSpec) { s.Maintenance.Bypass = many(257, "x") }},
		{"maintenanceBypass[1]", "null", func(s *GroupSpec) { s.Maintenance.Bypass = []string{"x", ""} }},
		{"motds", "too many", func(s *GroupSpec) { s.Motd.Lines = many(20_000, "x") }},
		{"motds[0]", "null", func(s *GroupSpec) { s.Motd.Lines = []string{""} }},
		{"motds[0]", "an escape sequence", func(s *GroupSpec) { s.Motd.Lines = []string{"\x1b[31m"} }},
		{"motdMode", "a newline", func(s *GroupSpec) { s.Motd.Mode = "a\nb" }},
		{"motdIntervalSeconds", "negative", func(s *GroupSpec) { s.Motd.IntervalSeconds = -1 }},
		{"maxPlayers", "absurd", func(s *GroupSpec) { s.Players.Max = math.MaxInt64 }},
		{"dependsOn[0]", "null", func(s *GroupSpec) { s.DependsOn = []GroupName{""} }},
		{"attachedModules", "too many", func(s *GroupSpec) { s.Composition.AttachedModules = many(257, "x") }},
		{"enabledModules[0]", "null", func(s *GroupSpec) { s.Composition.EnabledModules = []string{""} }},
		{"disabledModules[0]", "too long", func(s *GroupSpec) { s.Composition.DisabledModules = []string{strings.Repeat("x", validate.MaxWord+1)} }},
		{"attachedExtensions[0]", "a newline", func(s *GroupSpec) { s.Composition.AttachedExtensions = []string{"a\nb"} }},
		{"enabledExtensions[0]", "null", func(s *GroupSpec) { s.Composition.EnabledExtensions = []string{""} }},
		{"disabledExtensions[0]", "null", func(s *GroupSpec) { s.Composition.DisabledExtensions = []string{""} }},
		{"templates.allOf[0].storage", "too long", func(s *GroupSpec) {
			s.Templates.AllOf = []content.TemplateLayer{{TemplateRef: content.TemplateRef{Group: "g", Name: "n"}, Storage: strings.Repeat("x", validate.MaxWord+1)}}
		}},
		{"readiness.type", "an unknown check", func(s *GroupSpec) { s.Readiness.Type = "guess" }},
		{"readiness.port", "no such port", func(s *GroupSpec) { s.Readiness = Check{Type: CheckPort, Port: "query"} }},
		{"readiness.path", "of another check", func(s *GroupSpec) { s.Readiness = Check{Type: CheckPort, Path: "/"} }},
		{"readiness.path", "relative", func(s *GroupSpec) { s.Readiness = Check{Type: CheckHTTP, Path: "health"} }},
		{"readiness.status", "no status", func(s *GroupSpec) { s.Readiness = Check{Type: CheckHTTP, Status: 42} }},
		{"readiness.send", "an unfinished escape", func(s *GroupSpec) { s.Readiness = Check{Type: CheckUDP, Send: `\xf`} }},
		{"readiness.pattern", "none for lines", func(s *GroupSpec) { s.Readiness = Check{Type: CheckLog} }},
		{"readiness.pattern", "no expression", func(s *GroupSpec) { s.Readiness = Check{Type: CheckLog, Pattern: "("} }},
		{"readiness.pattern", "an expression that explodes", func(s *GroupSpec) { s.Readiness = Check{Type: CheckLog, Pattern: "((a{100}){100}){100}"} }},
		{"liveness.type", "lines are only ready once", func(s *GroupSpec) { s.Liveness.Check = Check{Type: CheckLog, Pattern: "x"} }},
		{"liveness.intervalSeconds", "negative", func(s *GroupSpec) { s.Liveness.IntervalSeconds = -1 }},
		{"liveness.timeoutSeconds", "no number", func(s *GroupSpec) { s.Liveness.TimeoutSeconds = math.NaN() }},
		{"liveness.failures", "negative", func(s *GroupSpec) { s.Liveness.Failures = -1 }},
		{"liveness.then", "unknown", func(s *GroupSpec) { s.Liveness.Then = "pray" }},
		{"limits.processes", "negative", func(s *GroupSpec) { s.Limits.Processes = -1 }},
		{"limits.ioWeight", "too much", func(s *GroupSpec) { s.Limits.IOWeight = 10_001 }},
		{"limits.diskMb", "negative", func(s *GroupSpec) { s.Limits.DiskMiB = -1 }},
		{"limits.logMb", "absurd", func(s *GroupSpec) { s.Limits.LogMiB = 1 << 30 }},
		{"confine.readOnlyTemplates", "nobody else", func(s *GroupSpec) { s.Confine.ReadOnlyTemplates = true }},
		{"confine.user", "no user", func(s *GroupSpec) { s.Confine.User = "../root" }},
		{"container.image", "none for docker", func(s *GroupSpec) { s.Runtime = RuntimeDocker }},
		{"container.image", "an empty one of the environment", func(s *GroupSpec) { s.Runtime, s.Env = RuntimeDocker, map[string]string{"CUSTOM_IMAGE": ""} }},
		{"container.user", "no user", func(s *GroupSpec) { s.Container.User = "a:b:c" }},
		{"container.network", "no name", func(s *GroupSpec) { s.Container.Network = "--privileged" }},
		{"container.directory", "relative", func(s *GroupSpec) { s.Container.Directory = "data" }},
		{"container.volumes[0]", "no container", func(s *GroupSpec) { s.Container.Volumes = []string{"/srv"} }},
		{"container.volumes[0]", "leaving", func(s *GroupSpec) { s.Container.Volumes = []string{"/srv/../etc:/etc"} }},
		{"rcon.port", "no such port", func(s *GroupSpec) { s.RCON = RCON{Port: "rcon", Password: "x"} }},
		{"rcon.port", "a password alone", func(s *GroupSpec) { s.RCON = RCON{Password: "x"} }},
		{"rcon.password", "none", func(s *GroupSpec) {
			s.RCON, s.AdditionalPorts = RCON{Port: "rcon"}, []NamedPort{{"rcon", "tcp", PortRange{1, 2}}}
		}},
		{"rcon.password", "hidden, where there is none", func(s *GroupSpec) {
			s.RCON, s.AdditionalPorts = RCON{Port: "rcon", Password: content.Hidden}, []NamedPort{{"rcon", "tcp", PortRange{1, 2}}}
		}},
		{"onCrash", "an unknown policy", func(s *GroupSpec) { s.OnCrash = "" }},
		{"onNodeLoss", "an unknown policy", func(s *GroupSpec) { s.OnNodeLoss = "panic" }},
		{"updateStrategy", "an unknown strategy", func(s *GroupSpec) { s.UpdateStrategy = "BIG_BANG" }},
		{"memoryMb", "negative", func(s *GroupSpec) { s.Resources.MemoryMiB = -1 }},
		{"memoryMb", "absurd", func(s *GroupSpec) { s.Resources.MemoryMiB = 1 << 40 }},
		{"cpu", "negative", func(s *GroupSpec) { s.Resources.CPU = -1 }},
		{"diskReservationMb", "negative", func(s *GroupSpec) { s.Resources.DiskMiB = -1 }},
		{"cpuLimit", "negative", func(s *GroupSpec) { s.CPULimit = -1 }},
		{"portRangeStart", "0", func(s *GroupSpec) { s.Ports.Start = 0 }},
		{"portRangeEnd", "65536", func(s *GroupSpec) { s.Ports.End = 65536 }},
		{"portRangeStart", "after the end", func(s *GroupSpec) { s.Ports = PortRange{2, 1} }},
		{"additionalPorts", "too many", func(s *GroupSpec) { s.AdditionalPorts = make([]NamedPort, 257) }},
		{"additionalPorts[0]", "no name", func(s *GroupSpec) { s.AdditionalPorts = []NamedPort{{"", "tcp", PortRange{1, 2}}} }},
		{"additionalPorts[1]", "the same name in other letters", func(s *GroupSpec) {
			s.AdditionalPorts = []NamedPort{{"query", "tcp", PortRange{1, 2}}, {"QUERY", "udp", PortRange{1, 2}}}
		}},
		{"additionalPorts[0]", "an unknown protocol", func(s *GroupSpec) { s.AdditionalPorts = []NamedPort{{"q", "sctp", PortRange{1, 2}}} }},
		{"additionalPorts[0].start", "a bad range", func(s *GroupSpec) { s.AdditionalPorts = []NamedPort{{"q", "tcp", PortRange{2, 1}}} }},
		{"additionalPorts[1].start", "the fixed port of another", func(s *GroupSpec) {
			s.AdditionalPorts = []NamedPort{{"q", "tcp", PortRange{7, 7}}, {"r", "udp", PortRange{7, 7}}}
		}},
		{"additionalPorts[0].start", "the only main port", func(s *GroupSpec) {
			s.Ports, s.AdditionalPorts = PortRange{7, 7}, []NamedPort{{"q", "tcp", PortRange{7, 7}}}
		}},
		{"additionalPorts[0].end", "a bad port", func(s *GroupSpec) { s.AdditionalPorts = []NamedPort{{"q", "tcp", PortRange{2, 99999}}} }},
		{"scalingMode", "unknown", func(s *GroupSpec) { s.Scaling.Mode = "dynamic" }},
		{"minInstances", "negative", func(s *GroupSpec) { s.Scaling.Min = -1 }},
		{"minInstances", "above the maximum", func(s *GroupSpec) { s.Scaling.Min, s.Scaling.Max = 3, 2 }},
		{"maxInstances", "negative", func(s *GroupSpec) { s.Scaling.Max = -1 }},
		{"maxInstances", "absurd", func(s *GroupSpec) { s.Scaling.Max = 1 << 30 }},
		{"scaleUpThreshold", "0", func(s *GroupSpec) { s.Scaling.UpThreshold = 0 }},
		{"scaleUpThreshold", "above 1", func(s *GroupSpec) { s.Scaling.UpThreshold = 1.01 }},
		{"scaleUpThreshold", "no number", func(s *GroupSpec) { s.Scaling.UpThreshold = math.NaN() }},
		{"scaleDownAfterSeconds", "negative", func(s *GroupSpec) { s.Scaling.DownAfterSeconds = -1 }},
		{"scaleCooldownSeconds", "negative", func(s *GroupSpec) { s.Scaling.CooldownSeconds = -1 }},
		{"warmPoolMinPrepared", "negative", func(s *GroupSpec) { s.Scaling.WarmPoolMinimum = -1 }},
		{"nodes", "too many", func(s *GroupSpec) { s.Where.Nodes = many[NodeID](257, "n") }},
		{"nodes[1]", "no node id", func(s *GroupSpec) { s.Where.Nodes = []NodeID{"*", "a/b"} }},
		{"nodeAffinity[0]", "an empty label", func(s *GroupSpec) { s.Where.Affinity = []string{""} }},
		{"nodeAntiAffinity", "too many", func(s *GroupSpec) { s.Where.AntiAffinity = many(257, "zone") }},
		{"spreadConstraint", "a newline", func(s *GroupSpec) { s.Where.Spread = "a\nb" }},
		{"nodeAffinity[1]", "no expression", func(s *GroupSpec) { s.Where.Affinity = []string{"zone", "zone in ("} }},
		{"nodeAffinity[0]", "too long", func(s *GroupSpec) { s.Where.Affinity = []string{strings.Repeat("z", 32<<10+1)} }},
		{"nodePreferences[0].label", "no expression", func(s *GroupSpec) { s.Where.Prefer = []Preference{{"zone is", 1}} }},
		{"nodePreferences[0].weight", "too much", func(s *GroupSpec) { s.Where.Prefer = []Preference{{"zone", 101}} }},
		{"spreadConstraint", "no key", func(s *GroupSpec) { s.Where.Spread = "rack=a" }},
		{"spreadMaxSkew", "negative", func(s *GroupSpec) { s.Where.Spread, s.Where.MaxSkew = "zone", -1 }},
		{"spreadMaxSkew", "without a label", func(s *GroupSpec) { s.Where.MaxSkew = 1 }},
		{"maxPerNode", "negative", func(s *GroupSpec) { s.Where.MaxPerNode = -1 }},
		{"placementProfile", "unknown", func(s *GroupSpec) { s.Where.Profile = "best" }},
		{"placementWeights.luck", "an unknown part", func(s *GroupSpec) { s.Where.Weights = map[score.Part]float64{"luck": 1} }},
		{"placementWeights.cpu", "negative", func(s *GroupSpec) { s.Where.Weights = map[score.Part]float64{score.CPU: -1} }},
		{"placementWeights.cpu", "no number", func(s *GroupSpec) { s.Where.Weights = map[score.Part]float64{score.CPU: math.NaN()} }},
		{"labels", "no key", func(s *GroupSpec) { s.Labels = map[string]string{"a b": "c"} }},
		{"quota.memoryMb", "negative", func(s *GroupSpec) { s.Quota.MemoryMiB = -1 }},
		{"reserved", "above the quota", func(s *GroupSpec) { s.Quota.Instances, s.Reserved.Instances = 1, 2 }},
		{"instanceGroups[0]", "a newline", func(s *GroupSpec) { s.InstanceGroups = []string{"a\nb"} }},
		{"staticInstanceNames", "too many", func(s *GroupSpec) { s.Static.InstanceNames = many(257, "a") }},
		{"parent", "no group name", func(s *GroupSpec) { s.Parent = "A" }},
		{"fallbackGroup", "no group name", func(s *GroupSpec) { s.Players.FallbackGroup = "A" }},
		{"bedrockProxyGroup", "no group name", func(s *GroupSpec) { s.Players.BedrockProxyGroup = "A" }},
		{"dependsOn[0]", "no group name", func(s *GroupSpec) { s.DependsOn = []GroupName{"A"} }},
		{"dependsOn", "too many", func(s *GroupSpec) { s.DependsOn = many[GroupName](257, "a") }},
		{"shutdownGraceSeconds", "negative", func(s *GroupSpec) { s.Stop.GraceSeconds = -1 }},
		{"shutdownGraceSeconds", "more than a day", func(s *GroupSpec) { s.Stop.GraceSeconds = 24*3600 + 1 }},
		{"stopSignal", "unknown", func(s *GroupSpec) { s.Stop.Signal = "SIGTERM" }},
		{"stopCommand", "two lines", func(s *GroupSpec) { s.Stop.Command = "save\nstop" }},
		{"templates.allOf", "too many", func(s *GroupSpec) { s.Templates.AllOf = many(257, chosen("a/b")) }},
		{"templates.allOf[0]", "outside", func(s *GroupSpec) { s.Templates.AllOf = []content.TemplateLayer{chosen("../b")} }},
		{"templates.allOf[0]", "three parts", func(s *GroupSpec) { s.Templates.AllOf = []content.TemplateLayer{chosen("a/b/c")} }},
		{"templates.oneOf[1]", "hidden", func(s *GroupSpec) { s.Templates.OneOf = []content.TemplateLayer{chosen("a/b"), chosen(".git")} }},
		{"templates.allInGroups[0]", "none", func(s *GroupSpec) { s.Templates.AllInGroups = []string{""} }},
		{"templates.oneInGroups[0]", "a slash", func(s *GroupSpec) { s.Templates.OneInGroups = []string{"a/b"} }},
		{"env", "no variable name", func(s *GroupSpec) { s.Env = map[string]string{"1A": ""} }},
		{"env", "foreign code", func(s *GroupSpec) { s.Env = map[string]string{"LD_PRELOAD": "/x.so"} }},
		{"env", "a NUL", func(s *GroupSpec) { s.Env = map[string]string{"A": "\x00"} }},
		{"env", "too long", func(s *GroupSpec) { s.Env = map[string]string{"A": strings.Repeat("x", 1<<15+1)} }},
		{"variableValues", "no placeholder name", func(s *GroupSpec) { s.Variables = map[string]string{"A%": ""} }},
		{"variableValues", "a NUL", func(s *GroupSpec) { s.Variables = map[string]string{"A": "\x00"} }},
		{"fileModifications", "too many", func(s *GroupSpec) { s.FileModifications = many(257, "a") }},
		{"fileModifications[0]", "outside", func(s *GroupSpec) { s.FileModifications = []string{"a/../../b"} }},
		{"protectedPaths[0]", "absolute", func(s *GroupSpec) { s.Static.ProtectedPaths = []string{"/etc"} }},
		{"protectedPaths", "too many", func(s *GroupSpec) { s.Static.ProtectedPaths = many(257, "a") }},
		{"startupTimeoutSeconds", "negative", func(s *GroupSpec) { s.StartupTimeoutSeconds = -1 }},
		{"startupTimeoutSeconds", "more than a duration holds", func(s *GroupSpec) { s.StartupTimeoutSeconds = math.MaxInt64 / 2 }},
		{"maxLifetimeSeconds", "absurd", func(s *GroupSpec) { s.MaxLifetimeSeconds = 1 << 40 }},
		{"scaleCooldownSeconds", "absurd", func(s *GroupSpec) { s.Scaling.CooldownSeconds = 1 << 40 }},
		{"warmPoolMinPrepared", "absurd", func(s *GroupSpec) { s.Scaling.WarmPoolMinimum = 1 << 30 }},
		{"priority", "so low that differences overflow", func(s *GroupSpec) { s.Priority = math.MinInt64 }},
		{"priority", "absurd", func(s *GroupSpec) { s.Priority = math.MaxInt64 }},
		{"startupWeight", "absurd", func(s *GroupSpec) { s.StartupWeight = math.MaxInt64 }},
		{"maxLifetimeSeconds", "negative", func(s *GroupSpec) { s.MaxLifetimeSeconds = -1 }},
		{"env", "too much together", func(s *GroupSpec) {
			s.Env = map[string]string{}
			for n := range 9 {
				s.Env[fmt.Sprint("A", n)] = strings.Repeat("x", 32<<10)
			}
		}},
		{"maxPlayers", "negative", func(s *GroupSpec) { s.Players.Max = -1 }},
	}
	for _, c := range cases {
		t.Run(c.field+"/"+c.rule, func(t *testing.T) {
			s := DefaultSpec()
			c.spoil(&s)
			named := false
			for _, p := range s.Validate() {
				if !errs.Is(p, errs.Invalid) || errs.MessageOf(p) == "" {
					t.Errorf("%v is not an invalid field with a sentence", p)
				}
				named = named || errs.FieldOf(p) == c.field
			}
			if !named {
				t.Errorf("%v do not name %s", s.Validate(), c.field)
			}
		})
	}
}

func TestTextLimitsCountCharacters(t *testing.T) {
	s := DefaultSpec()
	s.Software.Platform = strings.Repeat("ä", validate.MaxWord)
	s.Maintenance.Message = "§cBack\tsoon\n§l" + strings.Repeat("ö", validate.MaxShown-15)
	s.Motd.Lines = []string{"§6Lobby\n§7of all", "of a form\r\n", strings.Repeat("界", validate.MaxShown)}
	if problems := s.Validate(); len(problems) > 0 {
		t.Error(problems)
	}
}

func TestValidateListsAllProblemsInOrder(t *testing.T) {
	s := DefaultSpec()
	s.Runtime, s.Players.Max = "vm", -1
	s.Env = map[string]string{"1": "", "2": "", "3": "", "4": ""}
	first := s.Validate()
	if len(first) != 6 {
		t.Fatalf("%d problems: %v", len(first), first)
	}
	for range 20 {
		for i, p := range s.Validate() {
			if p.Error() != first[i].Error() {
				t.Fatalf("%d: %v, then %v", i, first[i], p)
			}
		}
	}
}

// FuzzCleanPath checks that a clean path never leaves the directory it is joined to.
func FuzzCleanPath(f *testing.F) {
	for _, s := range []string{"a", "a/b", "a/../..", "..", "./a", "/a", `a\b`, "a//b", "...", "..a/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if !validate.CleanPath(p) {
			return
		}
		depth := 0
		for part := range strings.SplitSeq(p, "/") {
			switch part {
			case "..":
				depth--
			case "", ".":
			default:
				depth++
			}
			if depth < 0 {
				t.Fatalf("%q leaves its directory", p)
			}
		}
		if strings.HasPrefix(p, "/") || strings.ContainsAny(p, "\\\x00") {
			t.Fatalf("%q is clean", p)
		}
	})
}

// chosen returns a layer of one template, named <group>/<name>.
func chosen(ref string) content.TemplateLayer {
	group, name, _ := strings.Cut(ref, "/")
	return content.TemplateLayer{TemplateRef: content.TemplateRef{Group: group, Name: name}}
}
