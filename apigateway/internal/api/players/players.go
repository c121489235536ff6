// Package players serves connected players.
package players

import (
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/instanceops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/workload/presence"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config holds what the handlers need.
type Config struct {
	Operations *ops.Operations
	Players    *presence.Table
}

// API holds the handlers.
type API struct{ cfg Config }

// New returns the handlers.
func New(cfg Config) *API { return &API{cfg: cfg} }

// player is a player in an answer. Unknown fields are empty.
type player struct {
	ID              players.PlayerID `json:"id"`
	Name            string           `json:"name"`
	CurrentInstance string           `json:"currentInstance"`
	CurrentGroup    fleet.GroupName  `json:"currentGroup"`
	ProxyInstance   string           `json:"proxyInstance"`
	ConnectedSince  time.Time        `json:"connectedSince"`
	Edition         string           `json:"edition"`
}

// Routes returns the routes of the package.
func (a *API) Routes() []server.Route {
	return server.Under("/api/v1/players",
		server.Get("", server.Needs(auth.PlayersView), a.listPlayers).Among(),
		server.Get("/:uuid", server.Needs(auth.PlayersView), a.getPlayer).In(a.inPath()),
		server.Post("/:uuid/transfer", server.Needs(auth.PlayersTransfer), a.transfer).In(a.inPath()),
		server.Post("/:uuid/message", server.Needs(auth.PlayersMessage), a.message).In(a.inPath()),
	)
}

// groupOf returns the group of the server that a player is on, or of the proxy without one.
func groupOf(s *view.Snapshot, p players.Player) fleet.GroupName {
	if i, ok := s.Instances.Get(p.Server); ok {
		return i.Intent.Group
	}
	if i, ok := s.Instances.Get(p.Proxy); ok && p.Group == "" {
		return i.Intent.Group
	}
	return p.Group
}

// inPath locates a player that is in the path as :uuid.
func (a *API) inPath() *server.Locator {
	return &server.Locator{What: "player", Group: func(s *view.Snapshot, c *gin.Context) (fleet.GroupName, bool) {
		id, err := players.ParsePlayerID(c.Param("uuid"))
		if err != nil {
			return "", false
		}
		p, ok := a.cfg.Players.Of(s, id)
		return groupOf(s, p), ok
	}}
}

// playersFor returns a function that shows players to a caller, without proxies that the caller must
// not see.
func playersFor(c *gin.Context, s *view.Snapshot) func(players.Player) player {
	sees := server.Sight(c, auth.PlayersView)
	return func(p players.Player) player {
		out := player{ID: p.ID, Name: p.Name, CurrentGroup: p.Group, ConnectedSince: p.Since, Edition: p.Edition}
		if i, ok := s.Instances.Get(p.Server); ok {
			out.CurrentInstance, out.CurrentGroup = i.Intent.Name, i.Intent.Group
		}
		if i, ok := s.Instances.Get(p.Proxy); ok && (sees == nil || sees(i.Intent.Group)) {
			out.ProxyInstance = i.Intent.Name
		}
		return out
	}
}

func (a *API) listPlayers(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	all := a.cfg.Players.All(s)
	if sees := server.Sight(c, auth.PlayersView); sees != nil {
		all = slices.DeleteFunc(all, func(p players.Player) bool { return !sees(groupOf(s, p)) })
	}
	server.SendPage(c, all, resource.LargePage, playersFor(c, s))
}

// player returns the player that the path names. It returns false if it answered the request.
func (a *API) player(c *gin.Context) (p players.Player, ok bool) {
	id, err := players.ParsePlayerID(c.Param("uuid"))
	if err == nil {
		if p, ok = a.cfg.Players.Of(a.cfg.Operations.Snapshot(), id); !ok {
			err = errs.New(errs.NotFound, "no player %s is connected", id)
		}
	}
	if err != nil {
		server.Fail(c, err)
	}
	return p, err == nil
}

func (a *API) getPlayer(c *gin.Context) {
	if p, ok := a.player(c); ok {
		c.JSON(http.StatusOK, playersFor(c, a.cfg.Operations.Snapshot())(p))
	}
}

// transfer sends a player to another instance through the player's proxy.
func (a *API) transfer(c *gin.Context) {
	var b struct {
		TargetInstanceID string `json:"targetInstanceId"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.TargetInstanceID == "" {
		server.Fail(c, errs.Field("targetInstanceId", "is missing: name the instance to send the player to"))
		return
	}
	p, ok := a.player(c)
	if !ok {
		return
	}
	if i, ok := a.cfg.Operations.Snapshot().Find(b.TargetInstanceID); ok && !server.AllowedIn(c, i.Intent.Group, auth.PlayersTransfer) {
		server.Fail(c, instanceops.NoInstance(b.TargetInstanceID))
		return
	}
	to, err := a.cfg.Operations.Transfer(c.Request.Context(), server.Actor(c), p.ID, b.TargetInstanceID)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "transfer_queued", "playerId": p.ID, "targetInstanceId": to.Intent.Name})
}

// message sends a message to a player through the player's proxy.
func (a *API) message(c *gin.Context) {
	var b struct {
		Content string `json:"content"`
	}
	if !server.Bind(c, &b) {
		return
	}
	p, ok := a.player(c)
	if !ok {
		return
	}
	id, err := a.cfg.Operations.MessagePlayer(c.Request.Context(), server.Actor(c), p, b.Content)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusCreated, gin.H{"id": id, "status": "QUEUED"})
}
