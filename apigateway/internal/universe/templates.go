package universe

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Template is a template as this dialect shows it.
type Template struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	// Path is where the template lies below the directory of templates' parent.
	Path string `json:"path"`
	// Digest is the current version.
	Digest string `json:"digest"`
}

func templateOf(h *fleet.TemplateHead) Template {
	return Template{Group: h.Group, Name: h.Name, Path: "templates/" + h.TemplateRef.String(), Digest: h.Digest}
}

func (a *API) listTemplates(c *gin.Context) {
	out := []Template{}
	for _, h := range a.snapshot().TemplateHeads.All() {
		out = append(out, templateOf(h))
	}
	c.JSON(http.StatusOK, out)
}

func (a *API) getTemplate(c *gin.Context) {
	h, ok := a.snapshot().TemplateHeads.Get(c.Param("group") + "/" + c.Param("name"))
	if !ok {
		fail(c, errs.New(errs.NotFound, "Template not found"))
		return
	}
	c.JSON(http.StatusOK, templateOf(h))
}
