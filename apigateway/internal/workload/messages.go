package workload

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// maxPending limits the messages of a response. The others follow once these were delivered.
const maxPending = 500

// message is a message between players in the format of existing plugins.
type message struct {
	ID        string           `json:"id"`
	FromUUID  players.PlayerID `json:"fromUuid"`
	FromName  string           `json:"fromName"`
	ToUUID    players.PlayerID `json:"toUuid"`
	ToName    string           `json:"toName"`
	Content   string           `json:"content"`
	ReplyToID *string          `json:"replyToId"` // null if it is not a reply
	CreatedAt time.Time        `json:"createdAt"`
}

// sendMessage stores a message to another player for a day.
func (a *API) sendMessage(c *gin.Context) {
	var b struct {
		FromUUID  string          `json:"fromUuid"`
		FromName  string          `json:"fromName"`
		ToUUID    string          `json:"toUuid"`
		ToName    string          `json:"toName"`
		Content   string          `json:"content"`
		ReplyToID json.RawMessage `json:"replyToId"`
	}
	if !bind(c, &b) {
		return
	}
	m := players.PlayerMessage{FromName: b.FromName, ToName: b.ToName, Content: b.Content}
	var err error
	if m.ReplyTo, err = replyTo(b.ReplyToID); err == nil {
		m.From, err = playerID("fromUuid", b.FromUUID)
	}
	if err == nil {
		m.To, err = playerID("toUuid", b.ToUUID)
	}
	if err == nil {
		err = m.Validate()
	}
	if err == nil {
		err = a.maySpeak(server.OwnInstance(c), m.From)
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	if !a.handOver(c, client.Heartbeat{}) {
		return
	}
	id, err := a.cfg.Operations.SendMessage(c.Request.Context(), m)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusCreated, gin.H{"id": id, "status": "QUEUED"})
}

// replyTo parses the ID of the message that is replied to. PrexorCloud's plugins send a number but read
// a string. "" means none.
func replyTo(raw json.RawMessage) (string, error) {
	var id any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if len(raw) > 0 {
		_ = d.Decode(&id) // never fails: the body was already decoded
	}
	switch id := id.(type) {
	case nil:
		return "", nil
	case string:
		return id, nil
	case json.Number:
		return id.String(), nil
	}
	return "", &errs.Error{Kind: errs.Malformed, Field: "replyToId", Message: "must be the id of a message, a text or a number"}
}

// maySpeak returns Conflict if a player is on another server, unless the calling server reports the player
// too.
func (a *API) maySpeak(own fleet.InstanceID, id players.PlayerID) error {
	s := a.cfg.Operations.Snapshot()
	p, there := a.cfg.Players.Of(s, id)
	if !there || p.Server == "" || p.Server == own ||
		slices.ContainsFunc(s.PresencesOf(id), func(t players.Presence) bool { return t.By == own }) {
		return nil
	}
	return errs.New(errs.Conflict, "player %s is on another server, and only that server can send the player's messages: retry in a moment if the player has just arrived", id)
}

// pendingMessages lists messages to players who came through the calling proxy, oldest first.
func (a *API) pendingMessages(c *gin.Context) {
	s, own := a.cfg.Operations.Snapshot(), server.OwnInstance(c)
	mine, out := map[players.PlayerID]bool{}, []message{}
	for id, m := range s.Messages.All() {
		if _, asked := mine[m.To]; !asked {
			_, mine[m.To] = a.through(s, own, m.To)
		}
		if !mine[m.To] {
			continue
		}
		one := message{
			ID: id, FromUUID: m.From, FromName: m.FromName, ToUUID: m.To, ToName: m.ToName, Content: m.Content, CreatedAt: m.At,
		}
		if m.ReplyTo != "" {
			one.ReplyToID = &m.ReplyTo
		}
		if out = append(out, one); len(out) == maxPending {
			break
		}
	}
	c.JSON(http.StatusOK, out)
}

// ackMessage records the delivery of a message.
func (a *API) ackMessage(c *gin.Context) {
	if !a.handOver(c, client.Heartbeat{}) {
		return
	}
	s, own := a.cfg.Operations.Snapshot(), server.OwnInstance(c)
	err := a.cfg.Operations.AckMessage(c.Request.Context(), c.Param("id"), func(id players.PlayerID) bool { return !a.anothers(s, own, id) })
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "ok"})
}
