package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/scalepolicy"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// blockedEnv are variables that would load foreign code into an instance's process.
var blockedEnv = []string{
	"LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES",
	"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH",
}

// Validate returns everything that is wrong with a spec, each as an Invalid error that names the
// field of the native API. It does not check whether referenced templates and groups exist.
func (s GroupSpec) Validate() []error {
	if problems := s.faults(); len(problems) > 0 {
		return problems
	}
	return s.oversize()
}

// faults returns what is wrong with single parts of a spec.
func (s GroupSpec) faults() []error {
	var p validate.Problems
	p.AddAll(s.validateRun())
	p.AddAll(s.Resources.validate())
	p.Check(s.CPULimit >= 0 && s.CPULimit <= MaxCPU, "cpuLimit", "must be between 0 and %d, is %d", MaxCPU, s.CPULimit)
	p.AddAll(s.Limits.Validate())
	p.AddAll(s.Confine.Validate(s.Runtime == RuntimeDocker))
	p.AddAll(s.Container.Validate(s.Runtime == RuntimeDocker, customImage, s.Env[customImage]))
	p.AddAll(s.RCON.validate(s.AdditionalPorts))
	p.AddAll(s.Readiness.validate("readiness", s.AdditionalPorts))
	p.AddAll(s.Liveness.validate(s.AdditionalPorts))
	p.AddAll(s.Ports.validate("portRangeStart", "portRangeEnd"))
	p.AddAll(s.validateAdditionalPorts())
	p.AddAll(s.Where.validate())
	p.AddAll(ValidateLabels("labels", s.Labels))
	budgets := slices.Concat(s.Quota.Validate("quota"), s.Reserved.Validate("reserved"))
	p.AddAll(budgets)
	p.Check(len(budgets) > 0 || s.Reserved.Within(s.Quota), "reserved", "must not exceed the quota")
	p.AddAll(s.Scaling.validate())
	p.AddAll(s.validateBuffer())
	p.AddAll(s.validatePolicies())
	p.Check(s.Scaling.WarmPoolMinimum <= 0 || s.Scaling.Mode != ScalingManual && !s.Static.Enabled, "warmPoolMinPrepared", "needs a group that is neither static nor MANUAL: change it, or set warmPoolMinPrepared to 0")
	p.AddAll(s.Sleep.Validate())
	p.AddAll(s.validateNames())
	p.AddAll(s.validateShown())
	p.AddAll(s.validateLists())
	p.AddAll(s.Stop.validate())
	p.AddAll(s.Templates.Validate())
	p.AddAll(s.validateMaps())
	p.AddAll(s.validateComposition())
	p.Seconds("startupTimeoutSeconds", s.StartupTimeoutSeconds)
	p.Seconds("maxLifetimeSeconds", s.MaxLifetimeSeconds)
	p.Check(s.Priority >= -validate.MaxPriority && s.Priority <= validate.MaxPriority, "priority", "must be between %d and %d, is %d", -validate.MaxPriority, validate.MaxPriority, s.Priority)
	p.Check(s.StartupWeight >= -validate.MaxPriority && s.StartupWeight <= validate.MaxPriority, "startupWeight", "must be between %d and %d, is %d", -validate.MaxPriority, validate.MaxPriority, s.StartupWeight)
	return p.List
}

// oversize returns an error if the spec as a whole is too large.
func (s GroupSpec) oversize() []error {
	size, err := s.size()
	if err != nil {
		return []error{errs.WrapAs(errs.Invalid, "fleet.Validate", err)}
	}
	var p validate.Problems
	p.Check(size <= validate.MaxSpecBytes, "env", "and all other fields of the group must have at most %d bytes in total, but have %d: move large values into a file of a template", validate.MaxSpecBytes, size)
	return p.List
}

// size returns the stored size of a spec in bytes.
func (s GroupSpec) size() (int, error) {
	b, err := json.Marshal(s)
	return len(b), err
}

// ValidateStartValues returns what is wrong with placeholder values given at start, as Invalid
// errors for the field variables.
func ValidateStartValues(values map[string]string) []error {
	var p validate.Problems
	p.Placeholders("variables", values)
	total := 0
	for k, v := range values {
		total += len(k) + len(v)
	}
	p.Check(total <= validate.MaxStartBytes, "variables", "must have at most %d bytes in total, but have %d", validate.MaxStartBytes, total)
	return p.List
}

func (s GroupSpec) validateRun() []error {
	var p validate.Problems
	p.Check(slices.Contains(RuntimeNames[:], s.Runtime), "runtime", "must be one of process, tmux, screen, docker, not %q", validate.Clip(string(s.Runtime)))
	p.Check(len(s.Command) <= validate.MaxCommand, "command", "must be at most %d bytes", validate.MaxCommand)
	p.Check(!strings.ContainsRune(s.Command, 0), "command", "must not contain a NUL character")
	p.AddAll(s.Software.validate())
	p.Check(len(s.HostAddress) <= validate.MaxValueBytes && !validate.HasControl(s.HostAddress), "hostAddress", "must be at most %d bytes without control characters", validate.MaxValueBytes)
	p.Check(validate.OneOf(s.OnCrash, CrashReplace, CrashRestart, CrashStop), "onCrash", "must be replace, restart or stop, not %q", validate.Clip(string(s.OnCrash)))
	p.Check(validate.OneOf(s.OnNodeReturn, "", KeepOriginal, KeepReplacement), "onNodeReturn", "must be keepOriginal or keepReplacement, not %q", validate.Clip(string(s.OnNodeReturn)))
	p.Check(validate.OneOf(s.OnNodeLoss, "", NodeLossReplace, NodeLossWait, NodeLossStop), "onNodeLoss", "must be replace, wait or stop, not %q", validate.Clip(string(s.OnNodeLoss)))
	p.Check(validate.OneOf(s.UpdateStrategy, "", "ROLLING", "CANARY", "BLUE_GREEN"), "updateStrategy", "must be ROLLING, CANARY or BLUE_GREEN, not %q", validate.Clip(s.UpdateStrategy))
	return p.List
}

func (s Software) validate() []error {
	var p validate.Problems
	p.Check(s.JarFile == "" || validate.CleanPath(s.JarFile), "jarFile", "%q leaves the instance's directory: use a relative path without ..", validate.Clip(s.JarFile))
	p.Check(len(s.JVMArgs) <= validate.MaxEntries, "jvmArgs", "must have at most %d entries", validate.MaxEntries)
	for i, a := range s.JVMArgs {
		p.Check(a != "" && len(a) <= validate.MaxCommand && !validate.HasControl(a), fmt.Sprintf("jvmArgs[%d]", i), "must be 1 to %d bytes without control characters", validate.MaxCommand)
	}
	return p.List
}

func (s GroupSpec) validateAdditionalPorts() []error {
	var p validate.Problems
	p.Check(len(s.AdditionalPorts) <= validate.MaxEntries, "additionalPorts", "must have at most %d entries", validate.MaxEntries)
	seen, fixed := map[string]bool{}, map[int]string{}
	if s.Ports.Len() == 1 {
		fixed[s.Ports.Start] = "the instance itself"
	}
	for i, np := range s.AdditionalPorts {
		field := fmt.Sprintf("additionalPorts[%d]", i)
		p.Check(validate.EnvNamePattern.MatchString(np.Name), field, "name must consist of letters, digits, _ . and -, starting with a letter or _")
		p.Check(!seen[strings.ToUpper(np.Name)], field, "name %q is used twice", validate.Clip(np.Name))
		seen[strings.ToUpper(np.Name)] = true
		p.Check(validate.OneOf(np.Protocol, "tcp", "udp"), field, "protocol must be tcp or udp, not %q", validate.Clip(np.Protocol))
		p.AddAll(np.Range.validate(field+".start", field+".end"))
		if np.Range.Len() == 1 {
			of, taken := fixed[np.Range.Start]
			p.Check(!taken, field+".start", "port %d is already used by %s: choose another", np.Range.Start, of)
			fixed[np.Range.Start] = validate.Clip(np.Name)
		}
	}
	return p.List
}

func (s Scaling) validate() []error {
	var p validate.Problems
	p.Check(validate.OneOf(s.Mode, ScalingDynamic, ScalingStatic, ScalingManual), "scalingMode", "must be DYNAMIC, STATIC or MANUAL, not %q", validate.Clip(string(s.Mode)))
	p.Check(s.Min >= 0 && s.Min <= validate.MaxInstances, "minInstances", "must be between 0 and %d, is %d", validate.MaxInstances, s.Min)
	p.Check(s.Max >= 0 && s.Max <= validate.MaxInstances, "maxInstances", "must be between 0 (unlimited) and %d, is %d", validate.MaxInstances, s.Max)
	p.Check(s.Max == 0 || s.Min <= s.Max, "minInstances", "must not be greater than maxInstances (%d > %d)", s.Min, s.Max)
	p.Check(s.UpThreshold > 0 && s.UpThreshold <= 1, "scaleUpThreshold", "must be greater than 0 and at most 1, is %v", s.UpThreshold)
	p.Seconds("scaleDownAfterSeconds", s.DownAfterSeconds)
	p.Seconds("scaleCooldownSeconds", s.CooldownSeconds)
	p.Check(s.BufferSlots >= 0 && s.BufferSlots <= validate.MaxBufferSlots, "scaleBufferSlots", "must be between 0 and %d, is %d", validate.MaxBufferSlots, s.BufferSlots)
	p.Check(s.BufferPercent >= 0 && s.BufferPercent <= validate.MaxBufferPercent, "scaleBufferPercent", "must be between 0 and %d, is %d", validate.MaxBufferPercent, s.BufferPercent)
	p.Check(s.WarmPoolMinimum >= 0 && s.WarmPoolMinimum <= validate.MaxInstances, "warmPoolMinPrepared", "must be between 0 and %d, is %d", validate.MaxInstances, s.WarmPoolMinimum)
	return p.List
}

// validateBuffer refuses a buffer of free slots in a group that does not scale by its load.
func (s GroupSpec) validateBuffer() []error {
	var p validate.Problems
	field := "scaleBufferSlots"
	if s.Scaling.BufferSlots == 0 {
		field = "scaleBufferPercent"
	}
	if s.Scaling.BufferSlots == 0 && s.Scaling.BufferPercent == 0 {
		return nil
	}
	p.Check(s.Scaling.Mode == ScalingDynamic, field, "needs the scalingMode DYNAMIC, which is %s: change it, or set the buffer to 0", validate.Clip(string(s.Scaling.Mode)))
	p.Check(!s.Static.Enabled, field, "needs a group that is not static: set static to false, or the buffer to 0")
	p.Check(s.Scaling.Max > 0, field, "needs a maximum: set maxInstances, or the buffer to 0")
	p.Check(s.Players.Max > 0, field, "needs the number of slots of an instance: set maxPlayers, or the buffer to 0")
	return p.List
}

// validatePolicies refuses policies in a group that does not scale by its load.
func (s GroupSpec) validatePolicies() []error {
	var p validate.Problems
	p.AddAll(scalepolicy.Validate(s.Scaling.Policies, s.Scaling.Combine))
	if len(s.Scaling.Policies) == 0 {
		return p.List
	}
	const field = "scalingPolicies"
	p.Check(s.Scaling.Mode == ScalingDynamic, field, "need the scalingMode DYNAMIC, which is %s: change it, or remove the policies", validate.Clip(string(s.Scaling.Mode)))
	p.Check(!s.Static.Enabled, field, "need a group that is not static: set static to false, or remove the policies")
	p.Check(s.Scaling.Max > 0, field, "need a maximum: set maxInstances, or remove the policies")
	return p.List
}

func (s GroupSpec) validateNames() []error {
	var p validate.Problems
	group := func(field string, g GroupName) {
		p.Check(g == "" || g.Validate() == nil, field, "%q is not a group name", validate.Clip(string(g)))
	}
	group("parent", s.Parent)
	group("fallbackGroup", s.Players.FallbackGroup)
	group("bedrockProxyGroup", s.Players.BedrockProxyGroup)
	p.Check(len(s.DependsOn) <= validate.MaxEntries, "dependsOn", "must have at most %d entries", validate.MaxEntries)
	for i, g := range s.DependsOn {
		p.Check(g.Validate() == nil, fmt.Sprintf("dependsOn[%d]", i), "%q is not a group name", validate.Clip(string(g)))
	}
	return p.List
}

// validateLists bounds the free-form lists.
func (s GroupSpec) validateLists() []error {
	var p validate.Problems
	list := func(field string, values []string) {
		p.Check(len(values) <= validate.MaxEntries, field, "must have at most %d entries", validate.MaxEntries)
		for i, v := range values {
			p.Check(v != "" && len(v) <= validate.MaxValueBytes && !validate.HasControl(v), fmt.Sprintf("%s[%d]", field, i), "must be 1 to %d bytes without control characters", validate.MaxValueBytes)
		}
	}
	list("instanceGroups", s.InstanceGroups)
	p.AddAll(s.Static.validate())
	return p.List
}

func (s Static) validate() []error {
	var p validate.Problems
	p.Check(len(s.InstanceNames) <= validate.MaxEntries, "staticInstanceNames", "must have at most %d entries", validate.MaxEntries)
	seen := map[string]bool{}
	for i, name := range s.InstanceNames[:min(len(s.InstanceNames), validate.MaxEntries)] {
		field := fmt.Sprintf("staticInstanceNames[%d]", i)
		p.Check(validate.InstanceNamePattern.MatchString(name), field, "%q is not an instance name: use 1 to 64 letters, digits, _ . and -, starting with a letter or digit", validate.Clip(name))
		p.Check(!seen[strings.ToLower(name)], field, "contains %q twice", validate.Clip(name))
		seen[strings.ToLower(name)] = true
	}
	return p.List
}

func (s Stop) validate() []error {
	var p validate.Problems
	p.Check(s.GraceSeconds >= 0 && s.GraceSeconds <= validate.MaxGraceSecond, "shutdownGraceSeconds", "must be between 0 and %d, is %d", validate.MaxGraceSecond, s.GraceSeconds)
	p.Check(slices.Contains(validate.SignalNames, s.Signal), "stopSignal", "must be one of %s, not %q", strings.Join(validate.SignalNames, ", "), validate.Clip(s.Signal))
	p.Check(len(s.Command) <= validate.MaxStopCommand && !validate.HasControl(s.Command), "stopCommand", "must be at most %d bytes without control characters", validate.MaxStopCommand)
	return p.List
}

func (s GroupSpec) validateMaps() []error {
	var p validate.Problems
	p.Check(len(s.Env) <= validate.MaxEntries, "env", "must have at most %d entries", validate.MaxEntries)
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		v := s.Env[k]
		p.Check(validate.EnvNamePattern.MatchString(k), "env", "%q is not a variable name", validate.Clip(k))
		p.Check(!slices.Contains(blockedEnv, k), "env", "%s is not allowed: it would load foreign code into the server", k)
		p.Check(len(v) <= validate.MaxValueBytes && !strings.ContainsRune(v, 0), "env", "%s must be at most %d bytes without NUL", validate.Clip(k), validate.MaxValueBytes)
	}
	p.Placeholders("variableValues", s.Variables)
	p.Paths("fileModifications", s.FileModifications)
	p.Paths("protectedPaths", s.Static.ProtectedPaths)
	return p.List
}
