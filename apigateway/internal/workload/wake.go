package workload

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// wake wakes a sleeping instance for a proxy: the named one, or the oldest of a group.
func (a *API) wake(c *gin.Context) {
	var b struct {
		InstanceID string          `json:"instanceId"`
		Group      fleet.GroupName `json:"group"`
	}
	if !bind(c, &b) {
		return
	}
	if (b.InstanceID == "") == (b.Group == "") {
		server.Fail(c, errs.Field("instanceId", "or group is needed, but not both"))
		return
	}
	ref := b.InstanceID
	if b.Group != "" {
		i, err := a.cfg.Operations.Sleeper(b.Group)
		if err != nil {
			server.Fail(c, err)
			return
		}
		ref = string(i.Intent.ID)
	}
	out, err := a.cfg.Operations.WakeForProxy(c.Request.Context(), server.Actor(c), ref)
	if err != nil {
		server.Fail(c, err)
		return
	}
	status := "awake"
	if out.Changed {
		status = "waking"
	}
	c.JSON(http.StatusOK, gin.H{"status": status, "instanceId": out.Instance.Intent.Name})
}
