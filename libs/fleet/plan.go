package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Plan is all that is needed to place, build and start an instance of a group
// at one revision. It never changes; its key is its digest. Written create-only
// by whoever makes the instance, with the one function Compose.
type Plan struct {
	Rev
	Group         GroupName   `json:"group"`
	GroupRevision int64       `json:"groupRevision"`
	Runtime       RuntimeName `json:"runtime"`
	// Command is the shell line, placeholders not yet replaced.
	Command string `json:"command"`

	// Layers are pasted in this order; a later one wins.
	Layers []PlanLayer `json:"layers,omitempty"`
	// Override is false when files already in a static directory are kept.
	// Artifact is the platform's software, from the catalog; nil for none.
	Artifact          *Artifact `json:"artifact,omitempty"`
	Override          bool      `json:"override,omitempty"`
	FileModifications []string  `json:"fileModifications,omitempty"`
	// Merge are globs of files merged by layer; Patches are applied in their order.
	Merge     []string          `json:"merge,omitempty"`
	Patches   []ConfigPatch     `json:"patches,omitempty"`
	Variables map[string]string `json:"variables,omitempty"`
	// Secrets are the variables of type SECRET with the references to their values, which
	// are followed on the node; "" for one that only a start may bring.
	Secrets map[string]string `json:"secrets,omitempty"`
	// Hidden is who is shown the values that not everybody is, as the group and the layers'
	// versions had it; the secrets are not among them.
	Hidden map[string]Visibility `json:"hidden,omitempty"`
	// Missing are required variables without a value: the start fails unless it brings them.
	Missing        []string          `json:"missing,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	InstanceGroups []string          `json:"instanceGroups,omitempty"`
	HostAddress    string            `json:"hostAddress,omitempty"`
	MaxPlayers     int               `json:"maxPlayers,omitempty"`

	Resources       Resources   `json:"resources"`
	CPULimit        int         `json:"cpuLimit,omitempty"`
	Limits          Limits      `json:"limits,omitzero"`
	Confine         Confine     `json:"confine,omitzero"`
	Container       Container   `json:"container,omitzero"`
	RCON            RCON        `json:"rcon,omitzero"`
	Ports           PortRange   `json:"ports"`
	AdditionalPorts []NamedPort `json:"additionalPorts,omitempty"`
	Where           Where       `json:"where"`
	Static          bool        `json:"static,omitempty"`
	ProtectedPaths  []string    `json:"protectedPaths,omitempty"`

	Stop                  Stop       `json:"stop"`
	Readiness             Check      `json:"readiness"`
	Ping                  CheckType  `json:"ping,omitempty"` // what a readiness of CheckAny asks
	Liveness              Liveness   `json:"liveness,omitzero"`
	StartupTimeoutSeconds int        `json:"startupTimeoutSeconds,omitempty"`
	MaxLifetimeSeconds    int        `json:"maxLifetimeSeconds,omitempty"`
	OnCrash               OnCrash    `json:"onCrash"`
	OnNodeLoss            OnNodeLoss `json:"onNodeLoss"`
}

// PlanLayer is one template version of a plan. An empty Digest means the
// template did not exist when the plan was composed: the start fails with TemplateMissing.
type PlanLayer struct {
	TemplateRef
	// Digest is the version's; "" when Storage has no such template.
	Digest   string `json:"digest"`
	Storage  string `json:"storage,omitempty"`
	Priority int    `json:"priority,omitempty"`
	// Auto marks a layer nobody chose: it lies below all that were chosen.
	Auto bool `json:"auto,omitempty"`
}

// StoredPlan is a plan as it stands under its key, with the time it was last
// referenced; a plan nobody references is collected an hour after that.
type StoredPlan struct {
	Rev
	Plan      Plan      `json:"plan"`
	TouchedAt time.Time `json:"touchedAt"`
}

// Digest is the plan's identity: SHA-256 of its canonical JSON, hex.
func (p Plan) Digest() string {
	p.Rev = Rev{}
	b, err := json.Marshal(p)
	if err != nil { // only possible for types JSON cannot hold, and Plan has none
		panic(fmt.Sprintf("fleet: encoding a plan: %v", err))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// CompositionDigest is the digest of all but the group's revision and of who is shown what: it is equal for
// plans that make the same instance.
func (p Plan) CompositionDigest() string {
	p.GroupRevision, p.Hidden = 0, nil
	return p.Digest()
}

// Compose makes the plan of a group of what there is; pick is a
// random number from which oneOf choices are drawn. The same inputs give the
// same plan, and a plan depends on pick only where a choice exists.
func Compose(g Group, m Materials, pick uint64) Plan {
	s, heads := g.Spec, m.Heads
	there := shelve(heads)
	layers := withAuto(g, there, s.Templates.layers(there, pick))
	of := resolve(Definitions(layers, heads), s.Variables)
	readiness, ping := s.ReadinessInForce(), CheckType("")
	if readiness.Type == CheckAny {
		ping = PingOf(s.Software.Platform)
	}
	return Plan{
		Artifact: s.artifact(m.Catalog),
		Group:    g.Name, GroupRevision: g.Revision, Runtime: s.Runtime, Command: s.commandLine(),
		Layers: layers, Override: s.Templates.Override,
		FileModifications: s.FileModifications, Merge: s.MergeFiles, Patches: s.patches(), Variables: of.values, Secrets: of.secrets, Hidden: hiddenIn(layers, heads, g.Hidden, of.secrets), Missing: of.missing, Env: maps.Clone(s.Env),
		InstanceGroups: s.InstanceGroups, HostAddress: s.HostAddress, MaxPlayers: s.Players.Max,
		Resources: s.Resources, CPULimit: s.CPULimit,
		Limits: s.Limits, Confine: s.Confine, Container: s.Container, RCON: s.RCON, Ports: s.Ports, AdditionalPorts: s.AdditionalPorts,
		Where: s.Where, Static: s.Static.Enabled, ProtectedPaths: s.Static.ProtectedPaths,
		Stop: s.Stop, Readiness: readiness, Ping: ping, Liveness: s.Liveness,
		StartupTimeoutSeconds: s.StartupTimeoutSeconds, MaxLifetimeSeconds: s.MaxLifetimeSeconds,
		OnCrash: s.OnCrash, OnNodeLoss: s.NodeLossPolicy(),
	}
}

// customImage is the variable by which an instance's environment names another image
// than its group's, as in the older dialect.
const customImage = "CUSTOM_IMAGE"

// Asked is the check that asks a starting server over the network; of CheckAny it is the
// platform's ping.
func (p Plan) Asked() Check {
	if p.Readiness.Type == CheckAny {
		return Check{Type: p.Ping, Port: p.Readiness.Port}
	}
	return p.Readiness
}

// ImageReference is the image that the plan's container runs, placeholders not yet replaced.
func (p Plan) ImageReference() string { return cmp.Or(p.Env[customImage], p.Container.Image) }

// commandLine is the declared command, else the java line built from Software.
func (s GroupSpec) commandLine() string {
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

// HeapMiB is the Java heap that leaves the usual overhead below a memory limit:
// 15 % under 2 GiB, 10 % under 4 GiB, else 5 %. 0 stays 0.
func HeapMiB(memoryMiB int) int {
	switch {
	case memoryMiB < 2048:
		return memoryMiB * 85 / 100
	case memoryMiB < 4096:
		return memoryMiB * 90 / 100
	}
	return memoryMiB * 95 / 100
}

// ShellQuote leaves plain words and placeholders alone and single-quotes the rest.
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

// shelf is which templates there are: the head of each, and those of each group by name.
type shelf struct {
	head    map[TemplateRef]*TemplateHead
	inGroup map[string][]TemplateRef
}

// digest is the version of a layer's template; "" when its storage has none.
func (s shelf) digest(l TemplateLayer) string {
	h, ok := s.head[l.TemplateRef]
	if !ok || !l.From(*h) {
		return ""
	}
	return h.Digest
}

func shelve(heads []TemplateHead) shelf {
	out := shelf{head: make(map[TemplateRef]*TemplateHead, len(heads)), inGroup: map[string][]TemplateRef{}}
	for i, h := range heads {
		out.head[h.TemplateRef] = &heads[i]
		out.inGroup[h.Group] = append(out.inGroup[h.Group], h.TemplateRef)
	}
	for _, refs := range out.inGroup {
		slices.SortFunc(refs, func(a, b TemplateRef) int { return strings.Compare(a.Name, b.Name) })
	}
	return out
}

// layers resolves the selection: allOf, allInGroups, oneOf, oneInGroups, then by
// priority. Of a template chosen twice the later paste stays.
func (t TemplateSelection) layers(there shelf, pick uint64) []PlanLayer {
	var chosen []TemplateLayer
	chosen = append(chosen, t.AllOf...)
	for _, g := range t.AllInGroups {
		for _, ref := range there.inGroup[g] {
			chosen = append(chosen, TemplateLayer{TemplateRef: ref})
		}
	}
	if n := len(t.OneOf); n > 0 {
		chosen = append(chosen, t.OneOf[draw(pick, 0, n)])
	}
	for i, g := range t.OneInGroups {
		if refs := there.inGroup[g]; len(refs) > 0 {
			chosen = append(chosen, TemplateLayer{TemplateRef: refs[draw(pick, i+1, len(refs))]})
		}
	}
	return paste(chosen, there, t.Override)
}

// The templates of every group that has automatic layers, in DefaultTemplateGroup:
// AutoBase, AutoBase-<platform in lower case>, and one of the group's own name.
const AutoBase = "base"

// AutoLayers are the templates that are laid below the chosen ones of a group, as far
// as they exist and are not chosen themselves.
func AutoLayers(g GroupName, platform string) []TemplateRef {
	refs := []TemplateRef{{DefaultTemplateGroup, AutoBase}}
	if platform != "" {
		refs = append(refs, TemplateRef{DefaultTemplateGroup, AutoBase + "-" + strings.ToLower(platform)})
	}
	if own := (TemplateRef{DefaultTemplateGroup, string(g)}); !slices.Contains(refs, own) {
		refs = append(refs, own)
	}
	return refs
}

// withAuto lays a group's automatic layers below those that were chosen.
func withAuto(g Group, there shelf, chosen []PlanLayer) []PlanLayer {
	if !g.Spec.AutoLayers {
		return chosen
	}
	var out []PlanLayer
	for _, ref := range AutoLayers(g.Name, g.Spec.Software.Platform) {
		head, ok := there.head[ref]
		if !ok || slices.ContainsFunc(chosen, func(l PlanLayer) bool { return l.TemplateRef == ref }) {
			continue
		}
		out = append(out, PlanLayer{TemplateRef: ref, Digest: head.Digest, Auto: true})
	}
	return append(out, chosen...)
}

// paste orders layers so that a later one wins: by ascending priority, and among
// equals in selector order with Override, in reverse of it without.
func paste(chosen []TemplateLayer, there shelf, override bool) []PlanLayer {
	if !override {
		slices.Reverse(chosen)
	}
	slices.SortStableFunc(chosen, func(a, b TemplateLayer) int { return cmp.Compare(a.Priority, b.Priority) })
	seen := map[TemplateRef]bool{}
	var out []PlanLayer
	for _, c := range slices.Backward(chosen) {
		if !seen[c.TemplateRef] {
			seen[c.TemplateRef] = true
			out = append(out, PlanLayer{TemplateRef: c.TemplateRef, Digest: there.digest(c), Storage: c.Storage, Priority: c.Priority})
		}
	}
	slices.Reverse(out)
	return out
}

// draw gives the k-th independent choice below n from one random number
// (splitmix64's finaliser, Steele et al. 2014).
func draw(pick uint64, k, n int) int {
	z := pick + uint64(k+1)*0x9e3779b97f4a7c15
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return int((z ^ (z >> 31)) % uint64(n))
}
