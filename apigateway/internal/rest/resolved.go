package rest

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
)

// resolvedGroup is a group as its instances are made.
type resolvedGroup struct {
	group
	// Ancestors are those it has something from or might, the parent first.
	Ancestors []fleet.GroupName `json:"ancestors"`
}

// getResolved shows a group with what it inherits. Its ETag changes with any of those it is of; what is counted in it is of the moment.
func (a *API) getResolved(c *gin.Context) {
	s := a.snapshot()
	g, err := present(s, c.Param("name"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	rev, ancestors := g.ModRev, []fleet.GroupName{}
	for _, p := range fleet.Ancestors(g, s.Groups.Get) {
		rev, ancestors = max(rev, p.ModRev), append(ancestors, p.Name)
	}
	server.ETag(c, rev)
	c.JSON(http.StatusOK, resolvedGroup{group: a.groupFor(c, s, s.Whole(g)), Ancestors: ancestors})
}
