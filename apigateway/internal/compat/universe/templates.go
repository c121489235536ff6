package universe

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/fleet/content"
)

// Template is a template in this dialect.
type Template struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	// Path is the template's path relative to the parent of the template directory.
	Path string `json:"path"`
	// Digest is the digest of the current version.
	Digest string `json:"digest"`
}

func templateOf(h *content.TemplateHead) Template {
	return Template{Group: h.Group, Name: h.Name, Path: "templates/" + h.TemplateRef.String(), Digest: h.Digest}
}

func (a *API) listTemplates(c *gin.Context) {
	out := []Template{}
	for _, h := range a.snapshot().TemplateHeads.All() {
		if !h.Internal() {
			out = append(out, templateOf(h))
		}
	}
	c.JSON(http.StatusOK, out)
}

func (a *API) getTemplate(c *gin.Context) {
	h, err := a.template(c)
	if err != nil {
		fail(c, err)
		return
	}
	c.JSON(http.StatusOK, templateOf(h))
}
