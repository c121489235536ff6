package events

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// TicketTTL is how long a ticket is good for.
const TicketTTL = 30 * time.Second

// ticketBytes is how much chance is in a ticket.
const ticketBytes = 24

// Tickets hands out single-use tickets for streams, for clients that cannot send
// headers. They live in etcd, so each is good once on whichever replica it is
// shown to, and go by themselves.
type Tickets struct {
	client *store.Client
	ttl    time.Duration
	// reached waits until this replica knows what the one knew that issued a ticket.
	reached func(ctx context.Context, rev int64) error
}

// NewTickets makes tickets that live for ttl; 0 means TicketTTL. Whose ticket it is is judged
// by what the replica knows of the fleet: reached waits until that is as new as the ticket.
func NewTickets(c *store.Client, ttl time.Duration, reached func(ctx context.Context, rev int64) error) *Tickets {
	if ttl == 0 {
		ttl = TicketTTL
	}
	return &Tickets{client: c, ttl: ttl, reached: reached}
}

// TTL is how long a ticket is good for.
func (t *Tickets) TTL() time.Duration { return t.ttl }

// Issue makes a ticket with which its user may open its stream once.
func (t *Tickets) Issue(ctx context.Context, record fleet.Ticket) (string, error) {
	secret := make([]byte, ticketBytes)
	_, _ = rand.Read(secret) // never fails
	ticket := base64.RawURLEncoding.EncodeToString(secret)
	if err := store.CreateFor(ctx, t.client, ticketKey(ticket), record, t.ttl); err != nil {
		return "", errs.Wrap("events.Issue", err)
	}
	return ticket, nil
}

// Redeem uses a ticket up and returns its record. Unauthenticated when it was used,
// has expired, was never issued or is for another stream (which uses it up too).
func (t *Tickets) Redeem(ctx context.Context, ticket, stream string) (fleet.Ticket, error) {
	return t.Use(ctx, ticket, func(r fleet.Ticket) bool { return r.Stream == stream })
}

// Use is Redeem where more than one kind of ticket opens a stream: opens says whether
// this one does.
func (t *Tickets) Use(ctx context.Context, ticket string, opens func(fleet.Ticket) bool) (fleet.Ticket, error) {
	refused := errs.New(errs.Unauthenticated, "the ticket is used, expired or not for this stream: ask for a new one")
	if raw, err := base64.RawURLEncoding.DecodeString(ticket); err != nil || len(raw) != ticketBytes {
		return fleet.Ticket{}, refused
	}
	key := ticketKey(ticket)
	record, err := store.Get(ctx, t.client, key)
	switch {
	case errs.Is(err, errs.NotFound):
		return fleet.Ticket{}, refused
	case err != nil:
		return fleet.Ticket{}, errs.Wrap("events.Use", err)
	}
	if err := t.reached(ctx, record.ModRev); err != nil { // it is not used up
		return fleet.Ticket{}, errs.Wrap("events.Use", err)
	}
	_, err = t.client.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(key, record.ModRev)}})
	switch {
	case errs.Is(err, errs.Conflict): // somebody was faster
		return fleet.Ticket{}, refused
	case err != nil:
		return fleet.Ticket{}, errs.Wrap("events.Use", err)
	case !opens(record):
		return fleet.Ticket{}, refused
	}
	return record, nil
}

// ticketKey is where a ticket's record stands: under its hash, so that who reads the store can use none.
func ticketKey(ticket string) store.Key[fleet.Ticket] {
	sum := sha256.Sum256([]byte(ticket))
	return store.TicketKey(hex.EncodeToString(sum[:]))
}
