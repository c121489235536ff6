package openapi

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/dashboard"
	"github.com/orreryhq/orrery/libs/errs"
)

// Dashboard serves the web page for operators. Create it with NewDashboard.
type Dashboard struct {
	// files is the files by name.
	files map[string]dashboardFile
	// version is in the paths that the index names.
	version string
	// text is the start page of clients that do not accept HTML.
	text gin.HandlerFunc
}

type dashboardFile struct {
	file
	media string
}

// dashboardPolicy lets the page load and call only the gateway itself, without code or style in its
// HTML. Pictures of users come from the gateway too.
const dashboardPolicy = "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"

// NewDashboard returns Internal when an embedded file is missing.
func NewDashboard() (*Dashboard, error) {
	files, version, err := dashboard.Files()
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "openapi.NewDashboard", err)
	}
	d := &Dashboard{files: map[string]dashboardFile{}, version: version}
	for _, f := range files {
		d.files[f.Name] = dashboardFile{file: fileOf(f.Content), media: f.MediaType}
	}
	text, err := docs.ReadFile("docs/home.txt")
	if _, ok := d.files[dashboard.Index]; err != nil || !ok {
		return nil, errs.New(errs.Internal, "the gateway was built without %s or docs/home.txt", dashboard.Index)
	}
	d.text = fileOf(text).as("text/plain; charset=utf-8")
	return d, nil
}

// Routes returns the routes of the page. Its own pages are in the fragment of the address, so no
// other path leads to it.
func (d *Dashboard) Routes() []server.Route {
	return []server.Route{
		server.Get("/", server.Public, d.first),
		server.Get(dashboard.Prefix+"*file", server.Public, d.serve),
	}
}

// first serves the page, or a text if the client does not accept HTML.
func (d *Dashboard) first(c *gin.Context) {
	c.Writer.Header().Add("Vary", "Accept")
	if !strings.Contains(c.GetHeader("Accept"), "text/html") {
		d.text(c)
		return
	}
	index := d.files[dashboard.Index]
	index.under(dashboardPolicy, index.media, revalidated)(c)
}

// serve serves a file, with or without a version in its path. A file of this version never changes.
// A page of another version, from a gateway that was replaced in between, gets the file of this one.
func (d *Dashboard) serve(c *gin.Context) {
	name := strings.TrimPrefix(c.Request.URL.Path, dashboard.Prefix)
	f, ok := d.files[name]
	caching := revalidated
	if version, rest, cut := strings.Cut(name, "/"); !ok && cut {
		if f, ok = d.files[rest]; version == d.version {
			caching = immutable
		}
	}
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "the dashboard has no such file"))
		return
	}
	f.under(dashboardPolicy, f.media, caching)(c)
}

// The values of the header Cache-Control.
const (
	revalidated = "no-cache" // ask each time; a 304 is cheap
	immutable   = "public, max-age=31536000, immutable"
)

// under serves the file with a Content-Security-Policy, or 304 when the client's copy is current.
func (f file) under(policy, media, caching string) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Header("ETag", f.etag)
		c.Header("Cache-Control", caching)
		if strings.Contains(c.GetHeader("If-None-Match"), f.etag) {
			c.Status(http.StatusNotModified)
			return
		}
		c.Header("Content-Security-Policy", policy)
		c.Data(http.StatusOK, media, f.content)
	}
}
