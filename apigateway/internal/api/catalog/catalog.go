// Package catalog serves the catalog of server software.
package catalog

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/background/cataloghash"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/catalogops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/wire"
)

// Config holds what the handlers need.
type Config struct {
	Operations *ops.Operations
	Hasher     *cataloghash.Hasher
	// PinTime bounds how long an answer waits for the first download of a version.
	PinTime time.Duration
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// artifact is a version of a platform.
type artifact struct {
	Platform     string    `json:"platform"`
	Category     string    `json:"category"`
	Version      string    `json:"version"`
	Recommended  bool      `json:"recommended"`
	SHA256       string    `json:"sha256"`
	DownloadURL  string    `json:"downloadUrl"`
	ConfigFormat string    `json:"configFormat"`
	AddedAt      time.Time `json:"addedAt"`
	// Revision is the revision of the platform with all its versions. If-Match takes it.
	Revision int64 `json:"revision"`
}

// artifactBody is the body of a request. In a change, absent fields stay as they are.
type artifactBody struct {
	Version      *string `json:"version"`
	DownloadURL  *string `json:"downloadUrl"`
	SHA256       *string `json:"sha256"`
	Category     *string `json:"category"`
	ConfigFormat *string `json:"configFormat"`
}

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/catalog", server.Needs(auth.CatalogView), a.listCatalog),
		server.Post("/api/v1/catalog/:platform/versions", server.Needs(auth.CatalogManage), a.addArtifact),
		server.Patch("/api/v1/catalog/:platform/versions/:version", server.Needs(auth.CatalogManage), a.patchArtifact),
		server.Delete("/api/v1/catalog/:platform/versions/:version", server.Needs(auth.CatalogManage), a.deleteArtifact),
		server.Put("/api/v1/catalog/:platform/versions/:version/recommended", server.Needs(auth.CatalogManage), a.recommendArtifact),
	}
}

func (b artifactBody) edit() catalogops.CatalogEdit {
	if b.Category != nil {
		*b.Category = strings.ToUpper(*b.Category)
	}
	if b.SHA256 != nil {
		*b.SHA256 = strings.ToLower(*b.SHA256)
	}
	return catalogops.CatalogEdit{URL: b.DownloadURL, SHA256: b.SHA256, Category: b.Category, ConfigFormat: b.ConfigFormat}
}

// DecodeVersion decodes a version that a repository declares. It requires a hash, because a
// declared version must not depend on what the URL serves.
func DecodeVersion(version string, body []byte) (content.CatalogVersion, error) {
	v := content.CatalogVersion{Version: version, Category: content.CategoryServer}
	var b artifactBody
	if err := wire.DecodeJSON(bytes.NewReader(body), 0, &b); err != nil {
		return v, err
	}
	edit := b.edit()
	if edit.SHA256 == nil || *edit.SHA256 == "" {
		return v, errs.Field("sha256", "must be given for a version that a repository declares")
	}
	resource.Set(&v.URL, edit.URL)
	resource.Set(&v.SHA256, edit.SHA256)
	resource.Set(&v.Category, edit.Category)
	resource.Set(&v.ConfigFormat, edit.ConfigFormat)
	return v, nil
}

func artifactOf(p *content.CatalogPlatform, v content.CatalogVersion) artifact {
	return artifact{
		Platform: p.Platform, Category: v.Category, Version: v.Version, Recommended: v.Version == p.Recommended,
		SHA256: v.SHA256, DownloadURL: v.URL, ConfigFormat: v.ConfigFormat, AddedAt: v.AddedAt,
		Revision: p.ModRev,
	}
}

// listCatalog lists versions by platform.
func (a *API) listCatalog(c *gin.Context) {
	only := strings.ToUpper(c.Query("platform"))
	var all []artifact
	for _, p := range a.cfg.Operations.Snapshot().Catalog.All() {
		if only != "" && p.Platform != only {
			continue
		}
		for _, v := range p.Versions {
			all = append(all, artifactOf(p, v))
		}
	}
	server.SendPage(c, all, resource.SmallPage, func(r artifact) artifact { return r })
}

// addArtifact adds a version. Without a hash, the first download sets it.
func (a *API) addArtifact(c *gin.Context) {
	var b artifactBody
	if !server.Bind(c, &b) {
		return
	}
	v := content.CatalogVersion{Category: content.CategoryServer}
	resource.Set(&v.Version, b.Version)
	edit := b.edit()
	resource.Set(&v.URL, edit.URL)
	resource.Set(&v.SHA256, edit.SHA256)
	resource.Set(&v.Category, edit.Category)
	resource.Set(&v.ConfigFormat, edit.ConfigFormat)
	err := a.cfg.Operations.AddCatalogVersion(c.Request.Context(), server.Actor(c), c.Param("platform"), v)
	if err == nil {
		a.pin(c, v.Version)
	}
	a.sendArtifact(c, http.StatusCreated, v.Version, err)
}

// pin downloads a version that has no hash. It adds a warning to the answer if the download fails
// or takes longer than PinTime.
func (a *API) pin(c *gin.Context, version string) {
	platform := strings.ToUpper(c.Param("platform"))
	p, ok := a.cfg.Operations.Snapshot().Catalog.Get(platform)
	if !ok {
		return
	}
	if v, ok := p.Find(version); !ok || v.SHA256 != "" {
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), a.cfg.PinTime)
	defer cancel()
	err := a.cfg.Hasher.HashNow(ctx, cataloghash.Version{Platform: platform, Version: version})
	if err == nil {
		return
	}
	why := errs.MessageOf(err)
	if ctx.Err() != nil {
		why = "the URL is still being downloaded"
	}
	c.Header("Warning", "299 orrery "+strconv.QuoteToASCII("the version has no hash yet: "+why+"; gateways retry the download, and no instance starts from the version before one succeeds"))
}

// patchArtifact changes a version. A new URL without a hash is downloaded to get one. An empty
// name, URL or hash leaves the field as it is.
func (a *API) patchArtifact(c *gin.Context) {
	var b artifactBody
	if !server.Bind(c, &b) {
		return
	}
	version := c.Param("version")
	edit := b.edit()
	edit.Version = b.Version
	for _, field := range []**string{&edit.Version, &edit.URL, &edit.SHA256} {
		if *field != nil && **field == "" { // PrexorCloud's client sends absent fields as ""
			*field = nil
		}
	}
	rev, err := server.IfMatch(c)
	if edit.IfMatch = rev; err == nil {
		err = a.cfg.Operations.EditCatalogVersion(c.Request.Context(), server.Actor(c), c.Param("platform"), version, edit)
	}
	if edit.Version != nil {
		version = *edit.Version
	}
	if err == nil {
		a.pin(c, version)
	}
	a.sendArtifact(c, http.StatusOK, version, err)
}

// recommendArtifact makes a version the one that groups without a version use.
func (a *API) recommendArtifact(c *gin.Context) {
	version := c.Param("version")
	rev, err := server.IfMatch(c)
	if err == nil {
		err = a.cfg.Operations.RecommendCatalogVersion(c.Request.Context(), server.Actor(c), c.Param("platform"), version, rev)
	}
	a.sendArtifact(c, http.StatusOK, version, err)
}

func (a *API) deleteArtifact(c *gin.Context) {
	rev, err := server.IfMatch(c)
	if err == nil {
		err = a.cfg.Operations.RemoveCatalogVersion(c.Request.Context(), server.Actor(c), c.Param("platform"), c.Param("version"), rev)
	}
	resource.SendDeleted(c, err)
}

// sendArtifact answers with a version after a change.
func (a *API) sendArtifact(c *gin.Context, status int, version string, err error) {
	if err != nil {
		server.Fail(c, err)
		return
	}
	platform := strings.ToUpper(c.Param("platform"))
	if p, ok := a.cfg.Operations.Snapshot().Catalog.Get(platform); ok {
		if v, ok := p.Find(version); ok {
			server.ETag(c, p.ModRev)
			c.JSON(status, artifactOf(p, v))
			return
		}
	}
	server.Fail(c, errs.New(errs.Conflict, "the version was removed: read the catalog again"))
}
