package rest

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// composition is what an instance was made of. Placeholders are shown as they were
// declared, and nothing that is secret is shown at all.
type composition struct {
	Instance      string           `json:"instance"`
	UID           fleet.InstanceID `json:"uid"`
	Group         fleet.GroupName  `json:"group"`
	GroupRevision int64            `json:"groupRevision"`
	// PlanHash is the plan's digest. CompositionHash is the same for plans that differ
	// in the group's revision only.
	PlanHash        string `json:"planHash"`
	CompositionHash string `json:"compositionHash"`
	// Layers are in the order they are laid, the last one winning.
	Layers  []compositionLayer `json:"layers"`
	Runtime compositionRuntime `json:"runtime"`
	Command string             `json:"command"`
	JVMArgs []string           `json:"jvmArgs"`
	// Env is absent for callers without groups.env.
	Env       map[string]string `json:"env,omitzero"`
	Variables map[string]string `json:"variables"`
	// Secrets are the names of the variables whose values are shown to nobody.
	Secrets           []string            `json:"secrets"`
	Merge             []string            `json:"merge"`
	ConfigPatches     []fleet.ConfigPatch `json:"configPatches"`
	FileModifications []string            `json:"fileModifications"`
	Override          bool                `json:"override"`
	Extensions        []string            `json:"extensions"`
	Port              int                 `json:"port"` // 0 while none is decided
	Ports             []instancePort      `json:"ports"`
	MemoryMb          int                 `json:"memoryMb"`
	CPU               int                 `json:"cpu"`
	Static            bool                `json:"static"`
	ProtectedPaths    []string            `json:"protectedPaths"`
	CreatedAt         time.Time           `json:"createdAt"`
}

// compositionLayer is one template version.
type compositionLayer struct {
	Name     string `json:"name"`
	Group    string `json:"group"`
	Hash     string `json:"hash"` // "" when the template did not exist
	Priority int    `json:"priority"`
	// Auto is true of one that nobody chose.
	Auto bool `json:"auto"`
	// Files and SizeBytes are 0 when the version cannot be read now.
	Files     int   `json:"files"`
	SizeBytes int64 `json:"sizeBytes"`
}

// compositionRuntime is the software that is run.
type compositionRuntime struct {
	Platform        string `json:"platform"`
	PlatformVersion string `json:"platformVersion"`
	JarFile         string `json:"jarFile"`
	URL             string `json:"url"`
	SHA256          string `json:"sha256"`
}

// composition shows what an instance was made of. NotFound also when the plan of one
// that ended long ago is gone.
func (a *API) composition(c *gin.Context) {
	s := a.snapshot()
	i, err := a.cfg.Operations.Find(c.Param("id"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	stored, ok := s.Plans.Get(i.Intent.Plan)
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "the plan of %s is not kept any more", i.Intent.Name))
		return
	}
	out := compositionOf(s, i, &stored.Plan)
	a.conceal(c, s, &stored.Plan, &out)
	if !server.Allowed(c, auth.GroupsEnv) {
		out.Env = nil
	}
	_ = operate.InTime(c.Request.Context(), func(ctx context.Context) error { // sizes that cannot be read in time are 0
		a.addSizes(ctx, s, out.Layers, stored.Plan.Layers)
		return nil
	})
	c.JSON(http.StatusOK, out)
}

// compositionOf shows a plan as one instance has it.
func compositionOf(s *view.Snapshot, i *fleet.Instance, p *fleet.Plan) composition {
	out := composition{
		Instance: i.Intent.Name, UID: i.Intent.ID, Group: p.Group, GroupRevision: p.GroupRevision,
		PlanHash: i.Intent.Plan, CompositionHash: p.CompositionDigest(),
		Layers: []compositionLayer{}, Runtime: runtimeOf(s, p), Command: p.Command, JVMArgs: []string{},
		Env: orEmpty(p.Env), Variables: orEmpty(p.Variables), Secrets: []string{},
		Merge: *list(p.Merge), ConfigPatches: *list(p.Patches), FileModifications: *list(p.FileModifications),
		Override: p.Override, Extensions: []string{}, Ports: []instancePort{},
		MemoryMb: p.Resources.MemoryMiB, CPU: p.Resources.CPU,
		Static: p.Static, ProtectedPaths: *list(p.ProtectedPaths), CreatedAt: i.Intent.CreatedAt,
	}
	maps.Copy(out.Variables, i.Intent.Values)
	for _, l := range p.Layers {
		out.Layers = append(out.Layers, compositionLayer{Name: l.Name, Group: l.Group, Hash: l.Digest, Priority: l.Priority, Auto: l.Auto})
	}
	out.JVMArgs = *list(jvmArgsOf(s, i, p))
	if shown := i.Shown(); shown != nil {
		out.Port = shown.Port
		for _, name := range slices.Sorted(maps.Keys(shown.Ports)) {
			out.Ports = append(out.Ports, instancePort{name, shown.Ports[name]})
		}
	}
	return out
}

// jvmArgsOf are the arguments for the JVM, which no plan keeps apart: the group's, while it and
// those they come from are as they were when the instance was made.
func jvmArgsOf(s *view.Snapshot, i *fleet.Instance, p *fleet.Plan) []string {
	g, ok := s.Groups.Get(p.Group)
	if !ok || g.Revision != p.GroupRevision {
		return nil
	}
	if own := g.Spec.Software.JVMArgs; len(own) > 0 {
		return own
	}
	for _, a := range fleet.Ancestors(g, s.Groups.Get) {
		if a.UpdatedAt.After(i.Intent.GenerationAt) {
			return nil // a parent's change moves no revision of the group
		}
	}
	return s.Whole(g).Spec.Software.JVMArgs
}

// conceal hides the values that are not for the caller, as the plan was made or as templates
// say now, and names the secrets.
func (a *API) conceal(c *gin.Context, s *view.Snapshot, p *fleet.Plan, out *composition) {
	g, ok := s.Groups.Get(p.Group)
	if !ok {
		g = &fleet.Group{Name: p.Group}
	}
	definers := s.Definers()
	whole := s.Whole(g)
	hidden := whole.Conceal(definers.Of(g.Name, whole.Spec)) // as the group and its parents are now
	built := fleet.GroupSpec{}
	for _, l := range p.Layers {
		built.Templates.AllOf = append(built.Templates.AllOf, fleet.TemplateLayer{TemplateRef: l.TemplateRef})
	}
	for key, v := range p.Hidden {
		if v.HiddenFrom(hidden[key]) {
			hidden[key] = v
		}
	}
	then := fleet.Group{Name: p.Group, Hidden: hidden, Spec: built}
	for key := range p.Secrets {
		out.Variables[key] = fleet.Hidden
		out.Secrets = append(out.Secrets, key)
	}
	slices.Sort(out.Secrets)
	out.Variables = fleet.MaskValues(out.Variables, then.Conceal(definers.Of(p.Group, built)), server.Shown(c))
}

// runtimeOf is the software from the catalog, else that of the group while the group
// is as it was then.
func runtimeOf(s *view.Snapshot, p *fleet.Plan) compositionRuntime {
	if a := p.Artifact; a != nil {
		return compositionRuntime{Platform: a.Platform, PlatformVersion: a.Version, JarFile: a.Path, URL: a.URL, SHA256: a.SHA256}
	}
	g, ok := s.Groups.Get(p.Group)
	if !ok || g.Revision != p.GroupRevision {
		return compositionRuntime{}
	}
	w := g.Spec.Software
	return compositionRuntime{Platform: w.Platform, PlatformVersion: w.PlatformVersion, JarFile: w.JarFile}
}

func orEmpty(m map[string]string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	return out
}

// addSizes adds what the layers hold, from the heads where these are of the same version.
func (a *API) addSizes(ctx context.Context, s *view.Snapshot, shown []compositionLayer, layers []fleet.PlanLayer) {
	for n, l := range layers {
		if h, ok := s.TemplateHeads.Get(l.TemplateRef.String()); ok && h.Digest == l.Digest && h.Files > 0 {
			shown[n].Files, shown[n].SizeBytes = h.Files, h.SizeBytes
			continue
		}
		if l.Digest == "" {
			continue
		}
		if v, err := store.Get(ctx, a.cfg.Store, store.TemplateVersionKey(l.TemplateRef, l.Digest)); err == nil {
			shown[n].Files, shown[n].SizeBytes = v.Files, v.SizeBytes
		}
	}
}
