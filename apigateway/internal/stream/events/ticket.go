package events

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// TicketTTL is the default lifetime of a ticket.
const TicketTTL = 30 * time.Second

// ticketBytes is the number of random bytes of a ticket.
const ticketBytes = 24

// Tickets issues single-use tickets for streams, for clients that cannot send headers. They are stored
// in etcd with a lease, so each works once, on any replica, and expires by itself.
type Tickets struct {
	client *store.Client
	ttl    time.Duration
	// reached waits until this replica's view has seen a revision.
	reached func(ctx context.Context, rev int64) error
}

// NewTickets returns Tickets with lifetime ttl; 0 means TicketTTL. reached waits until the view is as
// new as the ticket, because the view decides what the ticket's owner may do.
func NewTickets(c *store.Client, ttl time.Duration, reached func(ctx context.Context, rev int64) error) *Tickets {
	if ttl == 0 {
		ttl = TicketTTL
	}
	return &Tickets{client: c, ttl: ttl, reached: reached}
}

// Issue creates a ticket that opens its stream once.
func (t *Tickets) Issue(ctx context.Context, record account.Ticket) (string, error) {
	secret := make([]byte, ticketBytes)
	_, _ = rand.Read(secret) // never fails
	ticket := base64.RawURLEncoding.EncodeToString(secret)
	if err := store.CreateFor(ctx, t.client, ticketKey(ticket), record, t.ttl); err != nil {
		return "", errs.Wrap("events.Issue", err)
	}
	return ticket, nil
}

// Send answers a request with a new ticket.
func (t *Tickets) Send(c *gin.Context, record account.Ticket) {
	var ticket string
	err := txn.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		ticket, err = t.Issue(ctx, record)
		return err
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, gin.H{"ticket": ticket, "expiresInSeconds": int(t.ttl / time.Second)})
}

// Redeem consumes a ticket and returns its record. It returns Unauthenticated if the ticket was used,
// has expired, does not exist or is for another stream (which also consumes it).
func (t *Tickets) Redeem(ctx context.Context, ticket, stream string) (account.Ticket, error) {
	return t.Use(ctx, ticket, func(r account.Ticket) bool { return r.Stream == stream })
}

// Use is Redeem for streams that several kinds of ticket open: opens decides whether this one does.
// Like Redeem it waits for etcd as long as txn.InTime allows.
func (t *Tickets) Use(ctx context.Context, ticket string, opens func(account.Ticket) bool) (record account.Ticket, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) error {
		record, err = t.use(ctx, ticket, opens)
		return err
	})
	return record, err
}

func (t *Tickets) use(ctx context.Context, ticket string, opens func(account.Ticket) bool) (account.Ticket, error) {
	refused := errs.New(errs.Unauthenticated, "the ticket is used, expired or not for this stream: ask for a new one")
	if raw, err := base64.RawURLEncoding.DecodeString(ticket); err != nil || len(raw) != ticketBytes {
		return account.Ticket{}, refused
	}
	key := ticketKey(ticket)
	record, err := store.Get(ctx, t.client, key)
	switch {
	case errs.Is(err, errs.NotFound):
		return account.Ticket{}, refused
	case err != nil:
		return account.Ticket{}, errs.Wrap("events.Use", err)
	}
	if err := t.reached(ctx, record.ModRev); err != nil { // the ticket stays valid
		return account.Ticket{}, errs.Wrap("events.Use", err)
	}
	_, err = t.client.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(key, record.ModRev)}})
	switch {
	case errs.Is(err, errs.Conflict): // another request used the ticket
		return account.Ticket{}, refused
	case err != nil:
		return account.Ticket{}, errs.Wrap("events.Use", err)
	case !opens(record):
		return account.Ticket{}, refused
	}
	return record, nil
}

// ticketKey returns the key of a ticket's record. It uses a hash, so that the store does not reveal
// usable tickets.
func ticketKey(ticket string) keys.Key[account.Ticket] {
	sum := sha256.Sum256([]byte(ticket))
	return keys.Ticket(hex.EncodeToString(sum[:]))
}
