package workload

import (
	"context"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// queue records a transfer of a player to the instance that choose returns, after checking the sequence
// number, and answers.
func (a *API) queue(c *gin.Context, uuid string, choose func(context.Context, txn.Actor, players.Player) (*fleet.Instance, error)) {
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

// mayMove returns NotFound unless the instance may move a player: a proxy may move every player, a server
// those on itself and on its networks. It returns Conflict if both this server and one outside its
// networks report the player.
func mayMove(s *view.Snapshot, own fleet.InstanceID, id players.PlayerID, p players.Player, connected bool) error {
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

// claimedElsewhere reports whether a live server of another network reports the player and no proxy has
// sent the player away from it. The latest report alone proves nothing, because any server can report
// any player.
func claimedElsewhere(s *view.Snapshot, own fleet.InstanceID, id players.PlayerID, peers func(fleet.GroupName) bool) bool {
	told := s.PresencesOf(id)
	return slices.ContainsFunc(told, func(at players.Presence) bool {
		if at.Proxy || at.By == own || peers(groupOf(s, at.By)) || !s.Tells(at.By) {
			return false
		}
		return !slices.ContainsFunc(told, func(by players.Presence) bool {
			return by.Proxy && by.On != "" && by.On != at.By && s.Tells(by.By)
		})
	})
}

// transfer queues a transfer to another instance.
func (a *API) transfer(c *gin.Context) {
	var b struct {
		PlayerUUID       string `json:"playerUuid"`
		TargetInstanceID string `json:"targetInstanceId"`
	}
	if bind(c, &b) {
		a.queue(c, b.PlayerUUID, func(ctx context.Context, by txn.Actor, p players.Player) (*fleet.Instance, error) {
			return a.cfg.Operations.Transfer(ctx, by, p.ID, b.TargetInstanceID)
		})
	}
}

// transferToGroup queues a transfer to the instance of a group with the fewest players.
func (a *API) transferToGroup(c *gin.Context) {
	var b struct {
		PlayerUUID string          `json:"playerUuid"`
		Group      fleet.GroupName `json:"group"`
	}
	if bind(c, &b) {
		a.queue(c, b.PlayerUUID, func(ctx context.Context, by txn.Actor, p players.Player) (*fleet.Instance, error) {
			return a.cfg.Operations.TransferToGroup(ctx, by, p, b.Group)
		})
	}
}

// pendingTransfer is a player to move, with the target.
type pendingTransfer struct {
	PlayerUUID       players.PlayerID `json:"playerUuid"`
	TargetInstanceID string           `json:"targetInstanceId"`
	NodeID           fleet.NodeID     `json:"nodeId"`
	NodeAddress      string           `json:"nodeAddress"`
	Port             int              `json:"port"`
}

// through returns a player who came through a proxy, or whom no proxy reports. In the second case any
// proxy may be the right one.
func (a *API) through(s *view.Snapshot, proxy fleet.InstanceID, id players.PlayerID) (p players.Player, mine bool) {
	p, there := a.cfg.Players.Of(s, id)
	return p, there && (p.Proxy == "" || p.Proxy == proxy)
}

// anothers reports whether a player came through another proxy. For a player who left, or whom no proxy
// reports, any proxy may acknowledge.
func (a *API) anothers(s *view.Snapshot, proxy fleet.InstanceID, id players.PlayerID) bool {
	p, mine := a.through(s, proxy, id)
	return p.Proxy != "" && !mine
}

// pendingTransfers lists transfers of players who came through the calling proxy or whom no proxy reports.
func (a *API) pendingTransfers(c *gin.Context) {
	s, own := a.cfg.Operations.Snapshot(), server.OwnInstance(c)
	if text := c.Query("proxyId"); text != "" {
		if i, ok := s.Find(text); !ok || i.Intent.ID != own {
			server.Fail(c, errs.New(errs.Denied, "proxyId is another instance: a proxy can read only the transfers of its own players"))
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

// ackTransfer records that the proxy moved a player. If the player does not arrive within half a minute,
// the transfer is pending again. NotFound if the player came through another proxy.
func (a *API) ackTransfer(c *gin.Context) {
	id, err := players.ParsePlayerID(c.Param("uuid"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	if a.anothers(a.cfg.Operations.Snapshot(), server.OwnInstance(c), id) {
		server.Fail(c, errs.New(errs.NotFound, "player %s came through another proxy: only that proxy can acknowledge the transfer", id))
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
