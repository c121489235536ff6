package instances

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// composition is what an instance was created from. It shows placeholders as declared and hides
// secrets.
type composition struct {
	Instance      string           `json:"instance"`
	UID           fleet.InstanceID `json:"uid"`
	Group         fleet.GroupName  `json:"group"`
	GroupRevision int64            `json:"groupRevision"`
	// PlanHash is the digest of the plan. CompositionHash ignores the revision of the group.
	PlanHash        string `json:"planHash"`
	CompositionHash string `json:"compositionHash"`
	// Layers are in the order in which they are applied. The last one wins.
	Layers  []compositionLayer `json:"layers"`
	Runtime compositionRuntime `json:"runtime"`
	Command string             `json:"command"`
	JVMArgs []string           `json:"jvmArgs"`
	// Env is absent for callers without groups.env.
	Env       map[string]string `json:"env,omitzero"`
	Variables map[string]string `json:"variables"`
	// Secrets are the names of the variables with values that no caller may read.
	Secrets           []string                 `json:"secrets"`
	Merge             []string                 `json:"merge"`
	ConfigPatches     []configfile.ConfigPatch `json:"configPatches"`
	FileModifications []string                 `json:"fileModifications"`
	Override          bool                     `json:"override"`
	Extensions        []string                 `json:"extensions"`
	Port              int                      `json:"port"` // 0 until a node is selected
	Ports             []instancePort           `json:"ports"`
	MemoryMb          int                      `json:"memoryMb"`
	CPU               int                      `json:"cpu"`
	Static            bool                     `json:"static"`
	ProtectedPaths    []string                 `json:"protectedPaths"`
	CreatedAt         time.Time                `json:"createdAt"`
}

// compositionLayer is one template version.
type compositionLayer struct {
	Name     string `json:"name"`
	Group    string `json:"group"`
	Hash     string `json:"hash"` // "" when the template did not exist
	Priority int    `json:"priority"`
	// Auto is true if the layer was added automatically.
	Auto bool `json:"auto"`
	// Files and SizeBytes are 0 if the version cannot be read.
	Files     int   `json:"files"`
	SizeBytes int64 `json:"sizeBytes"`
}

// compositionRuntime is the software of the instance.
type compositionRuntime struct {
	Platform        string `json:"platform"`
	PlatformVersion string `json:"platformVersion"`
	JarFile         string `json:"jarFile"`
	URL             string `json:"url"`
	SHA256          string `json:"sha256"`
}

// composition shows what an instance was created from. It answers NotFound if the plan was already
// deleted.
func (a *API) composition(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	i, err := a.cfg.Operations.Find(c.Param("id"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	stored, ok := s.Plans.Get(i.Intent.Plan)
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "the plan of %s was deleted", i.Intent.Name))
		return
	}
	out := compositionOf(s, i, &stored.Plan)
	a.conceal(c, s, &stored.Plan, &out)
	if !server.Allowed(c, auth.GroupsEnv) {
		out.Env = nil
	}
	_ = txn.InTime(c.Request.Context(), func(ctx context.Context) error { // sizes that cannot be read in time stay 0
		a.addSizes(ctx, s, out.Layers, stored.Plan.Layers)
		return nil
	})
	c.JSON(http.StatusOK, out)
}

// compositionOf shows the plan of an instance.
func compositionOf(s *view.Snapshot, i *fleet.Instance, p *fleet.Plan) composition {
	out := composition{
		Instance: i.Intent.Name, UID: i.Intent.ID, Group: p.Group, GroupRevision: p.GroupRevision,
		PlanHash: i.Intent.Plan, CompositionHash: p.CompositionDigest(),
		Layers: []compositionLayer{}, Runtime: runtimeOf(s, i, p), Command: p.Command, JVMArgs: []string{},
		Env: orEmpty(p.Env), Variables: orEmpty(p.Variables), Secrets: []string{},
		Merge: *resource.List(p.Merge), ConfigPatches: *resource.List(p.Patches), FileModifications: *resource.List(p.FileModifications),
		Override: p.Override, Extensions: []string{}, Ports: []instancePort{},
		MemoryMb: p.Resources.MemoryMiB, CPU: p.Resources.CPU,
		Static: p.Static, ProtectedPaths: *resource.List(p.ProtectedPaths), CreatedAt: i.Intent.CreatedAt,
	}
	maps.Copy(out.Variables, i.Intent.Values)
	for _, l := range p.Layers {
		out.Layers = append(out.Layers, compositionLayer{Name: l.Name, Group: l.Group, Hash: l.Digest, Priority: l.Priority, Auto: l.Auto})
	}
	out.JVMArgs = *resource.List(jvmArgsOf(s, i, p))
	if shown := i.Shown(); shown != nil {
		out.Port = shown.Port
		for _, name := range slices.Sorted(maps.Keys(shown.Ports)) {
			out.Ports = append(out.Ports, instancePort{name, shown.Ports[name]})
		}
	}
	return out
}

// jvmArgsOf returns the JVM arguments of the group. A plan does not store them, so it returns nil
// if the group or an ancestor changed since the instance was created.
func jvmArgsOf(s *view.Snapshot, i *fleet.Instance, p *fleet.Plan) []string {
	g, ok := s.Groups.Get(p.Group)
	if !ok || g.Revision != p.GroupRevision {
		return nil
	}
	if own := g.Spec.Software.JVMArgs; len(own) > 0 {
		return own
	}
	return wholeOf(s, i, p).Spec.Software.JVMArgs
}

// wholeOf returns the group of a plan with what it inherits. It is empty if the group or an ancestor
// changed since the instance was created.
func wholeOf(s *view.Snapshot, i *fleet.Instance, p *fleet.Plan) *fleet.Group {
	g, ok := s.Groups.Get(p.Group)
	if !ok || g.Revision != p.GroupRevision {
		return &fleet.Group{}
	}
	for _, a := range compose.Ancestors(g, s.Groups.Get) {
		if a.UpdatedAt.After(i.Intent.GenerationAt) {
			return &fleet.Group{} // a change of a parent does not change the group's revision
		}
	}
	return s.Whole(g)
}

// conceal hides the values that the caller must not see, by the rules at the time of the plan or by
// the present ones of the templates, and lists the secrets.
func (a *API) conceal(c *gin.Context, s *view.Snapshot, p *fleet.Plan, out *composition) {
	g, ok := s.Groups.Get(p.Group)
	if !ok {
		g = &fleet.Group{Name: p.Group}
	}
	definers := s.Definers()
	whole := s.Whole(g)
	hidden := compose.Conceal(whole, definers.Of(g.Name, whole.Spec)) // by the present rules of the group and its ancestors
	built := fleet.GroupSpec{}
	for _, l := range p.Layers {
		built.Templates.AllOf = append(built.Templates.AllOf, content.TemplateLayer{TemplateRef: l.TemplateRef})
	}
	for key, v := range p.Hidden {
		if v.HiddenFrom(hidden[key]) {
			hidden[key] = v
		}
	}
	then := fleet.Group{Name: p.Group, Hidden: hidden, Spec: built}
	for key := range p.Secrets {
		out.Variables[key] = content.Hidden
		out.Secrets = append(out.Secrets, key)
	}
	slices.Sort(out.Secrets)
	out.Variables = compose.MaskValues(out.Variables, compose.Conceal(&then, definers.Of(p.Group, built)), server.Shown(c))
}

// runtimeOf returns the software from the catalog. Without an artifact it is the group's, if the
// group did not change.
func runtimeOf(s *view.Snapshot, i *fleet.Instance, p *fleet.Plan) compositionRuntime {
	if a := p.Artifact; a != nil {
		return compositionRuntime{Platform: a.Platform, PlatformVersion: a.Version, JarFile: a.Path, URL: a.URL, SHA256: a.SHA256}
	}
	w := wholeOf(s, i, p).Spec.Software
	return compositionRuntime{Platform: w.Platform, PlatformVersion: w.PlatformVersion, JarFile: w.JarFile}
}

func orEmpty(m map[string]string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	return out
}

// addSizes adds the size of each layer. It reads only versions that are not the current one of
// their template.
func (a *API) addSizes(ctx context.Context, s *view.Snapshot, shown []compositionLayer, layers []fleet.PlanLayer) {
	for n, l := range layers {
		if h, ok := s.TemplateHeads.Get(l.TemplateRef.String()); ok && h.Digest == l.Digest && h.Files > 0 {
			shown[n].Files, shown[n].SizeBytes = h.Files, h.SizeBytes
			continue
		}
		if l.Digest == "" {
			continue
		}
		if v, err := store.Get(ctx, a.cfg.Operations.Store, keys.TemplateVersion(l.TemplateRef, l.Digest)); err == nil {
			shown[n].Files, shown[n].SizeBytes = v.Files, v.SizeBytes
		}
	}
}
