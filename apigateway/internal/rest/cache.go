package rest

import (
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// cached is a template version in a node's cache; its name is known while it is the
// current or the previous one.
type cached struct {
	Name      string    `json:"name"`
	Hash      string    `json:"hash"`
	SizeBytes int64     `json:"sizeBytes"`
	Complete  bool      `json:"complete"`
	LastUsed  time.Time `json:"lastUsed"`
	InUse     bool      `json:"inUse"`
}

// nodeCache shows what a node keeps of templates, as its agent has it now.
func (a *API) nodeCache(c *gin.Context) {
	cache, err := a.cfg.Operations.NodeCache(c.Request.Context(), fleet.NodeID(c.Param("id")))
	if err != nil {
		server.Fail(c, err)
		return
	}
	names := map[string]string{}
	for _, h := range a.snapshot().TemplateHeads.All() {
		if names[h.Previous] == "" {
			names[h.Previous] = h.Short()
		}
	}
	for _, h := range a.snapshot().TemplateHeads.All() {
		names[h.Digest] = h.Short()
	}
	templates := make([]cached, 0, len(cache.Versions))
	for _, v := range cache.Versions {
		templates = append(templates, cached{names[v.Digest], v.Digest, v.Bytes, v.Complete, v.UsedAt, v.InUse})
	}
	c.JSON(http.StatusOK, gin.H{
		"templates": templates, "jars": []any{}, "bootstraps": []any{}, "totalSizeBytes": cache.TotalBytes,
		"limitBytes": cache.LimitBytes, "receivedAt": a.cfg.Now().UTC(),
	})
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
	if !noDryRun(c) {
		return
	}
	var digests []string
	s := a.snapshot()
	for i, name := range b.Templates {
		h, ok := s.TemplateHeads.Get(fleet.ParseTemplateRef(name).String())
		if !ok {
			server.Fail(c, errs.Field(fmt.Sprintf("templates[%d]", i), "%s", errs.MessageOf(operate.NoTemplate(s, fleet.ParseTemplateRef(name)))))
			return
		}
		digests = append(digests, h.Digest)
	}
	for i, name := range b.Groups {
		g, ok := s.Groups.Get(name)
		if !ok {
			server.Fail(c, errs.Field(fmt.Sprintf("groups[%d]", i), "names a group that does not exist: list the groups"))
			return
		}
		digests = append(digests, operate.GroupVersions(s, g)...)
	}
	if len(b.Templates)+len(b.Groups) == 0 {
		for _, g := range s.Groups.All() {
			digests = append(digests, operate.GroupVersions(s, g)...)
		}
	}
	if err := a.cfg.Operations.WarmNode(c.Request.Context(), server.Actor(c), fleet.NodeID(c.Param("id")), digests); err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusAccepted, gin.H{"status": "WARMING"})
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
