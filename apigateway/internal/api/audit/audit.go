package audit

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/apigateway/internal/api/groups"
	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/auditops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/wire"
)

// auditEntry is a change.
type auditEntry struct {
	ID       string `json:"id"`
	Username string `json:"username"`
	// Role is the role that the user had. TokenID is the API token of the request. They are empty
	// for other actors.
	Role    string `json:"role"`
	TokenID string `json:"tokenId"`
	Action  string `json:"action"`
	// Class is the name of a fleet.AuditClass.
	Class        string `json:"class"`
	ResourceType string `json:"resourceType"`
	ResourceID   string `json:"resourceId"`
	Details      string `json:"details"`
	// Result is SUCCESS or FAILED. A refused login fails, and so does a command that may not have
	// reached its instance. Failure says why.
	Result  string `json:"result"`
	Failure string `json:"failure"`
	// Before and After are the object before and after the change, null if it did not exist. Those
	// of groups have only the changed fields.
	Before any `json:"before"`
	After  any `json:"after"`
	// Revision is etcd's revision after the change.
	Revision  int64     `json:"revision"`
	IPAddress string    `json:"ipAddress"`
	RequestID string    `json:"requestId"`
	CreatedAt time.Time `json:"createdAt"`
}

// auditEntryOf shows an entry. env is true if the caller may see the environment of groups.
func auditEntryOf(e account.AuditEntry, env bool) auditEntry {
	out := auditEntry{
		ID: e.ID, Username: e.Username, Role: e.Role, TokenID: e.TokenID,
		Action: e.Action, Class: e.Class().String(), ResourceType: e.ResourceType, ResourceID: e.ResourceID, Details: e.Details, Result: e.Result(), Failure: e.Failure,
		Revision: e.ModRev, IPAddress: e.IPAddress, RequestID: e.RequestID, CreatedAt: e.CreatedAt,
	}
	out.Before, out.After = auditedFields(e, env)
	return out
}

// auditPage is a page of the audit log. The next page begins after NextCursor, even if new entries
// were added.
type auditPage struct {
	server.Page[auditEntry]
	// NextCursor is null on the last page.
	NextCursor *string `json:"nextCursor"`
}

// listAudit lists the newest entries first.
func (a *API) listAudit(c *gin.Context) {
	q, err := auditQuery(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if q.Before != "" {
		if _, err := ulid.ParseStrict(q.Before); err != nil {
			server.Refuse(c, wire.Reply{
				Status: http.StatusBadRequest, Code: "BAD_CURSOR", Message: "cursor must be empty or the nextCursor of an earlier answer",
			})
			return
		}
	}
	page, ok := windowOf(c)
	if !ok {
		return
	}
	out := auditPage{Page: server.Page[auditEntry]{Data: []auditEntry{}, Page: page.from/page.size + 1, PageSize: page.size}}
	read, err := a.operations.Audit(c.Request.Context(), q, page.from, page.size)
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

// auditQuery reads the filters.
func auditQuery(c *gin.Context) (q auditops.AuditQuery, err error) {
	q = auditops.AuditQuery{
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

// auditClasses returns the names of all classes.
func auditClasses() (out []string) {
	for class := range account.AuditClasses {
		out = append(out, class.String())
	}
	return out
}

// window is the part of the list that a page shows.
type window struct{ from, size int }

// windowOf reads ?page and ?pageSize, or ?offset and ?limit. It returns false if it answered the
// request.
func windowOf(c *gin.Context) (p window, ok bool) {
	const furthest = 1 << 30 // longer than any list
	size, number, from := 0, 0, 0
	for _, one := range []struct {
		name      string
		otherwise int
		into      *int
	}{{"pageSize", resource.LargePage, &size}, {"limit", 0, &p.size}, {"page", 1, &number}, {"offset", -1, &from}} {
		if *one.into, ok = server.Number(c, one.name, one.otherwise); !ok {
			return p, false
		}
	}
	if c.Query("limit") == "" {
		p.size = size
	}
	p.size = min(max(p.size, 1), resource.LargePage)
	if p.from = min(max(from, 0), furthest); c.Query("offset") == "" && c.Query("cursor") == "" {
		p.from = min(max(number, 1)-1, furthest) * p.size
	}
	return p, true
}

// auditedFields returns the object before and after a change, with the field names of the API.
// Without env, the environment of groups is fleet.Hidden.
func auditedFields(e account.AuditEntry, env bool) (before, after any) {
	if e.ResourceType != "group" {
		return orNull(e.Before), orNull(e.After)
	}
	from, to := withoutDefaults(recordedGroup(nil), recordedGroup(e.Before), recordedGroup(e.After))
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

// hideEnv replaces the environment with fleet.Hidden.
func hideEnv(groups ...map[string]any) {
	for _, fields := range groups {
		if _, is := fields["env"]; is {
			fields["env"] = content.Hidden
		}
	}
}

// withoutDefaults returns from and to without the fields that have the default value in both.
func withoutDefaults(defaults, from, to map[string]any) (before, after map[string]any) {
	before, after = map[string]any{}, map[string]any{}
	for field := range to { // from has the same fields
		none, was, is := defaults[field], from[field], to[field]
		if resource.EqualJSON(none, was) && resource.EqualJSON(none, is) {
			continue
		}
		before[field], after[field] = was, is
		empty, isObject := none.(map[string]any)
		a, wasObject := was.(map[string]any)
		if b, ok := is.(map[string]any); ok && wasObject && isObject && len(empty) > 0 {
			before[field], after[field] = withoutDefaults(empty, a, b)
		}
	}
	return before, after
}

// orNull returns nil, not an empty RawMessage, so that it encodes as null.
func orNull(b json.RawMessage) any {
	if b == nil {
		return nil
	}
	return b
}

// recordedGroup decodes the audit's record of a group or of a change of one.
func recordedGroup(kept json.RawMessage) map[string]any {
	var g struct {
		groupops.GroupRecord
		// Truncated is the only field of a record that was too large.
		Truncated bool `json:"truncated"`
	}
	if kept != nil && json.Unmarshal(kept, &g) != nil {
		return map[string]any{}
	}
	out := groups.SpecFields(g.GroupSpec)
	out["managedBy"], out["truncated"] = g.ManagedBy, g.Truncated
	if out["crashesResetAt"] = nil; !g.CrashesResetAt.IsZero() {
		out["crashesResetAt"] = g.CrashesResetAt
	}
	return out
}
