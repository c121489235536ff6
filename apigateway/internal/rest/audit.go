package rest

import (
	"encoding/json"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
)

// auditEntry is the record of one change.
type auditEntry struct {
	ID           string `json:"id"`
	Username     string `json:"username"`
	Action       string `json:"action"`
	ResourceType string `json:"resourceType"`
	ResourceID   string `json:"resourceId"`
	Details      string `json:"details"`
	// Before and After are what was changed; null where the entry keeps none.
	Before    json.RawMessage `json:"before"`
	After     json.RawMessage `json:"after"`
	IPAddress string          `json:"ipAddress"`
	CreatedAt time.Time       `json:"createdAt"`
}

// listAudit is newest first.
func (a *API) listAudit(c *gin.Context) {
	all, err := a.cfg.Operations.Audit(c.Request.Context())
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.SendPage(c, all, pageMany, func(e fleet.AuditEntry) auditEntry {
		return auditEntry{
			ID: e.ID, Username: e.Username, Action: e.Action, ResourceType: e.ResourceType, ResourceID: e.ResourceID,
			Details: e.Details, Before: e.Before, After: e.After, IPAddress: e.IPAddress, CreatedAt: e.CreatedAt,
		}
	})
}
