package server

import (
	"net/http"

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
