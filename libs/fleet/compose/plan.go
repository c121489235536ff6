// Package compose makes the plan of an instance from its group, the group's parents, its
// templates and the catalog. It also checks the variables of a group against the templates
// that define them.
package compose

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
)

// Compose builds the plan of a group. pick is a random number that selects among oneOf choices.
// The same inputs give the same plan, and pick matters only if there is a choice.
func Compose(g fleet.Group, m Materials, pick uint64) fleet.Plan {
	s, heads := g.Spec, withPinned(m.Heads, g.Pinned)
	index := indexTemplates(heads)
	layers := withAuto(g, index, layersOf(s.Templates, index, pick))
	of := resolve(Definitions(layers, heads), s.Variables)
	readiness, ping := s.ReadinessInForce(), fleet.CheckType("")
	if readiness.Type == fleet.CheckAny {
		ping = fleet.PingOf(s.Software.Platform)
	}
	return fleet.Plan{
		Artifact: artifactOf(s, m.Catalog),
		Group:    g.Name, GroupRevision: g.Revision, Runtime: s.Runtime, Command: commandLine(s),
		Layers: layers, Override: s.Templates.Override,
		FileModifications: s.FileModifications, Merge: s.MergeFiles, Patches: s.Patches(), Variables: of.values, Secrets: of.secrets, Hidden: hiddenIn(layers, heads, g.Hidden, of.secrets), Missing: of.missing, Env: maps.Clone(s.Env),
		InstanceGroups: s.InstanceGroups, HostAddress: s.HostAddress, MaxPlayers: s.Players.Max,
		Resources: s.Resources, CPULimit: s.CPULimit,
		Limits: s.Limits, Confine: s.Confine, Container: s.Container, RCON: s.RCON, Ports: s.Ports, AdditionalPorts: s.AdditionalPorts,
		Where: s.Where, Static: s.Static.Enabled, ProtectedPaths: s.Static.ProtectedPaths,
		Stop: s.Stop, Readiness: readiness, Ping: ping, Liveness: s.Liveness,
		Priority: s.Priority, StartupWeight: s.StartupWeight,
		StartupTimeoutSeconds: s.StartupTimeoutSeconds, MaxLifetimeSeconds: s.MaxLifetimeSeconds,
		OnCrash: s.OnCrash, OnNodeLoss: s.NodeLossPolicy(), Sleep: sleep.Rules{WakeOn: s.Sleep.WakeOn, Motd: s.Sleep.Motd},
	}
}

// withPinned returns heads with the pinned versions in place of the current ones.
func withPinned(heads, pinned []content.TemplateHead) []content.TemplateHead {
	if len(pinned) == 0 {
		return heads
	}
	out := slices.Clone(heads)
	for _, p := range pinned {
		at := slices.IndexFunc(out, func(h content.TemplateHead) bool { return h.TemplateRef == p.TemplateRef })
		if at < 0 { // the template was deleted, but not this version
			out = append(out, p)
			continue
		}
		out[at] = p
	}
	return out
}

// Used returns the heads of all templates that an instance of a group may use, also those that are
// selected at random. The group has the values it inherits.
func Used(g fleet.Group, heads []content.TemplateHead) []content.TemplateHead {
	heads = withPinned(heads, g.Pinned)
	t, used := g.Spec.Templates, map[content.TemplateRef]bool{}
	for _, l := range slices.Concat(t.AllOf, t.OneOf) {
		used[l.TemplateRef] = true
	}
	if g.Spec.AutoLayers {
		for _, ref := range AutoLayers(g.Name, g.Spec.Software.Platform) {
			used[ref] = true
		}
	}
	var out []content.TemplateHead
	for _, h := range heads {
		if used[h.TemplateRef] || slices.Contains(t.AllInGroups, h.Group) || slices.Contains(t.OneInGroups, h.Group) {
			out = append(out, h)
		}
	}
	return out
}

// commandLine returns the declared command, or a java command built from Software.
func commandLine(s fleet.GroupSpec) string {
	if s.Command != "" || s.Software.JarFile == "" {
		return s.Command
	}
	heap := HeapMiB(s.Resources.MemoryMiB)
	parts := []string{"java"}
	if heap > 0 {
		parts = append(parts, fmt.Sprintf("-Xms%dM", heap/2), fmt.Sprintf("-Xmx%dM", heap))
	}
	for _, a := range s.Software.JVMArgs {
		parts = append(parts, ShellQuote(a))
	}
	return strings.Join(append(parts, "-jar", ShellQuote(s.Software.JarFile)), " ")
}

// HeapMiB returns the Java heap size for a memory limit. It leaves 15 % of the limit for overhead
// under 2 GiB, 10 % under 4 GiB, and otherwise 5 %. 0 stays 0.
func HeapMiB(memoryMiB int) int {
	switch {
	case memoryMiB < 2048:
		return memoryMiB * 85 / 100
	case memoryMiB < 4096:
		return memoryMiB * 90 / 100
	}
	return memoryMiB * 95 / 100
}

// ShellQuote single-quotes s unless it is a plain word or placeholder.
func ShellQuote(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+@%"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
