package server

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
)

// rehearsals refuses a dry run where there is none, so that it is never a real change.
func (s *Server) rehearsals(c *gin.Context) {
	if c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead || !DryRun(c) || s.routeOf(c).Dry || c.FullPath() == "" {
		return
	}
	Fail(c, &errs.Error{Kind: errs.Malformed, Field: "dryRun", Message: "is not offered here: nothing was changed"})
}

// conditions refuses If-Match and If-None-Match with what changes something where nothing is
// compared with them, so that nobody takes for unchanged, or for new, what was not looked at.
func (s *Server) conditions(c *gin.Context) {
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
		why = "If-Match is not compared here, where nothing has a revision: nothing was changed, leave it out"
	case none != "" && !r.Making:
		why = "If-None-Match is not compared here: nothing was changed, leave it out"
	case none != "" && none != "*":
		why = "If-None-Match can only be * here, which makes what is not there and replaces nothing"
	case match != "" && none != "":
		why = "If-Match wants that it is there and If-None-Match that it is not: send one of them"
	case len(c.Request.Header.Values("If-Match")) > 1:
		why = "If-Match was sent more than once: send one, with the ETag of the object as it was read"
	default:
		return
	}
	Fail(c, errs.New(errs.Malformed, "%s", why))
}

// every is all that was sent under a header, which says the same on one line or on several.
func every(c *gin.Context, header string) string {
	return strings.TrimSpace(strings.Join(c.Request.Header.Values(header), ", "))
}
