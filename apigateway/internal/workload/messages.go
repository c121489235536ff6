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
	"github.com/orreryhq/orrery/nodeagent/client"
)

// maxPending bounds the messages of one answer; the others come when these were delivered.
const maxPending = 500

// message is a message between players as known plugins read it.
type message struct {
	ID        string         `json:"id"`
	FromUUID  fleet.PlayerID `json:"fromUuid"`
	FromName  string         `json:"fromName"`
	ToUUID    fleet.PlayerID `json:"toUuid"`
	ToName    string         `json:"toName"`
	Content   string         `json:"content"`
	ReplyToID *string        `json:"replyToId"` // null when it answers to none
	CreatedAt time.Time      `json:"createdAt"`
}

// sendMessage takes what a player tells another. It waits for the other for a day.
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
	m := fleet.PlayerMessage{FromName: b.FromName, ToName: b.ToName, Content: b.Content}
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

// replyTo is the message that another answers to: PrexorCloud's plugins send a number, and read
// a text. "" is none.
func replyTo(raw json.RawMessage) (string, error) {
	var id any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if len(raw) > 0 {
		_ = d.Decode(&id) // it is a part of a body that was decoded
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

// maySpeak is Conflict when a player is on another server than the one that wants to send what
// the player says, and does not tell of the player itself.
func (a *API) maySpeak(own fleet.InstanceID, id fleet.PlayerID) error {
	s := a.cfg.Operations.Snapshot()
	p, there := a.cfg.Players.Of(s, id)
	if !there || p.Server == "" || p.Server == own ||
		slices.ContainsFunc(s.PresencesOf(id), func(t fleet.Presence) bool { return t.By == own }) {
		return nil
	}
	return errs.New(errs.Conflict, "player %s is on another server, which sends what the player says: who has just come here is known in a moment", id)
}

// pendingMessages are those for players who came through the proxy that asks, the oldest first.
func (a *API) pendingMessages(c *gin.Context) {
	s, own := a.cfg.Operations.Snapshot(), server.OwnInstance(c)
	mine, out := map[fleet.PlayerID]bool{}, []message{}
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

// ackMessage takes that a player has a message.
func (a *API) ackMessage(c *gin.Context) {
	if !a.handOver(c, client.Heartbeat{}) {
		return
	}
	s, own := a.cfg.Operations.Snapshot(), server.OwnInstance(c)
	err := a.cfg.Operations.AckMessage(c.Request.Context(), c.Param("id"), func(id fleet.PlayerID) bool { return !a.anothers(s, own, id) })
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "ok"})
}
