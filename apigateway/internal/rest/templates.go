package rest

import (
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
)

// template is a template as this dialect shows it. One of the group default goes
// by its name alone, others by "<group>/<name>", in paths with the slash encoded.
type template struct {
	Name        string `json:"name"`
	Group       string `json:"group"`
	Description string `json:"description"`
	Platform    string `json:"platform"`
	Hash        string `json:"hash"`
	SizeBytes   int64  `json:"sizeBytes"`
	Files       int    `json:"files"`
	// Origin is the source it is published from; empty when it was made through the API.
	Origin    string    `json:"origin"`
	UpdatedAt time.Time `json:"updatedAt"`
}

func templateOf(h *fleet.TemplateHead) template {
	return template{
		Name: h.Short(), Group: h.Group, Description: h.Description, Platform: h.Platform, Hash: h.Digest,
		SizeBytes: h.SizeBytes, Files: h.Files, Origin: h.Origin, UpdatedAt: h.UpdatedAt,
	}
}

func (a *API) head(c *gin.Context) (*fleet.TemplateHead, bool) {
	s, ref := a.snapshot(), fleet.ParseTemplateRef(c.Param("name"))
	h, ok := s.TemplateHeads.Get(ref.String())
	if !ok {
		server.Fail(c, operate.NoTemplate(s, ref))
	}
	return h, ok
}

// listTemplates shows templates by name: those of a ?platform, or whose name holds ?q.
// Names that begin with _ are shown to who asks for ?all=true.
func (a *API) listTemplates(c *gin.Context) {
	all, q, platform := c.Query("all") == "true", strings.ToLower(c.Query("q")), c.Query("platform")
	var shown []*fleet.TemplateHead
	for _, h := range a.snapshot().TemplateHeads.All() {
		switch {
		case !all && strings.HasPrefix(h.Name, "_"):
		case platform != "" && !strings.EqualFold(h.Platform, platform):
		case strings.Contains(strings.ToLower(h.TemplateRef.String()), q):
			shown = append(shown, h)
		}
	}
	server.SendPage(c, shown, pageSome, templateOf)
}

func (a *API) getTemplate(c *gin.Context) {
	if h, ok := a.head(c); ok {
		server.ETag(c, h.ModRev)
		c.JSON(http.StatusOK, templateOf(h))
	}
}

func (a *API) mountTemplates(r gin.IRoutes) {
	const all, one = "/api/v1/templates", "/api/v1/templates/:name"
	r.GET(all, a.listTemplates)
	r.POST(all, a.createTemplate)
	r.POST(all+"/import", a.importTemplate)
	r.POST(all+"/sync", a.syncTemplates)
	r.GET(one, a.getTemplate)
	r.PATCH(one, a.patchTemplate)
	r.DELETE(one, a.deleteTemplate)
	r.GET(one+"/versions", a.listVersions)
	r.DELETE(one+"/versions/:hash", a.deleteVersion)
	r.GET(one+"/history", a.templateHistory)
	r.POST(one+"/rollback", a.rollback)
	r.GET(one+"/files", a.listFiles)
	r.DELETE(one+"/files", a.deleteFile)
	r.GET(one+"/files/content", a.fileContent)
	r.PUT(one+"/files/content", a.putContent)
	r.GET(one+"/files/download", a.downloadFile)
	r.POST(one+"/files/mkdir", a.makeDirectory)
	r.POST(one+"/files/rename", a.renameFile)
	r.POST(one+"/files/upload", a.uploadFiles)
	r.POST(one+"/files/extract", a.extractFile)
	r.GET(one+"/export", a.exportTemplate)
	r.GET(one+"/search", a.searchFiles)
	r.GET(one+"/inheritance", a.inheritance)
	r.GET(one+"/variables", a.listVariables)
	r.PUT(one+"/variables", a.putVariables)
	r.GET(one+"/variables/scan", a.scanVariables)
	r.POST(one+"/rehash", a.publishDraft)
	r.GET(one+"/draft", a.getDraft)
	r.DELETE(one+"/draft", a.dropDraft)
	r.GET(one+"/diff", a.diffVersions)
}
