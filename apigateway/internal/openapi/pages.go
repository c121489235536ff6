package openapi

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
)

//go:embed docs/docs.html docs/docs.js docs/docs.css docs/home.html docs/home.txt
var docs embed.FS

// Pages serves the document, and a page that shows it. Make it with New.
type Pages struct {
	document            func() (file, error)
	page, script, style file
	// home is the first page, homeText the same for whoever does not take HTML.
	home, homeText file
}

// file is an answer that is always the same.
type file struct {
	content []byte
	etag    string
}

// New returns the pages of a version. The document is put together when it is first asked for,
// since that takes longer than most of a gateway's start. Internal when a file is missing.
func New(version string) (*Pages, error) {
	p := &Pages{document: sync.OnceValues(func() (file, error) { return encoded(version) })}
	for name, into := range map[string]*file{"docs.html": &p.page, "docs.js": &p.script, "docs.css": &p.style, "home.html": &p.home, "home.txt": &p.homeText} {
		content, err := docs.ReadFile("docs/" + name)
		if err != nil {
			return nil, errs.As(errs.Internal, "openapi.New", err)
		}
		*into = fileOf(content)
	}
	return p, nil
}

// encoded is the document as a file. Internal when its parts do not fit together.
func encoded(version string) (file, error) {
	doc, err := Document(version)
	if err != nil {
		return file{}, err
	}
	content, err := json.Marshal(doc)
	return fileOf(content), errs.As(errs.Internal, "openapi.encoded", err)
}

func fileOf(content []byte) file {
	sum := sha256.Sum256(content)
	return file{content: content, etag: `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// Routes are the first page, the document and its page; those below /openapi are how Universe called them.
// JSON is YAML too, so the document is one and the same under both names.
func (p *Pages) Routes() []server.Route {
	page := p.page.as("text/html; charset=utf-8")
	return []server.Route{
		server.Get("/", server.Public, p.first),
		server.Get("/openapi.json", server.Public, p.as("application/json; charset=utf-8")),
		server.Get("/openapi/openapi.yaml", server.Public, p.as("application/yaml; charset=utf-8")),
		server.Get("/openapi", server.Public, page),
		server.Get("/docs", server.Public, page),
		server.Get("/docs/docs.js", server.Public, p.script.as("text/javascript; charset=utf-8")),
		server.Get("/docs/docs.css", server.Public, p.style.as("text/css; charset=utf-8")),
	}
}

// policy lets the page load nothing that the gateway does not serve itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// first serves the first page, as HTML to whoever takes that, else as text.
func (p *Pages) first(c *gin.Context) {
	c.Writer.Header().Add("Vary", "Accept")
	if strings.Contains(c.GetHeader("Accept"), "text/html") {
		p.home.as("text/html; charset=utf-8")(c)
		return
	}
	p.homeText.as("text/plain; charset=utf-8")(c)
}

// as serves the document as a media type.
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
