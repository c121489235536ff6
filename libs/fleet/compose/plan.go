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
)

// Compose builds the plan of a group. pick is a random number that selects among oneOf choices.
// The same inputs give the same plan, and pick matters only if there is a choice.
func Compose(g fleet.Group, m Materials, pick uint64) fleet.Plan {
	s, heads := g.Spec, m.Heads
	index := fleet.IndexTemplates(heads)
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
		StartupTimeoutSeconds: s.StartupTimeoutSeconds, MaxLifetimeSeconds: s.MaxLifetimeSeconds,
		OnCrash: s.OnCrash, OnNodeLoss: s.NodeLossPolicy(),
	}
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
	plain := s != ""
	for _, c := range s {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+@%", c) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// layersOf resolves the selection in the order allOf, allInGroups, oneOf, oneInGroups, then sorts
// by priority. If a template is selected twice, the later layer stays.
func layersOf(t content.TemplateSelection, index fleet.TemplateIndex, pick uint64) []fleet.PlanLayer {
	var chosen []content.TemplateLayer
	chosen = append(chosen, t.AllOf...)
	for _, g := range t.AllInGroups {
		for _, ref := range index.InGroup[g] {
			chosen = append(chosen, content.TemplateLayer{TemplateRef: ref})
		}
	}
	if n := len(t.OneOf); n > 0 {
		chosen = append(chosen, t.OneOf[draw(pick, 0, n)])
	}
	for i, g := range t.OneInGroups {
		if refs := index.InGroup[g]; len(refs) > 0 {
			chosen = append(chosen, content.TemplateLayer{TemplateRef: refs[draw(pick, i+1, len(refs))]})
		}
	}
	return fleet.OrderLayers(chosen, index, t.Override)
}

// AutoLayers returns the automatic templates of a group, lowest first. Templates that do not exist
// or are selected explicitly are not added.
func AutoLayers(g fleet.GroupName, platform string) []content.TemplateRef {
	refs := []content.TemplateRef{{Group: content.DefaultTemplateGroup, Name: fleet.AutoBase}}
	if platform != "" {
		refs = append(refs, content.TemplateRef{Group: content.DefaultTemplateGroup, Name: fleet.AutoBase + "-" + strings.ToLower(platform)})
	}
	if own := (content.TemplateRef{Group: content.DefaultTemplateGroup, Name: string(g)}); !slices.Contains(refs, own) {
		refs = append(refs, own)
	}
	return refs
}

// withAuto adds a group's automatic layers below the selected ones.
func withAuto(g fleet.Group, index fleet.TemplateIndex, chosen []fleet.PlanLayer) []fleet.PlanLayer {
	if !g.Spec.AutoLayers {
		return chosen
	}
	var out []fleet.PlanLayer
	for _, ref := range AutoLayers(g.Name, g.Spec.Software.Platform) {
		head, ok := index.Head[ref]
		if !ok || slices.ContainsFunc(chosen, func(l fleet.PlanLayer) bool { return l.TemplateRef == ref }) {
			continue
		}
		out = append(out, fleet.PlanLayer{TemplateRef: ref, Digest: head.Digest, Auto: true})
	}
	return append(out, chosen...)
}

// draw returns the k-th independent choice below n from one random number (splitmix64's finaliser,
// Steele et al. 2014).
func draw(pick uint64, k, n int) int {
	z := pick + uint64(k+1)*0x9e3779b97f4a7c15
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}
