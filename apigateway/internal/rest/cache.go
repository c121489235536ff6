package rest

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// cached is a template version in a node's cache; its name is "" of one that nobody
// knows any more.
type cached struct {
	Name      string    `json:"name"`
	Hash      string    `json:"hash"`
	SizeBytes int64     `json:"sizeBytes"`
	Complete  bool      `json:"complete"`
	LastUsed  time.Time `json:"lastUsed"`
	InUse     bool      `json:"inUse"`
}

// cachedJar is an artifact of the catalog in a node's cache; platform and version are ""
// of one that neither the catalog nor a plan names any more, jarFile without a plan.
type cachedJar struct {
	Platform  string    `json:"platform"`
	Version   string    `json:"version"`
	JarFile   string    `json:"jarFile"`
	SizeBytes int64     `json:"sizeBytes"`
	SHA256    string    `json:"sha256"`
	CachedAt  time.Time `json:"cachedAt"`
	LastUsed  time.Time `json:"lastUsed"`
}

// nodeCache shows what a node keeps of templates and of the catalog, as its agent has it now.
func (a *API) nodeCache(c *gin.Context) {
	cache, err := a.cfg.Operations.NodeCache(c.Request.Context(), fleet.NodeID(c.Param("id")))
	if err != nil {
		server.Fail(c, err)
		return
	}
	templates := make([]cached, 0, len(cache.Versions))
	for _, v := range cache.Versions {
		templates = append(templates, cached{"", v.Digest, v.Bytes, v.Complete, v.UsedAt, v.InUse})
	}
	if err := a.nameCached(c.Request.Context(), templates); err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{
		"templates": templates, "jars": a.jarsOf(cache.Artifacts), "bootstraps": []any{}, "totalSizeBytes": cache.TotalBytes,
		"limitBytes": cache.LimitBytes, "receivedAt": a.cfg.Now().UTC(),
	})
}

// nameCached gives versions the names of their templates: of the one whose head it is,
// before that of one a plan or a record names it by.
func (a *API) nameCached(ctx context.Context, all []cached) error {
	s, names := a.snapshot(), map[string]string{}
	for _, p := range s.Plans.All() {
		for _, l := range p.Plan.Layers {
			names[l.Digest] = l.Short()
		}
	}
	for _, h := range s.TemplateHeads.All() {
		names[h.Digest] = h.Short()
	}
	if slices.ContainsFunc(all, func(v cached) bool { return names[v.Hash] == "" }) {
		versions, _, err := store.List(ctx, a.cfg.Store, store.AllTemplateVersions())
		if err != nil {
			return err
		}
		for _, v := range versions {
			if names[v.Digest] == "" {
				names[v.Digest] = v.Short()
			}
		}
	}
	for i := range all {
		all[i].Name = names[all[i].Hash]
	}
	return nil
}

// jarsOf shows artifacts as the catalog names them or, of those that are not in it any
// more, as plans do.
func (a *API) jarsOf(all []client.CachedArtifact) []cachedJar {
	s, named := a.snapshot(), map[string]cachedJar{}
	for _, p := range s.Plans.All() {
		if f := p.Plan.Artifact; f != nil {
			named[f.SHA256] = cachedJar{Platform: f.Platform, Version: f.Version, JarFile: f.Path}
		}
	}
	for _, p := range s.Catalog.All() {
		for _, v := range p.Versions {
			named[v.SHA256] = cachedJar{Platform: p.Platform, Version: v.Version, JarFile: named[v.SHA256].JarFile}
		}
	}
	out := make([]cachedJar, 0, len(all))
	for _, f := range all {
		jar := named[f.SHA256]
		jar.SHA256, jar.SizeBytes, jar.CachedAt, jar.LastUsed = f.SHA256, f.Bytes, f.CachedAt, f.UsedAt
		out = append(out, jar)
	}
	return out
}

// refreshCache is for clients that ask for it first: the cache is told anew each time it
// is asked for.
func (a *API) refreshCache(c *gin.Context) {
	if _, err := a.cfg.Operations.NodeCache(c.Request.Context(), fleet.NodeID(c.Param("id"))); err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusAccepted, gin.H{"status": "REQUESTED"})
}

// warmCache has a node fetch the current versions of templates, and of those that groups
// use; without either of those of all groups. It answers before that is done.
func (a *API) warmCache(c *gin.Context) {
	var b struct {
		Templates []string          `json:"templates"`
		Groups    []fleet.GroupName `json:"groups"`
	}
	if !server.BindOptional(c, &b) {
		return
	}
	templates, err := a.cfg.Operations.WarmNode(c.Request.Context(), server.Actor(c), operate.WarmRequest{Node: fleet.NodeID(c.Param("id")), Templates: b.Templates, Groups: b.Groups})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusAccepted, gin.H{"status": "WARMING", "templates": templates})
}

// syncTemplates brings the current versions of templates to nodes and reports of each.
func (a *API) syncTemplates(c *gin.Context) {
	var b struct {
		Pattern string         `json:"pattern"`
		Nodes   []fleet.NodeID `json:"nodes"`
	}
	if !server.Bind(c, &b) {
		return
	}
	server.Unhurried(c)
	report, err := a.cfg.Operations.SyncTemplates(c.Request.Context(), server.Actor(c), operate.SyncRequest{Pattern: b.Pattern, Nodes: b.Nodes, DryRun: server.DryRun(c)})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, report)
}
