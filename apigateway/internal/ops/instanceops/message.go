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
	"github.com/orreryhq/orrery/libs/store/view"
)

// SendMessage stores a valid message for its player and returns its id, which is higher than all
// earlier ones. Messages between players are not audited. Exhausted when too many messages wait.
func (o *Instances) SendMessage(ctx context.Context, m players.PlayerMessage) (id string, err error) {
	if err := mayWait(o.Snapshot(), m.To); err != nil {
		return "", err
	}
	m.ID, m.At = newMessage(o.Now())
	err = txn.InTime(ctx, func(ctx context.Context) error {
		lease, err := o.Store.Grant(ctx, players.MessageLife)
		if err != nil {
			return errs.Wrap("operate.SendMessage", err)
		}
		return o.conclude(ctx, store.CreateOn(lease, keys.Message(m.ID), m))
	})
	return m.ID, err
}

// MessagePlayer stores a message of a user to a connected player. Its proxy delivers it within noticeLife.
// Later it is dropped. Conflict without a proxy, Exhausted when too many messages wait.
func (o *Instances) MessagePlayer(ctx context.Context, by txn.Actor, to players.Player, content string) (id string, err error) {
	m := players.PlayerMessage{From: noticeFrom, FromName: noticeName, To: to.ID, ToName: to.Name, Content: content}
	if err := m.Validate(); err != nil {
		return "", errs.Field(errs.FieldOf(err), "%s", errs.MessageOf(err))
	}
	if to.Proxy == "" {
		return "", errs.New(errs.Conflict, "%s is on a server without a proxy, and proxies deliver messages: send a command to the server's console instead", to.Name)
	}
	err = txn.InTime(ctx, func(ctx context.Context) error {
		lease, err := o.Store.Grant(ctx, noticeLife)
		if err != nil {
			return errs.Wrap("operate.MessagePlayer", err)
		}
		_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
			if err := mayWait(s, m.To); err != nil {
				return txn.Change{}, err
			}
			m.ID, m.At = newMessage(o.Now())
			return txn.Change{
				Writes: []store.Write{store.CreateOn(lease, keys.Message(m.ID), m)},
				Audit:  txn.Entry{Action: "player.message", Resource: "player", ID: string(m.To), Details: content},
			}, nil
		})
		return err
	})
	return m.ID, err
}

// mayWait returns Exhausted when too many messages wait for a player or in all.
func mayWait(s *view.Snapshot, to players.PlayerID) error {
	waiting := 0
	for _, other := range s.Messages.All() {
		if other.To == to {
			waiting++
		}
	}
	if waiting >= players.MaxMessagesTo || s.Messages.Len() >= players.MaxMessages {
		return errs.New(errs.Exhausted, "%d messages wait for this player, and %d for all: no more are kept until some were delivered", waiting, s.Messages.Len())
	}
	return nil
}

// newMessage returns an id that is higher than all earlier ones, and its time.
func newMessage(now time.Time) (id string, at time.Time) {
	return ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()).String(), now
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
