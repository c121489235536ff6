package instanceops

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// SendMessage stores a valid message for its player and returns its id, which is higher than all
// earlier ones. Messages between players are not audited. Exhausted when too many messages wait.
func (o *Instances) SendMessage(ctx context.Context, m players.PlayerMessage) (id string, err error) {
	s, waiting := o.Snapshot(), 0
	for _, other := range s.Messages.All() {
		if other.To == m.To {
			waiting++
		}
	}
	if waiting >= players.MaxMessagesTo || s.Messages.Len() >= players.MaxMessages {
		return "", errs.New(errs.Exhausted, "%d messages wait for this player, and %d for all: no more are kept until some were delivered", waiting, s.Messages.Len())
	}
	now := o.Now()
	m.ID, m.At = ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()).String(), now
	err = txn.InTime(ctx, func(ctx context.Context) error {
		lease, err := o.Store.Grant(ctx, players.MessageLife)
		if err != nil {
			return errs.Wrap("operate.SendMessage", err)
		}
		return o.conclude(ctx, store.CreateOn(lease, keys.Message(m.ID), m))
	})
	return m.ID, err
}

const (
	// noticeLife is how long an undelivered notice is kept. Later it would only confuse.
	noticeLife = time.Minute
	// noticeFrom and noticeName are the sender of a notice in the words of plugins.
	noticeFrom players.PlayerID = "00000000-0000-0000-0000-000000000000"
	noticeName string           = "Server"
)

// Notify stores a message of the system to a player. Several gateways may send the same one; about
// identifies it, with the time. Exhausted when too many messages wait.
func (o *Instances) Notify(ctx context.Context, to players.Player, about, text string, at time.Time) error {
	if n := o.Snapshot().Messages.Len(); n >= players.MaxMessages {
		return errs.New(errs.Exhausted, "%d messages wait: no more are kept until some were delivered", n)
	}
	sum := sha256.Sum256([]byte(about + "/" + string(to.ID)))
	var id ulid.ULID
	if err := errors.Join(id.SetTime(ulid.Timestamp(at)), id.SetEntropy(sum[:10])); err != nil {
		return errs.Wrap("operate.Notify", err)
	}
	m := players.PlayerMessage{ID: id.String(), From: noticeFrom, FromName: noticeName, To: to.ID, ToName: to.Name, Content: text, At: at}
	return txn.InTime(ctx, func(ctx context.Context) error {
		lease, err := o.Store.Grant(ctx, noticeLife)
		if err != nil {
			return errs.Wrap("operate.Notify", err)
		}
		if err = o.conclude(ctx, store.CreateOn(lease, keys.Message(m.ID), m)); errs.Is(err, errs.AlreadyExists) {
			return nil
		}
		return err
	})
}

// AckMessage removes a delivered message. mine reports whether the caller may acknowledge messages
// for a player. NotFound when there is no such message for such a player.
func (o *Instances) AckMessage(ctx context.Context, id string, mine func(players.PlayerID) bool) error {
	return txn.InTime(ctx, func(ctx context.Context) error {
		m, ok := o.Snapshot().Messages.Get(id)
		if !ok || !mine(m.To) {
			return errs.New(errs.NotFound, "no message %s waits", txn.Clip(id))
		}
		return o.conclude(ctx, store.Remove(keys.Message(id), m.ModRev))
	})
}
