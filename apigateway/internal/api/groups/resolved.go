package groups

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
)

// resolvedGroup is a group with the inherited fields, as its instances are created from it.
type resolvedGroup struct {
	group
	// Ancestors are the groups it inherits from, its parent first.
	Ancestors []fleet.GroupName `json:"ancestors"`
}

// getResolved shows a group with the fields it inherits. Its ETag changes with the group and with
// every ancestor.
func (a *API) getResolved(c *gin.Context) {
	s := a.cfg.View.Snapshot()
	g, err := present(s, c.Param("name"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	rev, ancestors := g.ModRev, []fleet.GroupName{}
	for _, p := range compose.Ancestors(g, s.Groups.Get) {
		rev, ancestors = max(rev, p.ModRev), append(ancestors, p.Name)
	}
	server.ETag(c, rev)
	c.JSON(http.StatusOK, resolvedGroup{group: a.groupFor(c, s, s.Whole(g)), Ancestors: ancestors})
}
