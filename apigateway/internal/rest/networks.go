package rest

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// networkFields are what may be written of a network. What is not sent is empty.
type networkFields struct {
	Description           string            `json:"description"`
	LobbyGroup            fleet.GroupName   `json:"lobbyGroup"`
	FallbackGroups        []fleet.GroupName `json:"fallbackGroups"`
	MemberGroups          []fleet.GroupName `json:"memberGroups"`
	ProxyGroups           []fleet.GroupName `json:"proxyGroups"`
	KickMessage           string            `json:"kickMessage"`
	BedrockLobbyGroup     fleet.GroupName   `json:"bedrockLobbyGroup"`
	BedrockFallbackGroups []fleet.GroupName `json:"bedrockFallbackGroups"`
}

// network is a network as it is read.
type network struct {
	Name string `json:"name"`
	networkFields
	// Revision is what If-Match takes; 0 before it is written.
	Revision  int64     `json:"revision"`
	UpdatedBy string    `json:"updatedBy"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// networkBody is what a client sends; what is only read may come back as it was.
type networkBody struct {
	Name *string `json:"name"`
	networkFields
	Revision  json.RawMessage `json:"revision"`
	UpdatedBy json.RawMessage `json:"updatedBy"`
	CreatedAt json.RawMessage `json:"createdAt"`
	UpdatedAt json.RawMessage `json:"updatedAt"`
}

// networkRoutes are networks: groups that players reach through the same proxies.
func (a *API) networkRoutes() []server.Route {
	return server.Under("/api/v1/networks",
		server.Get("", server.Needs(auth.NetworksView), a.listNetworks),
		server.Post("", server.Needs(auth.NetworksCreate), a.createNetwork).Rehearses(),
		server.Get("/:name", server.Needs(auth.NetworksView), a.getNetwork),
		server.Put("/:name", server.Needs(auth.NetworksUpdate), a.putNetwork).Rehearses(),
		server.Delete("/:name", server.Needs(auth.NetworksDelete), a.deleteNetwork).Rehearses(),
	)
}

func networkOf(n *fleet.Network) network {
	return network{
		Name: n.Name, networkFields: networkFieldsOf(*n), Revision: n.ModRev, UpdatedBy: n.By, CreatedAt: n.CreatedAt, UpdatedAt: n.UpdatedAt,
	}
}

func networkFieldsOf(n fleet.Network) networkFields {
	return networkFields{
		Description: n.Description, LobbyGroup: n.LobbyGroup, FallbackGroups: *list(n.FallbackGroups), MemberGroups: *list(n.MemberGroups),
		ProxyGroups: *list(n.ProxyGroups), KickMessage: n.KickMessage, BedrockLobbyGroup: n.BedrockLobbyGroup, BedrockFallbackGroups: *list(n.BedrockFallbackGroups),
	}
}

// given is the network a client wants.
func (f networkFields) given(name string) fleet.Network {
	return fleet.Network{
		Name: name, Description: f.Description, LobbyGroup: f.LobbyGroup, FallbackGroups: f.FallbackGroups, MemberGroups: f.MemberGroups,
		ProxyGroups: f.ProxyGroups, KickMessage: f.KickMessage, BedrockLobbyGroup: f.BedrockLobbyGroup, BedrockFallbackGroups: f.BedrockFallbackGroups,
	}
}

func (a *API) listNetworks(c *gin.Context) {
	s := a.snapshot()
	all := make([]*fleet.Network, 0, s.Networks.Len())
	for _, n := range s.Networks.All() {
		all = append(all, n)
	}
	server.SendPage(c, all, pageMany, networkOf)
}

func (a *API) getNetwork(c *gin.Context) {
	n, ok := a.snapshot().Networks.Get(c.Param("name"))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no network of that name"))
		return
	}
	server.WholeETag(c, n.ModRev)
	c.JSON(http.StatusOK, networkOf(n))
}

func (a *API) createNetwork(c *gin.Context) {
	var b networkBody
	if !server.Bind(c, &b) {
		return
	}
	if b.Name == nil {
		server.Fail(c, errs.Field("name", "is missing"))
		return
	}
	a.writeNetwork(c, operate.NetworkWrite{Network: b.given(*b.Name), Create: true})
}

func (a *API) putNetwork(c *gin.Context) {
	var b networkBody
	name, rev, ok := bindRecord(c, "network", &b, func() *string { return b.Name })
	if ok {
		a.writeNetwork(c, operate.NetworkWrite{Network: b.given(name), IfMatch: rev})
	}
}

func (a *API) writeNetwork(c *gin.Context, w operate.NetworkWrite) {
	w.DryRun = server.DryRun(c)
	done, err := a.cfg.Operations.WriteNetwork(c.Request.Context(), server.Actor(c), w)
	switch {
	case err != nil:
		server.Fail(c, err)
	case w.DryRun:
		c.JSON(http.StatusOK, networkRehearsalOf(done))
	default:
		status := http.StatusOK
		if w.Create {
			status = http.StatusCreated
			c.Header("Location", "/api/v1/networks/"+done.After.Name)
		}
		server.ETag(c, done.After.ModRev)
		c.JSON(status, networkOf(&done.After))
	}
}

// networkRehearsal is what a dry run found.
type networkRehearsal struct {
	DryRun bool `json:"dryRun"`
	// Action is create, update, delete or none.
	Action  string        `json:"action"`
	Network string        `json:"network"`
	Diff    []fieldChange `json:"diff"`
}

func networkRehearsalOf(w operate.NetworkWritten) networkRehearsal {
	r := networkRehearsal{DryRun: true, Action: "create", Network: w.After.Name}
	var before fleet.Network
	if w.Before != nil {
		before, r.Action = *w.Before, "update"
	}
	if r.Diff = differences(networkFieldsOf(before), networkFieldsOf(w.After)); w.Before != nil && len(r.Diff) == 0 {
		r.Action = "none"
	}
	return r
}

func (a *API) deleteNetwork(c *gin.Context) {
	deleteRecord(c, a.cfg.Operations.DeleteNetwork, networkRehearsal{DryRun: true, Action: "delete", Network: c.Param("name"), Diff: []fieldChange{}})
}
