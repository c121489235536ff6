package rest

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/pins"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// artifact is one version of a platform's software.
type artifact struct {
	Platform     string    `json:"platform"`
	Category     string    `json:"category"`
	Version      string    `json:"version"`
	Recommended  bool      `json:"recommended"`
	SHA256       string    `json:"sha256"`
	DownloadURL  string    `json:"downloadUrl"`
	ConfigFormat string    `json:"configFormat"`
	AddedAt      time.Time `json:"addedAt"`
	// Revision is the platform's, with all its versions: what If-Match takes.
	Revision int64 `json:"revision"`
}

// artifactBody is what a client sends; in a change, what is absent stays.
type artifactBody struct {
	Version      *string `json:"version"`
	DownloadURL  *string `json:"downloadUrl"`
	SHA256       *string `json:"sha256"`
	Category     *string `json:"category"`
	ConfigFormat *string `json:"configFormat"`
}

// catalogRoutes are platforms and their versions.
func (a *API) catalogRoutes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/catalog", server.Needs(auth.CatalogView), a.listCatalog),
		server.Post("/api/v1/catalog/:platform/versions", server.Needs(auth.CatalogManage), a.addArtifact),
		server.Patch("/api/v1/catalog/:platform/versions/:version", server.Needs(auth.CatalogManage), a.patchArtifact),
		server.Delete("/api/v1/catalog/:platform/versions/:version", server.Needs(auth.CatalogManage), a.deleteArtifact),
		server.Put("/api/v1/catalog/:platform/versions/:version/recommended", server.Needs(auth.CatalogManage), a.recommendArtifact),
	}
}

func (b artifactBody) edit() operate.CatalogEdit {
	if b.Category != nil {
		*b.Category = strings.ToUpper(*b.Category)
	}
	if b.SHA256 != nil {
		*b.SHA256 = strings.ToLower(*b.SHA256)
	}
	return operate.CatalogEdit{URL: b.DownloadURL, SHA256: b.SHA256, Category: b.Category, ConfigFormat: b.ConfigFormat}
}

// ReadCatalogVersion understands a version of the catalog in the words of /api/v1. Its
// hash has to be given: what is declared does not change with what a URL has.
func ReadCatalogVersion(version string, body []byte) (fleet.CatalogVersion, error) {
	v := fleet.CatalogVersion{Version: version, Category: fleet.CategoryServer}
	var b artifactBody
	if err := wire.DecodeJSON(bytes.NewReader(body), 0, &b); err != nil {
		return v, err
	}
	edit := b.edit()
	if edit.SHA256 == nil || *edit.SHA256 == "" {
		return v, errs.Field("sha256", "must be given for a version that a repository declares")
	}
	set(&v.URL, edit.URL)
	set(&v.SHA256, edit.SHA256)
	set(&v.Category, edit.Category)
	set(&v.ConfigFormat, edit.ConfigFormat)
	return v, nil
}

func artifactOf(p *fleet.CatalogPlatform, v fleet.CatalogVersion) artifact {
	return artifact{
		Platform: p.Platform, Category: v.Category, Version: v.Version, Recommended: v.Version == p.Recommended,
		SHA256: v.SHA256, DownloadURL: v.URL, ConfigFormat: v.ConfigFormat, AddedAt: v.AddedAt,
		Revision: p.ModRev,
	}
}

// listCatalog is a page of versions, by platform.
func (a *API) listCatalog(c *gin.Context) {
	only := strings.ToUpper(c.Query("platform"))
	var all []artifact
	for _, p := range a.snapshot().Catalog.All() {
		if only != "" && p.Platform != only {
			continue
		}
		for _, v := range p.Versions {
			all = append(all, artifactOf(p, v))
		}
	}
	server.SendPage(c, all, pageFew, func(r artifact) artifact { return r })
}

// addArtifact adds a version. Without a hash, the first download of its URL decides it.
func (a *API) addArtifact(c *gin.Context) {
	var b artifactBody
	if !server.Bind(c, &b) {
		return
	}
	v := fleet.CatalogVersion{Category: fleet.CategoryServer}
	set(&v.Version, b.Version)
	edit := b.edit()
	set(&v.URL, edit.URL)
	set(&v.SHA256, edit.SHA256)
	set(&v.Category, edit.Category)
	set(&v.ConfigFormat, edit.ConfigFormat)
	err := a.cfg.Operations.AddCatalogVersion(c.Request.Context(), server.Actor(c), c.Param("platform"), v)
	if err == nil {
		a.pin(c, v.Version)
	}
	a.sendArtifact(c, http.StatusCreated, v.Version, err)
}

// pin downloads a version without a hash, and warns when that fails or takes longer than PinTime.
func (a *API) pin(c *gin.Context, version string) {
	platform := strings.ToUpper(c.Param("platform"))
	p, ok := a.snapshot().Catalog.Get(platform)
	if !ok {
		return
	}
	if v, ok := p.Find(version); !ok || v.SHA256 != "" {
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), a.cfg.PinTime)
	defer cancel()
	err := a.cfg.Pins.Now(ctx, pins.Version{Platform: platform, Version: version})
	if err == nil {
		return
	}
	why := errs.MessageOf(err)
	if ctx.Err() != nil {
		why = "the URL is still being downloaded"
	}
	c.Header("Warning", "299 orrery "+strconv.QuoteToASCII("the version has no hash yet: "+why+"; gateways retry the download, and no instance starts from the version before one succeeds"))
}

// patchArtifact changes a version; another URL without a hash gets that of what it has. An
// empty name, URL or hash stays as it is.
func (a *API) patchArtifact(c *gin.Context) {
	var b artifactBody
	if !server.Bind(c, &b) {
		return
	}
	version := c.Param("version")
	edit := b.edit()
	edit.Version = b.Version
	for _, field := range []**string{&edit.Version, &edit.URL, &edit.SHA256} {
		if *field != nil && **field == "" { // as PrexorCloud's client sends what it was not given
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

// recommendArtifact makes a version the one a group without a version gets.
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
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}

// sendArtifact answers with a version as it is after a change.
func (a *API) sendArtifact(c *gin.Context, status int, version string, err error) {
	if err != nil {
		server.Fail(c, err)
		return
	}
	platform := strings.ToUpper(c.Param("platform"))
	if p, ok := a.snapshot().Catalog.Get(platform); ok {
		if v, ok := p.Find(version); ok {
			server.ETag(c, p.ModRev)
			c.JSON(status, artifactOf(p, v))
			return
		}
	}
	server.Fail(c, errs.New(errs.Conflict, "it was removed meanwhile: read the catalog again"))
}
