package instanceops

import (
	"context"

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
