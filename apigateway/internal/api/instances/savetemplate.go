package instances

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	templates "github.com/orreryhq/orrery/templatesvc/client"
)

// saveToTemplate publishes a version of a template with the configuration files of a running
// instance. The answer lists skipped files, as text and as data.
func (a *API) saveToTemplate(c *gin.Context) {
	var b struct {
		Template   string `json:"template"`
		PathPrefix string `json:"pathPrefix"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.Template == "" {
		server.Fail(c, errs.Field("template", "is missing: name the template to save to"))
		return
	}
	if b.PathPrefix != "" && !content.SafePath(b.PathPrefix) {
		server.Fail(c, errs.Field("pathPrefix", "%q is not a path inside the instance's directory: give one of a directory in it, or leave it out", b.PathPrefix))
		return
	}
	ref, by := content.ParseTemplateRef(b.Template), server.Actor(c)
	server.Unhurried(c)
	var done templates.Edited
	dry := server.DryRun(c)
	head, report, err := a.cfg.Operations.SaveTemplate(c.Request.Context(), by, templateops.SaveRequest{
		Instance: c.Param("id"), Template: ref, Prefix: b.PathPrefix, DryRun: dry,
		Import: func(ctx context.Context, message string, archive io.Reader) (content.TemplateHead, error) {
			ch := templates.Change{Ref: ref, Asked: server.Asked(c), Message: message, Kind: content.MoveSave, DryRun: dry}
			var err error
			done, err = a.cfg.Templates.Import(ctx, ch, "tar", archive)
			return done.Head, err
		},
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	skipped := make([]string, 0, len(report.Skipped)+2)
	for _, s := range report.Skipped {
		skipped = append(skipped, s.Path+": "+s.Reason)
	}
	if report.MoreSkipped > 0 {
		skipped = append(skipped, fmt.Sprintf("and %d more", report.MoreSkipped))
	}
	if report.Truncated != "" {
		skipped = append(skipped, "only a part was searched: "+report.Truncated)
	}
	out := gin.H{
		"template": head.Short(), "hash": head.Digest, "filesWritten": report.Files, "unchanged": report.Unchanged, "skipped": skipped, "report": report.Skipped,
	}
	if dry {
		out["dryRun"], out["filesWritten"], out["files"], out["truncated"] = true, 0, resource.FileChangesOf(done.Changes), done.More
	}
	c.JSON(http.StatusOK, out)
}
