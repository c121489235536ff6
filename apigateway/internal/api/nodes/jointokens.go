package nodes

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store/view"
)

// joinTokenRoutes serve the tokens with which hosts join as nodes.
func (a *API) joinTokenRoutes() []server.Route {
	return []server.Route{
		server.Get("/api/v1/admin/tokens", server.Needs(auth.TokensView), a.listJoinTokens),
		server.Post("/api/v1/admin/tokens", server.Needs(auth.TokensCreate), a.createJoinToken).ShowsOnce(),
		server.Delete("/api/v1/admin/tokens/:id", server.Needs(auth.TokensRevoke), a.deleteJoinToken),
	}
}

// joinToken is the record of a token. Only the answer to its creation has the token itself.
type joinToken struct {
	TokenID   string       `json:"tokenId"`
	NodeID    fleet.NodeID `json:"nodeId"`
	CreatedAt time.Time    `json:"createdAt"`
	ExpiresAt time.Time    `json:"expiresAt"`
	// Status is ACTIVE, EXPIRED or USED.
	Status string `json:"status"`
	// UsedAt is when a host joined with the token, and UsedBy its address.
	UsedAt *time.Time `json:"usedAt,omitempty"`
	UsedBy string     `json:"usedBy,omitempty"`
	Token  string     `json:"token,omitempty"`
	// Warning is set in the answer to the creation if the token cannot be used.
	Warning string `json:"warning,omitempty"`
}

// unusedWarning warns that no host can use the token.
const unusedWarning = "no host can use this token, because no gateway serves nodes: set nodes.listen of the gateways"

func (a *API) joinTokenOf(t *cluster.JoinToken) joinToken {
	out := joinToken{TokenID: t.ID, NodeID: t.Node, CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, Status: "ACTIVE"}
	if t.Expired(a.cfg.Operations.Now()) {
		out.Status = "EXPIRED"
	}
	if t.Used != nil {
		out.Status, out.UsedAt, out.UsedBy = "USED", &t.Used.At, t.Used.IP
	}
	return out
}

func (a *API) listJoinTokens(c *gin.Context) {
	var all []*cluster.JoinToken
	for _, t := range a.cfg.Operations.Snapshot().JoinTokens.All() {
		all = append(all, t)
	}
	slices.SortFunc(all, func(x, y *cluster.JoinToken) int { return cmp.Compare(y.ID, x.ID) }) // newest first
	server.SendPage(c, all, resource.SmallPage, a.joinTokenOf)
}

// createJoinToken creates a token for one node that has not joined. It expires after ttlSeconds, or
// after a ttl like 15m.
func (a *API) createJoinToken(c *gin.Context) {
	var b struct {
		NodeID     fleet.NodeID `json:"nodeId"`
		TTLSeconds *int64       `json:"ttlSeconds"`
		TTL        string       `json:"ttl"`
		Again      bool         `json:"again"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.NodeID == "" {
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "nodeId", Message: "is missing: name the node that may join"})
		return
	}
	life, err := lifeOf(b.TTLSeconds, b.TTL)
	if err != nil {
		server.Fail(c, err)
		return
	}
	token, t, err := a.cfg.Operations.CreateJoinToken(c.Request.Context(), server.Actor(c), b.NodeID, life, b.Again)
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := a.joinTokenOf(&t)
	var usable bool
	if out.Token, usable = a.cfg.WholeToken(token, b.NodeID); !usable {
		out.Warning = unusedWarning
		c.Header("Warning", "299 orrery "+strconv.Quote(unusedWarning))
	}
	server.ETag(c, t.ModRev)
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusCreated, out)
}

// lifeOf returns the lifetime of a token, an hour by default.
func lifeOf(seconds *int64, text string) (time.Duration, error) {
	const most = int64(1) << 31 // far above the limit, but a valid time.Duration
	switch {
	case seconds != nil && text != "":
		return 0, errs.Field("ttl", "and ttlSeconds exclude each other: send one of them")
	case seconds != nil:
		return time.Duration(min(max(*seconds, 0), most)) * time.Second, nil
	case text == "":
		return time.Hour, nil
	}
	unit, ok := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 16)
	if !ok || err != nil {
		return 0, errs.Field("ttl", "must be a number and one of s, m, h and d, like 30s, 15m, 2h or 1d")
	}
	return time.Duration(n) * unit, nil
}

func (a *API) deleteJoinToken(c *gin.Context) {
	rev, err := server.IfMatch(c)
	if err == nil {
		err = a.cfg.Operations.DeleteJoinToken(c.Request.Context(), server.Actor(c), c.Param("id"), rev)
	}
	resource.SendDeleted(c, err)
}

// pendingNode is a node that has not joined and for which a token exists.
type pendingNode struct {
	ID        fleet.NodeID `json:"id"`
	NodeID    fleet.NodeID `json:"nodeId"`
	Type      string       `json:"type"`
	Status    string       `json:"status"`
	TokenID   string       `json:"tokenId"`
	ExpiresAt time.Time    `json:"expiresAt"`
}

// pendingOf returns the node of a valid token. ok is false if there is none or the node has joined.
func (a *API) pendingOf(s *view.Snapshot, id fleet.NodeID) (out pendingNode, ok bool) {
	t, ok := s.JoinTokens.Get(id)
	if _, joined := s.Nodes.Get(id); !ok || joined || t.Expired(a.cfg.Operations.Now()) {
		return out, false
	}
	return pendingNode{ID: id, NodeID: id, Type: pending, Status: pending, TokenID: t.ID, ExpiresAt: t.ExpiresAt}, true
}

const pending = "PENDING"
