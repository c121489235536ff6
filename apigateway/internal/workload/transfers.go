package workload

import (
	"context"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// queue notes that a player is to go where choose says, once the call's number is taken,
// and answers.
func (a *API) queue(c *gin.Context, uuid string, choose func(context.Context, operate.Actor, fleet.Player) (*fleet.Instance, error)) {
	id, err := playerID("playerUuid", uuid)
	if err != nil {
		server.Fail(c, err)
		return
	}
	s, own := a.cfg.Operations.Snapshot(), server.OwnInstance(c)
	p, ok := a.cfg.Players.Of(s, id)
	if err = mayMove(s, own, id, p, ok); err != nil {
		server.Fail(c, err)
		return
	}
	if !a.handOver(c, client.Heartbeat{}) {
		return
	}
	to, err := choose(c.Request.Context(), server.Actor(c), p)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "transfer_queued", "playerId": id, "targetInstanceId": to.Intent.Name})
}

// mayMove is NotFound unless an instance may have a player moved: a proxy every player, a
// server the players on itself and on its networks. It is Conflict when the server says that
// it has the player and a server outside of its networks does too.
func mayMove(s *view.Snapshot, own fleet.InstanceID, id fleet.PlayerID, p fleet.Player, connected bool) error {
	proxy := isProxy(s, own)
	switch {
	case !connected && proxy:
		return errs.New(errs.NotFound, "no player %s is connected", id)
	case proxy:
		return nil
	case !connected || !within(s, own)(p):
		return errs.New(errs.NotFound, "no player %s is on this server or on its networks", id)
	}
	if peers := peersOf(s, own); p.Server == own && claimedElsewhere(s, own, id, peers) {
		return errs.New(errs.Conflict, "player %s is on another server, outside of this one's networks: retry when the player has left it", id)
	}
	return nil
}

// claimedElsewhere reports whether a live server of a group that is no peer has a player, and no
// proxy has sent the player away from it. The latest word alone proves nothing: any server
// can say that any player has joined.
func claimedElsewhere(s *view.Snapshot, own fleet.InstanceID, id fleet.PlayerID, peers func(fleet.GroupName) bool) bool {
	told := s.PresencesOf(id)
	return slices.ContainsFunc(told, func(at fleet.Presence) bool {
		if at.Proxy || at.By == own || peers(groupOf(s, at.By)) || !s.Tells(at.By) {
			return false
		}
		return !slices.ContainsFunc(told, func(by fleet.Presence) bool {
			return by.Proxy && by.On != "" && by.On != at.By && s.Tells(by.By)
		})
	})
}

// transfer has a player sent to another instance.
func (a *API) transfer(c *gin.Context) {
	var b struct {
		PlayerUUID       string `json:"playerUuid"`
		TargetInstanceID string `json:"targetInstanceId"`
	}
	if bind(c, &b) {
		a.queue(c, b.PlayerUUID, func(ctx context.Context, by operate.Actor, p fleet.Player) (*fleet.Instance, error) {
			return a.cfg.Operations.Transfer(ctx, by, p.ID, b.TargetInstanceID)
		})
	}
}

// transferToGroup has a player sent to the instance of a group with the fewest players.
func (a *API) transferToGroup(c *gin.Context) {
	var b struct {
		PlayerUUID string          `json:"playerUuid"`
		Group      fleet.GroupName `json:"group"`
	}
	if bind(c, &b) {
		a.queue(c, b.PlayerUUID, func(ctx context.Context, by operate.Actor, p fleet.Player) (*fleet.Instance, error) {
			return a.cfg.Operations.TransferToGroup(ctx, by, p, b.Group)
		})
	}
}

// pendingTransfer is a player to be sent on, and where to.
type pendingTransfer struct {
	PlayerUUID       fleet.PlayerID `json:"playerUuid"`
	TargetInstanceID string         `json:"targetInstanceId"`
	NodeID           fleet.NodeID   `json:"nodeId"`
	NodeAddress      string         `json:"nodeAddress"`
	Port             int            `json:"port"`
}

// through is a player who came through a proxy; also one of whom no proxy tells, since any
// may be it.
func (a *API) through(s *view.Snapshot, proxy fleet.InstanceID, id fleet.PlayerID) (p fleet.Player, mine bool) {
	p, there := a.cfg.Players.Of(s, id)
	return p, there && (p.Proxy == "" || p.Proxy == proxy)
}

// anothers reports whether a player came through another proxy: of who has left, or of whom no
// proxy tells, any may say that something was done.
func (a *API) anothers(s *view.Snapshot, proxy fleet.InstanceID, id fleet.PlayerID) bool {
	p, mine := a.through(s, proxy, id)
	return p.Proxy != "" && !mine
}

// pendingTransfers are those of the players who came through the proxy that asks, and of
// those of whom no proxy tells.
func (a *API) pendingTransfers(c *gin.Context) {
	s, own := a.cfg.Operations.Snapshot(), server.OwnInstance(c)
	if text := c.Query("proxyId"); text != "" {
		if i, ok := s.Find(text); !ok || i.Intent.ID != own {
			server.Fail(c, errs.New(errs.Denied, "proxyId is another instance: a proxy is told of its own players only"))
			return
		}
	}
	now, out := a.cfg.Now(), []pendingTransfer{}
	for id, t := range s.Transfers.All() {
		to, ok := s.Instances.Get(t.Target)
		if !ok || to.State() != fleet.Online || !t.Pending(now) {
			continue
		}
		if p, mine := a.through(s, own, id); !mine || p.Server == t.Target {
			continue
		}
		one := pendingTransfer{PlayerUUID: id, TargetInstanceID: to.Intent.Name}
		one.NodeID, one.NodeAddress, one.Port = placeOf(s, to)
		out = append(out, one)
	}
	c.JSON(http.StatusOK, out)
}

// ackTransfer takes that the proxy has sent a player on. Who is not there in half a minute
// is pending again. NotFound when the player came through another proxy.
func (a *API) ackTransfer(c *gin.Context) {
	id, err := fleet.ParsePlayerID(c.Param("uuid"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	if a.anothers(a.cfg.Operations.Snapshot(), server.OwnInstance(c), id) {
		server.Fail(c, errs.New(errs.NotFound, "player %s came through another proxy: only that one sends the player on", id))
		return
	}
	if !a.handOver(c, client.Heartbeat{}) {
		return
	}
	if err := a.cfg.Operations.AckTransfer(c.Request.Context(), id); err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "ok"})
}
