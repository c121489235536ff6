package templates

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// uploadFiles writes the files of a form into a directory as one version. ?extract=true unpacks
// archives. The body is streamed to the template service.
func (a *API) uploadFiles(c *gin.Context) {
	ch, ok := a.changeOf(c, c.Query("path"))
	if !ok {
		return
	}
	done, ok := a.edit(c, ch, "upload", func(ctx context.Context) (client.Edited, error) {
		return a.cfg.Templates.Upload(ctx, ch, c.Query("extract") == "true", c.GetHeader("Content-Type"), c.Request.Body)
	})
	if ok {
		c.JSON(http.StatusOK, gin.H{"status": "uploaded", "files": done.Paths, "hash": done.Head.Digest})
	}
}

// extractFile unpacks an archive of the template into its directory.
func (a *API) extractFile(c *gin.Context) {
	path := c.Query("path")
	op := client.Op{Op: "extract", Path: path, Remove: c.Query("delete") == "true"}
	a.perform(c, path, op, func(done client.Edited) {
		c.JSON(http.StatusOK, gin.H{"status": "extracted", "path": path, "files": done.Files, "hash": done.Head.Digest})
	})
}

// exportTemplate packs a version with its variable definitions, or one of its directories without
// them.
func (a *API) exportTemplate(c *gin.Context) {
	h, digest, ok := a.versionOf(c)
	if !ok {
		return
	}
	format := c.DefaultQuery("format", "tar.gz")
	pack := func(ctx context.Context) (io.ReadCloser, error) {
		if dir := c.Query("path"); dir != "" {
			return a.cfg.Templates.Archive(ctx, digest, dir, format)
		}
		return a.cfg.Templates.Export(ctx, digest, format, server.Shown(c))
	}
	body, err := pack(c.Request.Context())
	if err != nil {
		server.Fail(c, err)
		return
	}
	name := strings.ReplaceAll(h.Short(), "/", "-") + "." + format
	server.Send(c, server.Transfer{Type: archiveType(format), Name: name, Size: -1, Body: body})
}

// archiveType returns the media type of an archive format.
func archiveType(format string) string {
	switch format {
	case "zip":
		return "application/zip"
	case "tar.gz":
		return "application/gzip"
	case "tar.zst":
		return "application/zstd"
	}
	return "application/x-tar"
}
