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

// conditions refuses If-Match where nothing is compared with it, so that nobody takes for
// unchanged what was not looked at.
func (s *Server) conditions(c *gin.Context) {
	if match := strings.TrimSpace(c.GetHeader("If-Match")); match == "" || match == "*" || !s.routeOf(c).Unmatched {
		return
	}
	Fail(c, errs.New(errs.Malformed, "If-Match is not compared here, where nothing has a revision: nothing was changed, leave it out"))
}
