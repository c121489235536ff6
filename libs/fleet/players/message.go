package players

import (
	"time"
	"unicode/utf8"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Limits of messages between players.
const (
	// MaxMessages bounds the undelivered messages, MaxMessagesTo those to one player.
	MaxMessages   = 10_000
	MaxMessagesTo = 100
	// MessageLife is how long an undelivered message is kept.
	MessageLife = 24 * time.Hour
	// MaxMessage bounds the content, in bytes. MaxReplyTo bounds the reply ID.
	MaxMessage = 1024
	MaxReplyTo = 64
)

// PlayerMessage is a message from one player to another. The proxy of the recipient delivers it. A
// gateway writes it and removes it when the proxy confirms the delivery. Its key expires after
// MessageLife.
type PlayerMessage struct {
	record.Rev
	ID       string   `json:"id"`
	From     PlayerID `json:"from"`
	FromName string   `json:"fromName"`
	To       PlayerID `json:"to"`
	ToName   string   `json:"toName"`
	Content  string   `json:"content"`
	// ReplyTo is the ID of the message it replies to, as given by the sender. It may be empty.
	ReplyTo string    `json:"replyTo,omitempty"`
	At      time.Time `json:"at"`
}

// Validate returns a Malformed error that names the field if the message is not acceptable.
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
		if n := len(text.value); n < text.least || n > text.most || validate.HasControl(text.value) || !utf8.ValidString(text.value) {
			e := errs.Field(text.field, "must be %d to %d bytes without control characters, not %s", text.least, text.most, quoted(text.value))
			e.Kind = errs.Malformed
			return e
		}
	}
	return nil
}
