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
	"github.com/orreryhq/orrery/libs/pki"
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

// CreateJoinToken creates a token for a host to join as a node. Only a hash of it is stored. With again the
// node may exist: its host gets a new certificate. Conflict when the node exists otherwise, or has a
// valid token already, Exhausted when there are too many tokens; Invalid names the wrong field.
func (o *Nodes) CreateJoinToken(ctx context.Context, by txn.Actor, node fleet.NodeID, life time.Duration, again bool) (token string, t cluster.JoinToken, err error) {
	if err := node.Validate(); err != nil {
		return "", t, errs.Field("nodeId", "%s", errs.MessageOf(err))
	}
	if err := (pki.Identity{Service: pki.Agent, Name: string(node)}).Validate(); err != nil {
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
		case known && !again:
			return txn.Change{}, errs.New(errs.Conflict, "node %s has joined already: delete it first, choose another id, or set again for the same host", node)
		case pending && !have.Expired(now) && have.Used == nil:
			return txn.Change{}, errs.New(errs.Conflict, "a token for node %s is good until %s: revoke it first", node, have.ExpiresAt.Format(time.RFC3339))
		case !pending && s.JoinTokens.Len() >= maxJoinTokens:
			return txn.Change{}, errs.New(errs.Exhausted, "there are %d join tokens, the most there may be: revoke some", maxJoinTokens)
		}
		t = cluster.JoinToken{
			ID: strings.ToLower(ulid.Make().String()), Node: node, Hash: hex.EncodeToString(sum[:]), By: by.User, CreatedAt: now, ExpiresAt: now.Add(life), Again: again,
		}
		var rev int64
		if pending {
			rev = have.ModRev
		}
		var guards []store.Guard
		if !again {
			guards = append(guards, store.Missing(keys.Node(node)))
		}
		return txn.Change{
			Guards: guards,
			Writes: []store.Write{store.Replace(keys.JoinToken(node), t, rev)},
			Audit:  txn.Entry{Action: "join-token.create", Resource: "join-token", ID: t.ID, Details: string(node), After: joinTokenRecord(t)},
		}, nil
	})
	t.ModRev = rev
	return token, t, err
}

// UseJoinToken marks the token of a node as used by the host with a key. secret and key are SHA-256 in
// hex: of the token, and of the host's public key. A host may repeat the call. Unauthenticated, with the
// reason, if the token admits no host.
func (o *Nodes) UseJoinToken(ctx context.Context, node fleet.NodeID, secret, key, ip string) error {
	refuse := func(format string, args ...any) (txn.Change, error) {
		return txn.Change{}, errs.New(errs.Unauthenticated, format, args...)
	}
	_, err := o.Mutate(ctx, txn.Actor{User: "node " + string(node), IP: ip}, func(*view.Snapshot) (txn.Change, error) {
		t, err := store.Get(ctx, o.Store, keys.JoinToken(node)) // another gateway may have just created it
		switch now := o.Now(); {
		case errs.Is(err, errs.NotFound):
			return refuse("there is no join token for node %s: it was revoked, or was used long ago; create another", node)
		case err != nil:
			return txn.Change{}, err
		case t.Hash != secret:
			return refuse("this is not the current join token of node %s", node)
		case t.Expired(now):
			return refuse("the join token of node %s expired at %s: create another", node, t.ExpiresAt.Format(time.RFC3339))
		case t.Used != nil && t.Used.Key == key:
			return txn.Change{}, nil
		case t.Used != nil:
			return refuse("the join token of node %s was used at %s by %s: revoke the node if that was not its host, otherwise create another token", node, t.Used.At.Format(time.RFC3339), t.Used.IP)
		default:
			t.Used = &cluster.JoinTokenUse{Key: key, At: now.UTC(), IP: ip}
			return txn.Change{
				Writes: []store.Write{store.Replace(keys.JoinToken(node), t, t.ModRev)},
				Audit:  txn.Entry{Action: "join-token.use", Resource: "join-token", ID: t.ID, Details: string(node)},
			}, nil
		}
	})
	return err
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
		_, exists := s.Nodes.Get(node)
		if joined := exists && (t.Used != nil || !t.Again); !joined && t.ExpiresAt.After(limit) {
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
