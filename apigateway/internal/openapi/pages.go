package openapi

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
)

//go:embed docs/docs.html docs/docs.js docs/docs.css docs/home.txt
var docs embed.FS

// Pages serves the OpenAPI document and its HTML page. Create it with New.
type Pages struct {
	document            func() (file, error)
	page, script, style file
}

// file is a constant response body.
type file struct {
	content []byte
	etag    string
}

// New returns the pages of a gateway version. The document is assembled on its first request,
// because that takes longer than most of a gateway's start. New returns Internal when an
// embedded file is missing.
func New(version string) (*Pages, error) {
	p := &Pages{document: sync.OnceValues(func() (file, error) { return encoded(version) })}
	for name, into := range map[string]*file{"docs.html": &p.page, "docs.js": &p.script, "docs.css": &p.style} {
		content, err := docs.ReadFile("docs/" + name)
		if err != nil {
			return nil, errs.WrapAs(errs.Internal, "openapi.New", err)
		}
		*into = fileOf(content)
	}
	return p, nil
}

// encoded returns the document as JSON. It returns Internal when its parts are inconsistent.
func encoded(version string) (file, error) {
	doc, err := Document(version)
	if err != nil {
		return file{}, err
	}
	content, err := json.Marshal(doc)
	return fileOf(content), errs.WrapAs(errs.Internal, "openapi.encoded", err)
}

func fileOf(content []byte) file {
	sum := sha256.Sum256(content)
	return file{content: content, etag: `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// Routes returns the routes of the pages. Universe uses the paths below /openapi. JSON is valid
// YAML, so both document paths serve the same content.
func (p *Pages) Routes() []server.Route {
	page := p.page.as("text/html; charset=utf-8")
	return []server.Route{
		server.Get("/openapi.json", server.Public, p.as("application/json; charset=utf-8")),
		server.Get("/openapi/openapi.yaml", server.Public, p.as("application/yaml; charset=utf-8")),
		server.Get("/openapi", server.Public, page),
		server.Get("/docs", server.Public, page),
		server.Get("/docs/docs.js", server.Public, p.script.as("text/javascript; charset=utf-8")),
		server.Get("/docs/docs.css", server.Public, p.style.as("text/css; charset=utf-8")),
	}
}

// policy restricts the pages to content from the gateway itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// as serves the document with a media type.
func (p *Pages) as(media string) gin.HandlerFunc {
	return func(c *gin.Context) {
		document, err := p.document()
		if err != nil {
			server.Fail(c, err)
			return
		}
		document.as(media)(c)
	}
}

// as serves the file with a media type.
func (f file) as(media string) gin.HandlerFunc { return f.under(policy, media, revalidated) }
