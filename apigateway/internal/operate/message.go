package operate

import (
	"context"

	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// SendMessage keeps a valid message for its player and returns its id, which is higher than
// those of messages before. What players tell each other is in no audit. Exhausted when too
// many wait.
func (o *Operations) SendMessage(ctx context.Context, m fleet.PlayerMessage) (id string, err error) {
	s, waiting := o.Snapshot(), 0
	for _, other := range s.Messages.All() {
		if other.To == m.To {
			waiting++
		}
	}
	if waiting >= fleet.MaxMessagesTo || s.Messages.Len() >= fleet.MaxMessages {
		return "", errs.New(errs.Exhausted, "%d messages wait for this player, and %d for all: no more are kept until some were delivered", waiting, s.Messages.Len())
	}
	now := o.now()
	m.ID, m.At = ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()).String(), now
	err = InTime(ctx, func(ctx context.Context) error {
		lease, err := o.cfg.Store.Grant(ctx, fleet.MessageLife)
		if err != nil {
			return errs.Wrap("operate.SendMessage", err)
		}
		return o.conclude(ctx, store.CreateOn(lease, store.MessageKey(m.ID), m))
	})
	return m.ID, err
}

// AckMessage removes a message that its player has, who may say so of whom mine tells. NotFound
// when there is none of that id and such a player.
func (o *Operations) AckMessage(ctx context.Context, id string, mine func(fleet.PlayerID) bool) error {
	return InTime(ctx, func(ctx context.Context) error {
		m, ok := o.Snapshot().Messages.Get(id)
		if !ok || !mine(m.To) {
			return errs.New(errs.NotFound, "no message %s waits", clip(id))
		}
		return o.conclude(ctx, store.Remove(store.MessageKey(id), m.ModRev))
	})
}
