package nodes

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/nodeops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// revokedDays is how long a node is revoked by default.
	revokedDays    = 365
	maxRevokedDays = 3650
)

// revokedNodeRoutes revoke nodes. The paths name certificates, as in PrexorCloud's API: all those of a node
// are refused while it is revoked.
func (a *API) revokedNodeRoutes() []server.Route {
	may := server.Needs(auth.NodesRevokeCert)
	return server.Under("/api/v1/nodes",
		server.Get("/revoked-certs", may, a.listRevokedNodes),
		server.Post("/:id/revoke-cert", may, a.revokeNode).Rehearses(),
		server.Post("/:id/unrevoke-cert", may, a.unrevokeNode),
	)
}

func (a *API) revokeNode(c *gin.Context) {
	days, ok := server.Number(c, "ttlDays", revokedDays)
	switch {
	case !ok:
		return
	case days < 1 || days > maxRevokedDays:
		server.Fail(c, errs.Field("ttlDays", "must be between 1 and %d, is %d", maxRevokedDays, days))
		return
	}
	id := fleet.NodeID(c.Param("id"))
	rev, err := a.cfg.Operations.RevokeNode(c.Request.Context(), server.Actor(c), id, time.Duration(days)*24*time.Hour, server.DryRun(c))
	switch {
	case err != nil:
		server.Fail(c, err)
		return
	case server.DryRun(c):
		c.JSON(http.StatusOK, gin.H{"dryRun": true, "action": "revoke", "nodeId": id, "left": leftOn(a.cfg.Operations.Snapshot(), id)})
		return
	}
	c.JSON(http.StatusOK, gin.H{"nodeId": id, "revoked": true, "ttlDays": days, "revision": rev, "left": leftOn(a.cfg.Operations.Snapshot(), id)})
}

// left are the instances that a revoked node runs, as far as is known. No reports about them arrive
// after its session ends.
type left struct {
	Count int                `json:"count"`
	IDs   []fleet.InstanceID `json:"instanceIds"` // at most a hundred
}

func leftOn(s *view.Snapshot, id fleet.NodeID) left { return left(nodeops.LeftOn(s, id)) }

// revocation says that a node is revoked, and what still runs on it.
type revocation struct {
	Until time.Time `json:"until"`
	By    string    `json:"by"`
	Left  left      `json:"left"`
}

// revocationOf returns nil for a node that is not revoked now.
func revocationOf(s *view.Snapshot, id fleet.NodeID, now time.Time) *revocation {
	r, ok := s.RevokedNodes.Get(id)
	if !ok || !r.Holds(now) {
		return nil
	}
	return &revocation{Until: r.Until, By: r.By, Left: leftOn(s, id)}
}

func (a *API) unrevokeNode(c *gin.Context) {
	id := fleet.NodeID(c.Param("id"))
	rev, err := a.cfg.Operations.UnrevokeNode(c.Request.Context(), server.Actor(c), id)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"nodeId": id, "revoked": false, "revision": rev})
}

// revokedNode is a node that must not join before a time.
type revokedNode struct {
	NodeID fleet.NodeID `json:"nodeId"`
	Until  time.Time    `json:"until"`
	By     string       `json:"by"`
}

func (a *API) listRevokedNodes(c *gin.Context) {
	names, all := []fleet.NodeID{}, []revokedNode{}
	for id, r := range a.cfg.Operations.Snapshot().RevokedNodes.All() {
		if r.Holds(a.cfg.Operations.Now()) {
			names, all = append(names, id), append(all, revokedNode{id, r.Until, r.By})
		}
	}
	c.JSON(http.StatusOK, gin.H{"revokedCns": names, "nodes": all})
}
