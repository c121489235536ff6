package rest

import (
	"encoding/json"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
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
	// Before and After are what was changed, of groups only the fields that were; null where
	// there was, or is, nothing.
	Before    any       `json:"before"`
	After     any       `json:"after"`
	IPAddress string    `json:"ipAddress"`
	CreatedAt time.Time `json:"createdAt"`
}

// listAudit is newest first.
func (a *API) listAudit(c *gin.Context) {
	all, err := a.cfg.Operations.Audit(c.Request.Context())
	if err != nil {
		server.Fail(c, err)
		return
	}
	server.SendPage(c, all, pageMany, func(e fleet.AuditEntry) auditEntry {
		before, after := auditedFields(e)
		return auditEntry{
			ID: e.ID, Username: e.Username, Action: e.Action, ResourceType: e.ResourceType, ResourceID: e.ResourceID,
			Details: e.Details, Before: before, After: after, IPAddress: e.IPAddress, CreatedAt: e.CreatedAt,
		}
	})
}

// auditedFields are what an entry says of before and after, by the names of fields that the
// API has.
func auditedFields(e fleet.AuditEntry) (before, after any) {
	if e.ResourceType != "group" {
		return orNull(e.Before), orNull(e.After)
	}
	from, to := onlyTold(recordedGroup(nil), recordedGroup(e.Before), recordedGroup(e.After))
	if e.Before != nil {
		before = from
	}
	if e.After != nil {
		after = to
	}
	return before, after
}

// onlyTold is what of two objects at least one tells: where both are as they would be
// without telling anything, they did not.
func onlyTold(nothing, from, to map[string]any) (before, after map[string]any) {
	before, after = map[string]any{}, map[string]any{}
	for field := range to { // as many as in from, for a record is shown whole
		none, was, is := nothing[field], from[field], to[field]
		if equalJSON(none, was) && equalJSON(none, is) {
			continue
		}
		before[field], after[field] = was, is
		empty, isObject := none.(map[string]any)
		a, wasObject := was.(map[string]any)
		if b, ok := is.(map[string]any); ok && wasObject && isObject && len(empty) > 0 {
			before[field], after[field] = onlyTold(empty, a, b)
		}
	}
	return before, after
}

// orNull is what an entry keeps, null for nothing.
func orNull(b json.RawMessage) any {
	if b == nil {
		return nil
	}
	return b
}

// recordedGroup are the fields of a group, or of a change of one, that the audit kept.
func recordedGroup(kept json.RawMessage) map[string]any {
	var g struct {
		operate.GroupRecord
		// Truncated is all there is of what was too large.
		Truncated bool `json:"truncated"`
	}
	if kept != nil && json.Unmarshal(kept, &g) != nil {
		return map[string]any{}
	}
	out := asMap(fieldsOf(g.GroupSpec))
	out["managedBy"], out["truncated"] = g.ManagedBy, g.Truncated
	if out["crashesResetAt"] = nil; !g.CrashesResetAt.IsZero() {
		out["crashesResetAt"] = g.CrashesResetAt
	}
	return out
}
