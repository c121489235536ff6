package workload

import (
	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// playerID parses the UUID in a request field. It returns Malformed, naming the field.
func playerID(field, text string) (players.PlayerID, error) {
	id, err := players.ParsePlayerID(text)
	if err != nil {
		return "", &errs.Error{Kind: errs.Malformed, Field: field, Message: errs.MessageOf(err)}
	}
	return id, nil
}

// playerJoin records that a player is on the calling server or connected through the calling proxy, which
// may name the instance that it sent the player to.
func (a *API) playerJoin(c *gin.Context, proxy bool) {
	var b struct {
		UUID       string `json:"uuid"`
		Name       string `json:"name"`
		InstanceID string `json:"instanceId"`
		Group      string `json:"group"`
		Edition    string `json:"edition"`
	}
	if !bind(c, &b) {
		return
	}
	id, err := players.ParsePlayerID(b.UUID)
	if err != nil {
		server.Fail(c, err)
		return
	}
	p := players.Presence{Player: id, Name: b.Name, Proxy: proxy, Edition: b.Edition}
	if g := fleet.GroupName(b.Group); g.Validate() == nil {
		p.Group = g
	}
	if proxy {
		if on, ok := a.cfg.Operations.Snapshot().Find(b.InstanceID); ok && on.Intent.ID != server.OwnInstance(c) {
			p.On = on.Intent.ID
		}
	}
	if err := p.Validate(); err != nil {
		server.Fail(c, err)
		return
	}
	a.say(c, client.Heartbeat{Joined: &p})
}

// playerLeave records that a player left.
func (a *API) playerLeave(c *gin.Context) {
	var b struct {
		UUID string `json:"uuid"`
	}
	if !bind(c, &b) {
		return
	}
	id, err := players.ParsePlayerID(b.UUID)
	if err != nil {
		server.Fail(c, err)
		return
	}
	a.say(c, client.Heartbeat{Left: id})
}
