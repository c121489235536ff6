package nodeops

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"math/big"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// MaxJoinTokenLife is the maximum lifetime of a join token.
	MaxJoinTokenLife = 30 * 24 * time.Hour
	// maxJoinTokens limits the number of stored join tokens.
	maxJoinTokens = 1000
	// keepExpired is how long expired join tokens are listed.
	keepExpired = 24 * time.Hour
	// joinPrefix makes join tokens recognizable to secret scanners. joinDigits digits of base 36 follow
	// it.
	joinPrefix = "pxr_"
	joinDigits = 32
)

// CreateJoinToken creates a token for a host to join as a node. Only a hash of it is stored.
// Conflict when the node exists or has a valid token already, Exhausted when there are too many
// tokens; Invalid names the wrong field.
func (o *Nodes) CreateJoinToken(ctx context.Context, by txn.Actor, node fleet.NodeID, life time.Duration) (token string, t cluster.JoinToken, err error) {
	if err := node.Validate(); err != nil {
		return "", t, errs.Field("nodeId", "%s", errs.MessageOf(err))
	}
	if life < time.Second || life > MaxJoinTokenLife {
		return "", t, errs.Field("ttlSeconds", "must be between a second and 30 days")
	}
	token = newJoinToken()
	sum := sha256.Sum256([]byte(token))
	rev, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		now := o.Now()
		have, pending := s.JoinTokens.Get(node)
		switch _, known := s.Nodes.Get(node); {
		case known:
			return txn.Change{}, errs.New(errs.Conflict, "node %s has joined already: delete it first, or choose another id", node)
		case pending && !have.Expired(now):
			return txn.Change{}, errs.New(errs.Conflict, "a token for node %s is good until %s: revoke it first", node, have.ExpiresAt.Format(time.RFC3339))
		case !pending && s.JoinTokens.Len() >= maxJoinTokens:
			return txn.Change{}, errs.New(errs.Exhausted, "there are %d join tokens, the most there may be: revoke some", maxJoinTokens)
		}
		t = cluster.JoinToken{
			ID: strings.ToLower(ulid.Make().String()), Node: node, Hash: hex.EncodeToString(sum[:]), By: by.User, CreatedAt: now, ExpiresAt: now.Add(life),
		}
		var rev int64
		if pending {
			rev = have.ModRev
		}
		return txn.Change{
			Guards: []store.Guard{store.Missing(keys.Node(node))},
			Writes: []store.Write{store.Replace(keys.JoinToken(node), t, rev)},
			Audit:  txn.Entry{Action: "join-token.create", Resource: "join-token", ID: t.ID, Details: string(node), After: joinTokenRecord(t)},
		}, nil
	})
	t.ModRev = rev
	return token, t, err
}

// DeleteJoinToken revokes a token. NotFound when it does not exist, MovedError when ifMatch is not
// 0 and not its revision.
func (o *Nodes) DeleteJoinToken(ctx context.Context, by txn.Actor, id string, ifMatch int64) error {
	_, err := o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		for node, t := range s.JoinTokens.All() {
			if t.ID != id {
				continue
			}
			if err := txn.CheckRevision("join token "+id, ifMatch, t.ModRev); err != nil {
				return txn.Change{}, err
			}
			return txn.Change{
				Writes: []store.Write{store.Remove(keys.JoinToken(node), t.ModRev)},
				Audit:  txn.Entry{Action: "join-token.delete", Resource: "join-token", ID: id, Details: string(node), Before: joinTokenRecord(*t)},
			}, nil
		}
		return txn.Change{}, errs.New(errs.NotFound, "there is no such join token")
	})
	return err
}

// PruneJoinTokens removes the records of join tokens that expired more than a day ago, and of
// those whose node has joined.
func (o *Nodes) PruneJoinTokens(ctx context.Context) error {
	s, limit := o.Snapshot(), o.Now().Add(-keepExpired)
	for node, t := range s.JoinTokens.All() {
		if _, joined := s.Nodes.Get(node); !joined && t.ExpiresAt.After(limit) {
			continue
		}
		_, err := o.Store.Commit(ctx, store.Txn{Writes: []store.Write{store.Remove(keys.JoinToken(node), t.ModRev)}})
		if err != nil && !errs.Is(err, errs.Conflict) {
			return errs.Wrap("operate.PruneJoinTokens", err)
		}
	}
	return nil
}

// joinTokenRecord is what the audit keeps of a join token: nothing that helps to guess it.
func joinTokenRecord(t cluster.JoinToken) any {
	return struct {
		Node      fleet.NodeID `json:"node"`
		ExpiresAt time.Time    `json:"expiresAt"`
	}{t.Node, t.ExpiresAt}
}

// newJoinToken returns joinPrefix and random digits.
func newJoinToken() string {
	secret := make([]byte, joinDigits) // more bytes than the digits need
	_, _ = rand.Read(secret)           // never fails
	digits := new(big.Int).SetBytes(secret).Text(36)
	return joinPrefix + digits[len(digits)-joinDigits:]
}
