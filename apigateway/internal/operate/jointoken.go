package operate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"math/big"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// MaxJoinTokenLife is how long a join token is good at most.
	MaxJoinTokenLife = 30 * 24 * time.Hour
	// maxJoinTokens bounds those that are kept.
	maxJoinTokens = 1000
	// keepExpired is how long one is shown that has expired.
	keepExpired = 24 * time.Hour
	// joinPrefix marks join tokens, so that scanners of leaked secrets find them; joinDigits
	// of base 36 follow.
	joinPrefix = "pxr_"
	joinDigits = 32
)

// CreateJoinToken makes a token for a host to join as a node, good for so long. The token
// itself is kept nowhere. Conflict when there is such a node already, or a token for it that
// is good; Exhausted when there are too many; Invalid names the field at fault.
func (o *Operations) CreateJoinToken(ctx context.Context, by Actor, node fleet.NodeID, life time.Duration) (token string, t fleet.JoinToken, err error) {
	if err := node.Validate(); err != nil {
		return "", t, errs.Field("nodeId", "%s", errs.MessageOf(err))
	}
	if life < time.Second || life > MaxJoinTokenLife {
		return "", t, errs.Field("ttlSeconds", "must be between a second and 30 days")
	}
	token = newJoinToken()
	sum := sha256.Sum256([]byte(token))
	rev, err := o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		now := o.now()
		have, pending := s.JoinTokens.Get(node)
		switch _, known := s.Nodes.Get(node); {
		case known:
			return change{}, errs.New(errs.Conflict, "node %s has joined already: delete it first, or choose another id", node)
		case pending && !have.Expired(now):
			return change{}, errs.New(errs.Conflict, "a token for node %s is good until %s: revoke it first", node, have.ExpiresAt.Format(time.RFC3339))
		case !pending && s.JoinTokens.Len() >= maxJoinTokens:
			return change{}, errs.New(errs.Exhausted, "there are %d join tokens, the most there may be: revoke some", maxJoinTokens)
		}
		t = fleet.JoinToken{
			ID: strings.ToLower(ulid.Make().String()), Node: node, Hash: hex.EncodeToString(sum[:]), By: by.User, CreatedAt: now, ExpiresAt: now.Add(life),
		}
		var rev int64
		if pending {
			rev = have.ModRev
		}
		return change{
			guards: []store.Guard{store.Missing(store.NodeKey(node))},
			writes: []store.Write{store.Replace(store.JoinTokenKey(node), t, rev)},
			audit:  entry{action: "join-token.create", resource: "join-token", id: t.ID, details: string(node), after: joinTokenRecord(t)},
		}, nil
	})
	t.ModRev = rev
	return token, t, err
}

// DeleteJoinToken ends a token. NotFound when there is none, MovedError when ifMatch, if it
// is not 0, is not its revision.
func (o *Operations) DeleteJoinToken(ctx context.Context, by Actor, id string, ifMatch int64) error {
	_, err := o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		for node, t := range s.JoinTokens.All() {
			if t.ID != id {
				continue
			}
			if err := unmoved("join token "+id, ifMatch, t.ModRev); err != nil {
				return change{}, err
			}
			return change{
				writes: []store.Write{store.Remove(store.JoinTokenKey(node), t.ModRev)},
				audit:  entry{action: "join-token.delete", resource: "join-token", id: id, details: string(node), before: joinTokenRecord(*t)},
			}, nil
		}
		return change{}, errs.New(errs.NotFound, "there is no such join token")
	})
	return err
}

// PruneJoinTokens removes the records of join tokens that expired more than a day ago, and of
// those whose node has joined.
func (o *Operations) PruneJoinTokens(ctx context.Context) error {
	s, limit := o.Snapshot(), o.now().Add(-keepExpired)
	for node, t := range s.JoinTokens.All() {
		if _, joined := s.Nodes.Get(node); !joined && t.ExpiresAt.After(limit) {
			continue
		}
		_, err := o.cfg.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(store.JoinTokenKey(node), t.ModRev)}})
		if err != nil && !errs.Is(err, errs.Conflict) {
			return errs.Wrap("operate.PruneJoinTokens", err)
		}
	}
	return nil
}

// joinTokenRecord is what the audit keeps of a join token: nothing that would find it.
func joinTokenRecord(t fleet.JoinToken) any {
	return struct {
		Node      fleet.NodeID `json:"node"`
		ExpiresAt time.Time    `json:"expiresAt"`
	}{t.Node, t.ExpiresAt}
}

// newJoinToken is joinPrefix and random digits.
func newJoinToken() string {
	secret := make([]byte, joinDigits) // more than the digits hold
	_, _ = rand.Read(secret)           // never fails
	digits := new(big.Int).SetBytes(secret).Text(36)
	return joinPrefix + digits[len(digits)-joinDigits:]
}
