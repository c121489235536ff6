package groups

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/clusterops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
)

// networkFields are the writable fields of a network. Omitted fields are empty.
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

// network is a network in an answer.
type network struct {
	Name string `json:"name"`
	networkFields
	// Revision is the value for If-Match. It is 0 in the answer to a dry run that creates.
	Revision  int64     `json:"revision"`
	UpdatedBy string    `json:"updatedBy"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// networkBody is the body of a request. It accepts the read-only fields so that a client can send
// back what it read.
type networkBody struct {
	Name *string `json:"name"`
	networkFields
	Revision  json.RawMessage `json:"revision"`
	UpdatedBy json.RawMessage `json:"updatedBy"`
	CreatedAt json.RawMessage `json:"createdAt"`
	UpdatedAt json.RawMessage `json:"updatedAt"`
}

// networkRoutes serve networks: groups that players reach through the same proxies.
func (a *API) networkRoutes() []server.Route {
	return server.Under("/api/v1/networks",
		server.Get("", server.Needs(auth.NetworksView), a.listNetworks),
		server.Post("", server.Needs(auth.NetworksCreate), a.createNetwork).Rehearses(),
		server.Get("/:name", server.Needs(auth.NetworksView), a.getNetwork),
		server.Put("/:name", server.Needs(auth.NetworksUpdate), a.putNetwork).Rehearses(),
		server.Delete("/:name", server.Needs(auth.NetworksDelete), a.deleteNetwork).Rehearses(),
	)
}

func networkOf(n *players.Network) network {
	return network{
		Name: n.Name, networkFields: networkFieldsOf(*n), Revision: n.ModRev, UpdatedBy: n.By, CreatedAt: n.CreatedAt, UpdatedAt: n.UpdatedAt,
	}
}

func networkFieldsOf(n players.Network) networkFields {
	return networkFields{
		Description: n.Description, LobbyGroup: n.LobbyGroup, FallbackGroups: *resource.List(n.FallbackGroups), MemberGroups: *resource.List(n.MemberGroups),
		ProxyGroups: *resource.List(n.ProxyGroups), KickMessage: n.KickMessage, BedrockLobbyGroup: n.BedrockLobbyGroup, BedrockFallbackGroups: *resource.List(n.BedrockFallbackGroups),
	}
}

// given returns the network that the client describes.
func (f networkFields) given(name string) players.Network {
	return players.Network{
		Name: name, Description: f.Description, LobbyGroup: f.LobbyGroup, FallbackGroups: f.FallbackGroups, MemberGroups: f.MemberGroups,
		ProxyGroups: f.ProxyGroups, KickMessage: f.KickMessage, BedrockLobbyGroup: f.BedrockLobbyGroup, BedrockFallbackGroups: f.BedrockFallbackGroups,
	}
}

func (a *API) listNetworks(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	all := make([]*players.Network, 0, s.Networks.Len())
	for _, n := range s.Networks.All() {
		all = append(all, n)
	}
	server.SendPage(c, all, resource.LargePage, networkOf)
}

func (a *API) getNetwork(c *gin.Context) {
	n, ok := a.cfg.Operations.Snapshot().Networks.Get(c.Param("name"))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "there is no network with that name"))
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
	a.writeNetwork(c, clusterops.NetworkWrite{Network: b.given(*b.Name), Create: true})
}

func (a *API) putNetwork(c *gin.Context) {
	var b networkBody
	name, rev, ok := resource.BindRecord(c, "network", &b, func() *string { return b.Name })
	if ok {
		a.writeNetwork(c, clusterops.NetworkWrite{Network: b.given(name), IfMatch: rev})
	}
}

func (a *API) writeNetwork(c *gin.Context, w clusterops.NetworkWrite) {
	w.DryRun = server.DryRun(c)
	done, err := a.cfg.Operations.WriteNetwork(c.Request.Context(), server.Actor(c), w)
	switch {
	case err != nil:
		server.Fail(c, err)
	case w.DryRun:
		c.JSON(http.StatusOK, networkDryRunOf(done))
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

func networkDryRunOf(w clusterops.NetworkWritten) gin.H {
	var before players.Network
	if w.Before != nil {
		before = *w.Before
	}
	return resource.DryRun("network", w.After.Name, w.Before != nil, resource.Differences(networkFieldsOf(before), networkFieldsOf(w.After)))
}

func (a *API) deleteNetwork(c *gin.Context) {
	resource.DeleteRecord(c, a.cfg.Operations.DeleteNetwork, gin.H{"dryRun": true, "action": "delete", "network": c.Param("name"), "diff": []resource.FieldChange{}})
}
