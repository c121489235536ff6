package universe

import (
	"bufio"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
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

// sniffed is how many bytes of a file decide whether it is text.
const sniffed = 64 << 10

// template returns the template in the path, or NotFound.
func (a *API) template(c *gin.Context) (*content.TemplateHead, error) {
	h, err := templateops.Template(a.snapshot(), content.TemplateRef{Group: c.Param("group"), Name: c.Param("name")})
	if err != nil {
		return nil, errs.New(errs.NotFound, "Template not found")
	}
	return h, nil
}

// filePath returns the path after /files/. The router's parameter is not usable because it decodes + as
// a space.
func filePath(c *gin.Context) (string, error) {
	parts := strings.SplitN(c.Request.URL.EscapedPath(), "/", 7) // "", api, templates, group, name, files, path
	p, err := url.PathUnescape(parts[len(parts)-1])
	if err != nil {
		return "", &errs.Error{Kind: errs.Malformed, Field: "path", Message: "is not well-formed", Err: err}
	}
	return p, nil
}

func (a *API) listFiles(c *gin.Context) {
	h, err := a.template(c)
	if err != nil {
		fail(c, err)
		return
	}
	entries, err := a.cfg.Templates.Files(c.Request.Context(), h.Digest, "", true)
	if err != nil {
		fail(c, err)
		return
	}
	files := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.Kind != content.FileDir {
			files = append(files, e.Path)
		}
	}
	c.JSON(http.StatusOK, gin.H{"group": h.Group, "name": h.Name, "files": files})
}

func (a *API) getFile(c *gin.Context) {
	h, err := a.template(c)
	if err != nil {
		fail(c, err)
		return
	}
	p, err := filePath(c)
	if err != nil {
		fail(c, err)
		return
	}
	f, err := a.cfg.Templates.File(c.Request.Context(), h.Digest, p)
	if err != nil {
		fail(c, err)
		return
	}
	if server.Same(c, f.SHA256) {
		_ = f.Body.Close() // the body was not read
		return
	}
	body := bufio.NewReaderSize(f.Body, sniffed)
	kind := "application/octet-stream"
	if head, err := body.Peek(sniffed); upstream.Text(head, err == io.EOF) {
		kind = "text/plain; charset=utf-8"
	}
	server.Send(c, server.Transfer{Type: kind, Size: f.Size, Body: struct {
		io.Reader
		io.Closer
	}{body, f.Body}})
}
