package fleet

import (
	"time"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
)

// Bounds of messages between players.
const (
	// MaxMessages bounds those that wait, and MaxMessagesTo those that wait for one player.
	MaxMessages   = 10_000
	MaxMessagesTo = 100
	// MessageLife is how long one waits.
	MessageLife = 24 * time.Hour
	// MaxMessage is its length, in bytes, and MaxReplyTo that of what it answers to.
	MaxMessage = 1024
	MaxReplyTo = 64
)

// PlayerMessage is what one player tells another, for the proxy the other came through.
// A gateway writes it, and removes it when a proxy says that the player has it; its key goes with
// its life.
type PlayerMessage struct {
	Rev
	ID       string   `json:"id"`
	From     PlayerID `json:"from"`
	FromName string   `json:"fromName"`
	To       PlayerID `json:"to"`
	ToName   string   `json:"toName"`
	Content  string   `json:"content"`
	// ReplyTo is the message it answers to, as who sent it says; empty for none.
	ReplyTo string    `json:"replyTo,omitempty"`
	At      time.Time `json:"at"`
}

// Validate refuses what is no message. Malformed names the field.
func (m PlayerMessage) Validate() error {
	for _, text := range []struct {
		field, value string
		least, most  int
	}{
		{"fromName", m.FromName, 0, MaxPlayerName},
		{"toName", m.ToName, 0, MaxPlayerName},
		{"content", m.Content, 1, MaxMessage},
		{"replyToId", m.ReplyTo, 0, MaxReplyTo},
	} {
		if n := len(text.value); n < text.least || n > text.most || HasControl(text.value) || !utf8.ValidString(text.value) {
			e := errs.Field(text.field, "must be %d to %d bytes without control characters; it is %s", text.least, text.most, quoted(text.value))
			e.Kind = errs.Malformed
			return e
		}
	}
	return nil
}
