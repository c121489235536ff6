package system

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
)

// maintenance is the maintenance of all groups in an answer.
type maintenance struct {
	Enabled bool     `json:"enabled"`
	Message string   `json:"message"`
	Bypass  []string `json:"bypass"`
	// UpdatedBy and UpdatedAt are null before the first change.
	UpdatedBy *string    `json:"updatedBy"`
	UpdatedAt *time.Time `json:"updatedAt"`
}

func (a *API) maintenanceRoutes() []server.Route {
	return server.Under("/api/v1/maintenance",
		server.Get("", server.Needs(auth.GroupsView), a.getMaintenance),
		server.Put("", server.Needs(auth.GroupsUpdate), a.putMaintenance).Rehearses().Conditional(),
	)
}

func maintenanceOf(m cluster.Maintenance) maintenance {
	out := maintenance{Enabled: m.On, Message: m.Message, Bypass: append([]string{}, m.Bypass...)}
	if !m.At.IsZero() {
		out.UpdatedBy, out.UpdatedAt = &m.By, &m.At
	}
	return out
}

func (a *API) getMaintenance(c *gin.Context) {
	sendMaintenance(c, a.cfg.Operations.Snapshot().Maintenance())
}

// putMaintenance changes the fields that the body has. PrexorCloud's dashboard sends enabled and
// message only.
func (a *API) putMaintenance(c *gin.Context) {
	var b struct {
		Enabled   *bool           `json:"enabled"`
		Message   *string         `json:"message"`
		Bypass    *[]string       `json:"bypass"`
		UpdatedBy json.RawMessage `json:"updatedBy"`
		UpdatedAt json.RawMessage `json:"updatedAt"`
	}
	if !server.Bind(c, &b) {
		return
	}
	rev, err := server.IfMatch(c)
	var before fleet.Maintenance
	var m cluster.Maintenance
	if err == nil {
		m, err = a.cfg.Operations.SetMaintenance(c.Request.Context(), server.Actor(c), func(now fleet.Maintenance) fleet.Maintenance {
			before = now
			resource.Set(&now.On, b.Enabled)
			resource.Set(&now.Message, b.Message)
			resource.Set(&now.Bypass, b.Bypass)
			return now
		}, rev, server.DryRun(c))
	}
	switch {
	case err != nil:
		server.Fail(c, err)
	case server.DryRun(c):
		from, to := maintenanceOf(cluster.Maintenance{Maintenance: before}), maintenanceOf(cluster.Maintenance{Maintenance: m.Maintenance})
		c.JSON(http.StatusOK, resource.DryRun("maintenance", "cluster", true, resource.Differences(from, to)))
	default:
		sendMaintenance(c, m)
	}
}

// sendMaintenance has no ETag before the first change.
func sendMaintenance(c *gin.Context, m cluster.Maintenance) {
	if m.ModRev != 0 {
		server.ETag(c, m.ModRev)
	}
	c.JSON(http.StatusOK, maintenanceOf(m))
}
