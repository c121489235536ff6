package universe

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// FindNode returns the node with a name or with the ID of its agent's data directory.
func FindNode(s *view.Snapshot, ref string) (*fleet.Node, bool) {
	if n, ok := s.Nodes.Get(fleet.NodeID(ref)); ok || ref == "" {
		return n, ok
	}
	for _, n := range s.Nodes.All() {
		if n.DataUUID == ref {
			return n, true
		}
	}
	return nil, false
}

func (a *API) listNodes(c *gin.Context) {
	s := a.snapshot()
	out := []Node{}
	for _, n := range s.Nodes.All() {
		out = append(out, NodeOf(s, n, fleet.NodeID(a.cfg.NodeID)))
	}
	c.JSON(http.StatusOK, out)
}

func (a *API) getNode(c *gin.Context) {
	s := a.snapshot()
	n, ok := FindNode(s, c.Param("id"))
	if !ok {
		fail(c, errs.New(errs.NotFound, "Node not found"))
		return
	}
	c.JSON(http.StatusOK, nodeDetailOf(s, n, fleet.NodeID(a.cfg.NodeID)))
}
