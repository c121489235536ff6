package rest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
)

// auditEntry is the record of one change.
type auditEntry struct {
	ID       string `json:"id"`
	Username string `json:"username"`
	// Role is the user's then, TokenID the API token it was done with; empty for others.
	Role    string `json:"role"`
	TokenID string `json:"tokenId"`
	Action  string `json:"action"`
	// Class is fleet.AuditClass by name.
	Class        string `json:"class"`
	ResourceType string `json:"resourceType"`
	ResourceID   string `json:"resourceId"`
	Details      string `json:"details"`
	// Result is SUCCESS, or FAILED for a refused login and for a command that may not have
	// come to its instance, with the reason in Failure.
	Result  string `json:"result"`
	Failure string `json:"failure"`
	// Before and After are what was changed, of groups only the fields that were; null where
	// there was, or is, nothing.
	Before any `json:"before"`
	After  any `json:"after"`
	// Revision is the store's after the change.
	Revision  int64     `json:"revision"`
	IPAddress string    `json:"ipAddress"`
	RequestID string    `json:"requestId"`
	CreatedAt time.Time `json:"createdAt"`
}

// auditEntryOf shows an entry; env says whether the caller sees groups' environment.
func auditEntryOf(e fleet.AuditEntry, env bool) auditEntry {
	out := auditEntry{
		ID: e.ID, Username: e.Username, Role: e.Role, TokenID: e.TokenID,
		Action: e.Action, Class: e.Class().String(), ResourceType: e.ResourceType, ResourceID: e.ResourceID, Details: e.Details, Result: e.Result(), Failure: e.Failure,
		Revision: e.ModRev, IPAddress: e.IPAddress, RequestID: e.RequestID, CreatedAt: e.CreatedAt,
	}
	out.Before, out.After = auditedFields(e, env)
	return out
}

// auditPage is a page of the audit; with NextCursor the next one begins behind it, also
// when there are newer entries by then.
type auditPage struct {
	server.Page[auditEntry]
	// NextCursor is null on the last page.
	NextCursor *string `json:"nextCursor"`
}

// listAudit is newest first.
func (a *API) listAudit(c *gin.Context) {
	q, err := auditQuery(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if q.Before != "" {
		if _, err := ulid.ParseStrict(q.Before); err != nil {
			server.Refuse(c, wire.Reply{
				Status: http.StatusBadRequest, Code: "BAD_CURSOR", Message: "cursor must be empty, or the nextCursor of an answer",
			})
			return
		}
	}
	page, ok := auditPlace(c)
	if !ok {
		return
	}
	out := auditPage{Page: server.Page[auditEntry]{Data: []auditEntry{}, Page: page.from/page.size + 1, PageSize: page.size}}
	read, err := a.cfg.Operations.Audit(c.Request.Context(), q, page.from, page.size)
	if err != nil {
		server.Fail(c, err)
		return
	}
	for _, e := range read.Entries {
		out.Data = append(out.Data, auditEntryOf(e, server.Allowed(c, auth.GroupsEnv)))
	}
	if out.Total = read.Total; read.More && len(out.Data) > 0 {
		out.NextCursor = &out.Data[len(out.Data)-1].ID
	}
	c.JSON(http.StatusOK, out)
}

// auditQuery are the filters of the query.
func auditQuery(c *gin.Context) (q operate.AuditQuery, err error) {
	q = operate.AuditQuery{
		User: c.Query("user"), Action: c.Query("action"), ResourceType: c.Query("resourceType"), ResourceID: c.Query("resourceId"),
		Before: c.Query("cursor"), Class: strings.ToUpper(c.Query("class")),
	}
	if !slices.ContainsFunc(auditClasses(), func(class string) bool { return q.Class == "" || q.Class == class }) {
		return q, &errs.Error{Kind: errs.Malformed, Field: "class", Message: "class must be one of " + strings.Join(auditClasses(), ", ")}
	}
	for name, at := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if text := c.Query(name); text != "" {
			if *at, err = time.Parse(time.RFC3339, text); err != nil {
				return q, &errs.Error{Kind: errs.Malformed, Field: name, Message: name + " must be a time such as 2026-01-02T15:04:05Z"}
			}
		}
	}
	return q, nil
}

// auditClasses are the classes of entries by name.
func auditClasses() (out []string) {
	for class := range fleet.AuditClasses {
		out = append(out, class.String())
	}
	return out
}

// place is where a page begins and how long it is.
type place struct{ from, size int }

// auditPlace is said by page and pageSize, or by offset and limit. ok is false when the
// request was answered.
func auditPlace(c *gin.Context) (p place, ok bool) {
	const furthest = 1 << 30 // no list is that long
	size, number, from := 0, 0, 0
	for _, one := range []struct {
		name      string
		otherwise int
		into      *int
	}{{"pageSize", pageMany, &size}, {"limit", 0, &p.size}, {"page", 1, &number}, {"offset", -1, &from}} {
		if *one.into, ok = server.Number(c, one.name, one.otherwise); !ok {
			return p, false
		}
	}
	if c.Query("limit") == "" {
		p.size = size
	}
	p.size = min(max(p.size, 1), pageMany)
	if p.from = min(max(from, 0), furthest); c.Query("offset") == "" && c.Query("cursor") == "" {
		p.from = min(max(number, 1)-1, furthest) * p.size
	}
	return p, true
}

// auditedFields are what an entry says of before and after, by the names of fields that the
// API has. Without env, groups' environment is Hidden in them.
func auditedFields(e fleet.AuditEntry, env bool) (before, after any) {
	if e.ResourceType != "group" {
		return orNull(e.Before), orNull(e.After)
	}
	from, to := onlyTold(recordedGroup(nil), recordedGroup(e.Before), recordedGroup(e.After))
	if !env {
		hideEnv(from, to)
	}
	if e.Before != nil {
		before = from
	}
	if e.After != nil {
		after = to
	}
	return before, after
}

// hideEnv puts Hidden in place of the environment in what was told of a group.
func hideEnv(told ...map[string]any) {
	for _, fields := range told {
		if _, is := fields["env"]; is {
			fields["env"] = fleet.Hidden
		}
	}
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
