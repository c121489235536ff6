package openapi

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
)

//go:embed docs/docs.html docs/docs.js docs/docs.css
var docs embed.FS

// Pages serves the document, and a page that shows it. Make it with New.
type Pages struct {
	document, page, script, style file
}

// file is an answer that is always the same.
type file struct {
	content []byte
	etag    string
}

// New encodes the document once. Internal when its files do not fit together.
func New(version string) (*Pages, error) {
	doc, err := Document(version)
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(doc)
	if err != nil {
		return nil, errs.As(errs.Internal, "openapi.New", err)
	}
	p := &Pages{document: fileOf(encoded)}
	for name, into := range map[string]*file{"docs.html": &p.page, "docs.js": &p.script, "docs.css": &p.style} {
		content, err := docs.ReadFile("docs/" + name)
		if err != nil {
			return nil, errs.As(errs.Internal, "openapi.New", err)
		}
		*into = fileOf(content)
	}
	return p, nil
}

func fileOf(content []byte) file {
	sum := sha256.Sum256(content)
	return file{content: content, etag: `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// Routes are the document and its page; those below /openapi are how Universe called them.
// JSON is YAML too, so the document is one and the same under both names.
func (p *Pages) Routes() []server.Route {
	page := p.page.as("text/html; charset=utf-8")
	return []server.Route{
		server.Get("/openapi.json", server.Public, p.document.as("application/json; charset=utf-8")),
		server.Get("/openapi/openapi.yaml", server.Public, p.document.as("application/yaml; charset=utf-8")),
		server.Get("/openapi", server.Public, page),
		server.Get("/docs", server.Public, page),
		server.Get("/docs/docs.js", server.Public, p.script.as("text/javascript; charset=utf-8")),
		server.Get("/docs/docs.css", server.Public, p.style.as("text/css; charset=utf-8")),
	}
}

// policy lets the page load nothing that the gateway does not serve itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// as serves the file as a media type, or says that the caller has it.
func (f file) as(media string) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Header("ETag", f.etag)
		c.Header("Cache-Control", "no-cache") // to be asked for again: it is cheap when it is known
		if strings.Contains(c.GetHeader("If-None-Match"), f.etag) {
			c.Status(http.StatusNotModified)
			return
		}
		c.Header("Content-Security-Policy", policy)
		c.Data(http.StatusOK, media, f.content)
	}
}
