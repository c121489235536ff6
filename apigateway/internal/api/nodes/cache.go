package nodes

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// cachedVersion is a template version in a node's cache. Name is "" if no template is known to have
// it.
type cachedVersion struct {
	Name      string    `json:"name"`
	Hash      string    `json:"hash"`
	SizeBytes int64     `json:"sizeBytes"`
	Complete  bool      `json:"complete"`
	LastUsed  time.Time `json:"lastUsed"`
	InUse     bool      `json:"inUse"`
}

// cachedJar is a catalog artifact in a node's cache. Platform and Version are "" if neither the
// catalog nor a plan names it, JarFile if no plan does.
type cachedJar struct {
	Platform  string    `json:"platform"`
	Version   string    `json:"version"`
	JarFile   string    `json:"jarFile"`
	SizeBytes int64     `json:"sizeBytes"`
	SHA256    string    `json:"sha256"`
	CachedAt  time.Time `json:"cachedAt"`
	LastUsed  time.Time `json:"lastUsed"`
}

// nodeCache answers with the present content of a node's cache, from its agent.
func (a *API) nodeCache(c *gin.Context) {
	cache, err := a.cfg.Operations.NodeCache(c.Request.Context(), fleet.NodeID(c.Param("id")))
	if err != nil {
		server.Fail(c, err)
		return
	}
	templates := make([]cachedVersion, 0, len(cache.Versions))
	for _, v := range cache.Versions {
		templates = append(templates, cachedVersion{"", v.Digest, v.Bytes, v.Complete, v.UsedAt, v.InUse})
	}
	if err := a.nameCached(c.Request.Context(), templates); err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{
		"templates": templates, "jars": a.jarsOf(cache.Artifacts), "bootstraps": []any{}, "totalSizeBytes": cache.TotalBytes,
		"limitBytes": cache.LimitBytes, "receivedAt": a.cfg.Operations.Now(),
	})
}

// nameCached adds the names of the templates: of the head with the digest, else of a plan or a
// version record.
func (a *API) nameCached(ctx context.Context, all []cachedVersion) error {
	s, names := a.cfg.Operations.Snapshot(), map[string]string{}
	for _, p := range s.Plans.All() {
		for _, l := range p.Plan.Layers {
			names[l.Digest] = l.Short()
		}
	}
	for _, h := range s.TemplateHeads.All() {
		names[h.Digest] = h.Short()
	}
	if slices.ContainsFunc(all, func(v cachedVersion) bool { return names[v.Hash] == "" }) {
		versions, _, err := store.List(ctx, a.cfg.Operations.Store, keys.AllTemplateVersions())
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

// jarsOf names artifacts as the catalog does, else as plans do.
func (a *API) jarsOf(all []client.CachedArtifact) []cachedJar {
	s, named := a.cfg.Operations.Snapshot(), map[string]cachedJar{}
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

// refreshCache exists for clients of PrexorCloud's API. nodeCache always asks the agent, so there
// is nothing to refresh.
func (a *API) refreshCache(c *gin.Context) {
	if _, err := a.cfg.Operations.NodeCache(c.Request.Context(), fleet.NodeID(c.Param("id"))); err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusAccepted, gin.H{"status": "REQUESTED"})
}

// warmCache makes a node fetch the current versions of the given templates and of those that the
// given groups use, or of those of all groups. It does not wait for the downloads.
func (a *API) warmCache(c *gin.Context) {
	var b struct {
		Templates []string          `json:"templates"`
		Groups    []fleet.GroupName `json:"groups"`
	}
	if !server.BindOptional(c, &b) {
		return
	}
	templates, err := a.cfg.Operations.WarmNode(c.Request.Context(), server.Actor(c), templateops.WarmRequest{Node: fleet.NodeID(c.Param("id")), Templates: b.Templates, Groups: b.Groups})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusAccepted, gin.H{"status": "WARMING", "templates": templates})
}
