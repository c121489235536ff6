package system

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/instances"
	"github.com/orreryhq/orrery/apigateway/internal/api/players"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// figures count the objects of the fleet.
type figures struct {
	NodeCount     int `json:"nodeCount"` // connected nodes
	InstanceCount int `json:"instanceCount"`
	PlayerCount   int `json:"playerCount"`
	GroupCount    int `json:"groupCount"`
}

func (a *API) overview(c *gin.Context) { c.JSON(http.StatusOK, figuresOf(a.cfg.View.Snapshot())) }

func figuresOf(s *view.Snapshot) (out figures) {
	for id := range s.Nodes.All() {
		if _, alive := s.NodeSessions.Get(id); alive {
			out.NodeCount++
		}
	}
	for _, g := range s.Groups.All() {
		if !g.Deleting {
			out.GroupCount++
		}
	}
	perGroup := map[fleet.GroupName]int{}
	for _, i := range s.Instances.All() {
		if !i.Terminal() {
			out.InstanceCount++
		}
		if i.State().Running() { // the last report of an OFFLINE instance is out of date
			perGroup[i.Intent.Group] += instances.ReportOf(s, i).Players
		}
	}
	out.PlayerCount = players.CountOnce(perGroup, s.Networks.All(), s.RoutesPlayers)
	return out
}
