package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/orreryhq/orrery/libs/errs"
)

// Limits of a spec's free-form parts: everything is bounded.
const (
	maxEntries     = 256
	maxValueBytes  = 32 << 10
	maxCommand     = 16 << 10
	maxStopCommand = 1000
	maxInstances   = 100_000
	maxGraceSecond = 24 * 3600
	maxSeconds     = 10 * 365 * 24 * 3600 // ten years: no duration made of it overflows
	maxPriority    = 1_000_000            // either way: differences stay far from overflow
	// maxSpecBytes and maxStartBytes keep a plan, an intent and a placement each well
	// below what one transaction takes.
	maxSpecBytes  = 256 << 10
	maxStartBytes = 64 << 10
)

var (
	envNamePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)
	// instanceNamePattern is of names that a static group gives its instances.
	instanceNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	signalNames         = []string{"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL"}
)

// blockedEnv are variables that would load foreign code into a workload's process.
var blockedEnv = []string{
	"LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES",
	"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH",
}

// Validate lists everything wrong with a spec, each an Invalid error that names
// the native field. Whether templates and groups it refers to exist is for the caller.
func (s GroupSpec) Validate() []error {
	if problems := s.faults(); len(problems) > 0 {
		return problems
	}
	return s.oversize()
}

// faults is what is wrong with single parts of a spec.
func (s GroupSpec) faults() []error {
	var p problems
	p.addAll(s.validateRun())
	p.addAll(s.Resources.validate())
	p.check(s.CPULimit >= 0 && s.CPULimit <= maxCPU, "cpuLimit", "must be between 0 and %d, is %d", maxCPU, s.CPULimit)
	p.addAll(s.Limits.validate())
	p.addAll(s.Confine.validate(s.Runtime))
	p.addAll(s.Container.validate(s.Runtime, s.Env[customImage]))
	p.addAll(s.RCON.validate(s.AdditionalPorts))
	p.addAll(s.Readiness.validate("readiness", s.AdditionalPorts))
	p.addAll(s.Liveness.validate(s.AdditionalPorts))
	p.addAll(s.Ports.validate("portRangeStart", "portRangeEnd"))
	p.addAll(s.validateAdditionalPorts())
	p.addAll(s.Where.validate())
	p.addAll(validateLabels("labels", s.Labels))
	budgets := slices.Concat(s.Quota.validate("quota"), s.Reserved.validate("reserved"))
	p.addAll(budgets)
	p.check(len(budgets) > 0 || s.Reserved.Within(s.Quota), "reserved", "must not be more than the quota")
	p.addAll(s.Scaling.validate())
	p.addAll(s.validateNames())
	p.addAll(s.validateShown())
	p.addAll(s.validateLists())
	p.addAll(s.Stop.validate())
	p.addAll(s.Templates.validate())
	p.addAll(s.validateMaps())
	p.addAll(s.validateComposition())
	p.seconds("startupTimeoutSeconds", s.StartupTimeoutSeconds)
	p.seconds("maxLifetimeSeconds", s.MaxLifetimeSeconds)
	p.check(s.Priority >= -maxPriority && s.Priority <= maxPriority, "priority", "must be between %d and %d, is %d", -maxPriority, maxPriority, s.Priority)
	p.check(s.StartupWeight >= -maxPriority && s.StartupWeight <= maxPriority, "startupWeight", "must be between %d and %d, is %d", -maxPriority, maxPriority, s.StartupWeight)
	return p.list
}

// oversize is what is wrong with the sum of a spec's parts.
func (s GroupSpec) oversize() []error {
	size, err := s.size()
	if err != nil {
		return []error{errs.As(errs.Invalid, "fleet.Validate", err)}
	}
	var p problems
	p.check(size <= maxSpecBytes, "env", "and all else declared must be at most %d bytes together, is %d: put large values into a template's file", maxSpecBytes, size)
	return p.list
}

// size is how many bytes a spec has as it is stored.
func (s GroupSpec) size() (int, error) {
	b, err := json.Marshal(s)
	return len(b), err
}

// ValidateStartValues lists what is wrong with placeholder values for single
// instances, as Validate does; the field is variables.
func ValidateStartValues(values map[string]string) []error {
	var p problems
	p.placeholders("variables", values)
	total := 0
	for k, v := range values {
		total += len(k) + len(v)
	}
	p.check(total <= maxStartBytes, "variables", "must be at most %d bytes together, is %d", maxStartBytes, total)
	return p.list
}

type problems struct{ list []error }

func (p *problems) check(ok bool, field, format string, args ...any) {
	if !ok {
		p.list = append(p.list, errs.Field(field, format, args...))
	}
}

// seconds bounds a time; 0 has a meaning of its own.
func (p *problems) seconds(field string, v int) {
	p.check(v >= 0 && v <= maxSeconds, field, "must be between 0 and %d, is %d", maxSeconds, v)
}

func (p *problems) addAll(es []error) { p.list = append(p.list, es...) }

func oneOf[T ~string](v T, allowed ...T) bool { return slices.Contains(allowed, v) }

func (s GroupSpec) validateRun() []error {
	var p problems
	p.check(slices.Contains(RuntimeNames[:], s.Runtime), "runtime", "must be one of process, tmux, screen, docker; %q is not known", clip(string(s.Runtime)))
	p.check(len(s.Command) <= maxCommand, "command", "must be at most %d bytes", maxCommand)
	p.check(!strings.ContainsRune(s.Command, 0), "command", "must not contain a NUL character")
	p.addAll(s.Software.validate())
	p.check(len(s.HostAddress) <= maxValueBytes && !HasControl(s.HostAddress), "hostAddress", "must be at most %d bytes without control characters", maxValueBytes)
	p.check(oneOf(s.OnCrash, CrashReplace, CrashRestart, CrashStop), "onCrash", "must be replace, restart or stop; %q is not", clip(string(s.OnCrash)))
	p.check(oneOf(s.OnNodeReturn, "", KeepOriginal, KeepReplacement), "onNodeReturn", "must be keepOriginal or keepReplacement; %q is not", clip(string(s.OnNodeReturn)))
	p.check(oneOf(s.OnNodeLoss, "", NodeLossReplace, NodeLossWait, NodeLossStop), "onNodeLoss", "must be replace, wait or stop; %q is not", clip(string(s.OnNodeLoss)))
	p.check(oneOf(s.UpdateStrategy, "", "ROLLING", "CANARY"), "updateStrategy", "must be ROLLING or CANARY; %q is not", clip(s.UpdateStrategy))
	return p.list
}

func (s Software) validate() []error {
	var p problems
	p.check(s.JarFile == "" || CleanPath(s.JarFile), "jarFile", "%q leaves the instance's directory: give a relative path without ..", clip(s.JarFile))
	p.check(len(s.JVMArgs) <= maxEntries, "jvmArgs", "must have at most %d entries", maxEntries)
	for i, a := range s.JVMArgs {
		p.check(a != "" && len(a) <= maxCommand && !HasControl(a), fmt.Sprintf("jvmArgs[%d]", i), "must be 1 to %d bytes without control characters", maxCommand)
	}
	return p.list
}

func (s GroupSpec) validateAdditionalPorts() []error {
	var p problems
	p.check(len(s.AdditionalPorts) <= maxEntries, "additionalPorts", "must have at most %d entries", maxEntries)
	seen, fixed := map[string]bool{}, map[int]string{}
	if s.Ports.Len() == 1 {
		fixed[s.Ports.Start] = "the instance itself"
	}
	for i, np := range s.AdditionalPorts {
		field := fmt.Sprintf("additionalPorts[%d]", i)
		p.check(envNamePattern.MatchString(np.Name), field, "name must be letters, digits, _ . and -, starting with a letter")
		p.check(!seen[strings.ToUpper(np.Name)], field, "name %q is used twice", clip(np.Name))
		seen[strings.ToUpper(np.Name)] = true
		p.check(oneOf(np.Protocol, "tcp", "udp"), field, "protocol must be tcp or udp; %q is not", clip(np.Protocol))
		p.addAll(np.Range.validate(field+".start", field+".end"))
		if np.Range.Len() == 1 {
			of, taken := fixed[np.Range.Start]
			p.check(!taken, field+".start", "port %d is already that of %s: no node could ever give both", np.Range.Start, of)
			fixed[np.Range.Start] = clip(np.Name)
		}
	}
	return p.list
}

func (s Scaling) validate() []error {
	var p problems
	p.check(oneOf(s.Mode, ScalingDynamic, ScalingStatic, ScalingManual), "scalingMode", "must be DYNAMIC, STATIC or MANUAL; %q is not", clip(string(s.Mode)))
	p.check(s.Min >= 0 && s.Min <= maxInstances, "minInstances", "must be between 0 and %d, is %d", maxInstances, s.Min)
	p.check(s.Max >= 0 && s.Max <= maxInstances, "maxInstances", "must be between 0 (unlimited) and %d, is %d", maxInstances, s.Max)
	p.check(s.Max == 0 || s.Min <= s.Max, "minInstances", "must not be greater than maxInstances (%d > %d)", s.Min, s.Max)
	p.check(s.UpThreshold > 0 && s.UpThreshold <= 1, "scaleUpThreshold", "must be greater than 0 and at most 1, is %v", s.UpThreshold)
	p.seconds("scaleDownAfterSeconds", s.DownAfterSeconds)
	p.seconds("scaleCooldownSeconds", s.CooldownSeconds)
	p.check(s.WarmPoolMinimum >= 0 && s.WarmPoolMinimum <= maxInstances, "warmPoolMinPrepared", "must be between 0 and %d, is %d", maxInstances, s.WarmPoolMinimum)
	return p.list
}

func (s GroupSpec) validateNames() []error {
	var p problems
	group := func(field string, g GroupName) {
		p.check(g == "" || g.Validate() == nil, field, "%q is not a group name", clip(string(g)))
	}
	group("parent", s.Parent)
	group("fallbackGroup", s.Players.FallbackGroup)
	group("bedrockProxyGroup", s.Players.BedrockProxyGroup)
	p.check(len(s.DependsOn) <= maxEntries, "dependsOn", "must have at most %d entries", maxEntries)
	for i, g := range s.DependsOn {
		p.check(g.Validate() == nil, fmt.Sprintf("dependsOn[%d]", i), "%q is not a group name", clip(string(g)))
	}
	return p.list
}

// validateLists bounds the free-form lists.
func (s GroupSpec) validateLists() []error {
	var p problems
	list := func(field string, values []string) {
		p.check(len(values) <= maxEntries, field, "must have at most %d entries", maxEntries)
		for i, v := range values {
			p.check(v != "" && len(v) <= maxValueBytes && !HasControl(v), fmt.Sprintf("%s[%d]", field, i), "must be 1 to %d bytes without control characters", maxValueBytes)
		}
	}
	list("instanceGroups", s.InstanceGroups)
	p.addAll(s.Static.validate())
	return p.list
}

func (s Static) validate() []error {
	var p problems
	p.check(len(s.InstanceNames) <= maxEntries, "staticInstanceNames", "must have at most %d entries", maxEntries)
	seen := map[string]bool{}
	for i, name := range s.InstanceNames[:min(len(s.InstanceNames), maxEntries)] {
		field := fmt.Sprintf("staticInstanceNames[%d]", i)
		p.check(instanceNamePattern.MatchString(name), field, "%q is not an instance name: 1 to 64 letters, digits, _ . and -, starting with a letter or digit", clip(name))
		p.check(!seen[strings.ToLower(name)], field, "names %q a second time", clip(name))
		seen[strings.ToLower(name)] = true
	}
	return p.list
}

func (s Stop) validate() []error {
	var p problems
	p.check(s.GraceSeconds >= 0 && s.GraceSeconds <= maxGraceSecond, "shutdownGraceSeconds", "must be between 0 and %d, is %d", maxGraceSecond, s.GraceSeconds)
	p.check(slices.Contains(signalNames, s.Signal), "stopSignal", "must be one of %s; %q is not", strings.Join(signalNames, ", "), clip(s.Signal))
	p.check(len(s.Command) <= maxStopCommand && !HasControl(s.Command), "stopCommand", "must be at most %d bytes without control characters", maxStopCommand)
	return p.list
}

func (t TemplateSelection) validate() []error {
	var p problems
	layers := func(field string, ls []TemplateLayer) {
		p.check(len(ls) <= maxEntries, field, "must have at most %d entries", maxEntries)
		for i, l := range ls {
			p.check(l.Valid(), fmt.Sprintf("%s[%d]", field, i), "%q is not a template name (<group>/<name>, letters, digits, _ . -)", clip(l.String()))
			p.word(fmt.Sprintf("%s[%d].storage", field, i), l.Storage, MaxWord)
			p.check(!l.Internal(), fmt.Sprintf("%s[%d]", field, i), "%q is Orrery's own, and not a template for instances", clip(l.String()))
		}
	}
	groups := func(field string, gs []string) {
		p.check(len(gs) <= maxEntries, field, "must have at most %d entries", maxEntries)
		for i, g := range gs {
			p.check(validSegment(g) && !TemplateRef{Group: g}.Internal(), fmt.Sprintf("%s[%d]", field, i), "%q is not a template group, or Orrery's own", clip(g))
		}
	}
	layers("templates.allOf", t.AllOf)
	groups("templates.allInGroups", t.AllInGroups)
	layers("templates.oneOf", t.OneOf)
	groups("templates.oneInGroups", t.OneInGroups)
	return p.list
}

func (s GroupSpec) validateMaps() []error {
	var p problems
	p.check(len(s.Env) <= maxEntries, "env", "must have at most %d entries", maxEntries)
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		v := s.Env[k]
		p.check(envNamePattern.MatchString(k), "env", "%q is not a variable name", clip(k))
		p.check(!slices.Contains(blockedEnv, k), "env", "%s is not allowed: it would load foreign code into the server", k)
		p.check(len(v) <= maxValueBytes && !strings.ContainsRune(v, 0), "env", "%s must be at most %d bytes without NUL", clip(k), maxValueBytes)
	}
	p.placeholders("variableValues", s.Variables)
	p.check(len(s.FileModifications) <= maxEntries, "fileModifications", "must have at most %d entries", maxEntries)
	for i, f := range s.FileModifications {
		p.check(CleanPath(f), fmt.Sprintf("fileModifications[%d]", i), "%q leaves the instance's directory: give a relative path without ..", clip(f))
	}
	p.check(len(s.Static.ProtectedPaths) <= maxEntries, "protectedPaths", "must have at most %d entries", maxEntries)
	for i, f := range s.Static.ProtectedPaths {
		p.check(CleanPath(f), fmt.Sprintf("protectedPaths[%d]", i), "%q leaves the instance's directory: give a relative path without ..", clip(f))
	}
	return p.list
}

func (p *problems) placeholders(field string, values map[string]string) {
	p.check(len(values) <= maxEntries, field, "must have at most %d entries", maxEntries)
	for _, k := range slices.Sorted(maps.Keys(values)) {
		v := values[k]
		p.check(envNamePattern.MatchString(k), field, "%q is not a placeholder name", clip(k))
		p.check(len(v) <= maxValueBytes && !strings.ContainsRune(v, 0), field, "%s must be at most %d bytes without NUL", clip(k), maxValueBytes)
	}
}

// CleanPath reports whether p is a relative slash path that stays where it starts.
func CleanPath(p string) bool {
	if p == "" || len(p) > 1024 || strings.ContainsAny(p, "\x00\\") || path.IsAbs(p) {
		return false
	}
	return !slices.Contains(strings.Split(p, "/"), "..")
}

// HasControl reports whether s has a control character other than tab.
func HasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r != '\t' && unicode.IsControl(r) })
}
