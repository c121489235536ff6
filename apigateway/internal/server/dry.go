package server

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
)

// checkDryRun refuses dryRun on routes without a dry run, so that it never becomes a real change.
func (s *Server) checkDryRun(c *gin.Context) {
	if c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead || !DryRun(c) || s.routeOf(c).Dry || c.FullPath() == "" {
		return
	}
	Fail(c, &errs.Error{Kind: errs.Malformed, Field: "dryRun", Message: "is not supported here: nothing was changed"})
}

// checkConditions refuses If-Match and If-None-Match on changing routes that ignore them, so that
// clients do not rely on a precondition that was not checked.
func (s *Server) checkConditions(c *gin.Context) {
	if c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead || c.FullPath() == "" {
		return
	}
	match, none := every(c, "If-Match"), every(c, "If-None-Match")
	if match == "" && none == "" {
		return
	}
	why := ""
	switch r := s.routeOf(c); {
	case match != "" && r.Unmatched:
		why = "If-Match is not supported here, because the object has no revision: nothing was changed, omit the header"
	case none != "" && !r.Making:
		why = "If-None-Match is not supported here: nothing was changed, omit the header"
	case none != "" && none != "*":
		why = "If-None-Match must be * here, which creates the object and never replaces one"
	case match != "" && none != "":
		why = "If-Match requires that the object exists and If-None-Match that it does not: send only one of them"
	case len(c.Request.Header.Values("If-Match")) > 1:
		why = "If-Match was sent more than once: send one, with the ETag of the object as it was read"
	default:
		return
	}
	Fail(c, errs.New(errs.Malformed, "%s", why))
}

// every returns all values of a header, joined with commas.
func every(c *gin.Context, header string) string {
	return strings.TrimSpace(strings.Join(c.Request.Header.Values(header), ", "))
}
