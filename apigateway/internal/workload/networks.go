package workload

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/fleet"
)

// network is a network as shown to proxies.
type network struct {
	Name                  string            `json:"name"`
	Description           string            `json:"description"`
	LobbyGroup            fleet.GroupName   `json:"lobbyGroup"`
	FallbackGroups        []fleet.GroupName `json:"fallbackGroups"`
	MemberGroups          []fleet.GroupName `json:"memberGroups"`
	ProxyGroups           []fleet.GroupName `json:"proxyGroups"`
	KickMessage           string            `json:"kickMessage"`
	BedrockLobbyGroup     fleet.GroupName   `json:"bedrockLobbyGroup"`
	BedrockFallbackGroups []fleet.GroupName `json:"bedrockFallbackGroups"`
}

// networks lists all networks by name.
func (a *API) networks(c *gin.Context) {
	out := []network{}
	list := func(groups []fleet.GroupName) []fleet.GroupName { return append([]fleet.GroupName{}, groups...) }
	for _, n := range a.cfg.Operations.Snapshot().Networks.All() {
		out = append(out, network{
			Name: n.Name, Description: n.Description, LobbyGroup: n.LobbyGroup, FallbackGroups: list(n.FallbackGroups), MemberGroups: list(n.MemberGroups),
			ProxyGroups: list(n.ProxyGroups), KickMessage: n.KickMessage, BedrockLobbyGroup: n.BedrockLobbyGroup, BedrockFallbackGroups: list(n.BedrockFallbackGroups),
		})
	}
	c.JSON(http.StatusOK, out)
}
