package accountops

import (
	"context"
	"maps"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// refusalAgain is the interval between audit entries for wrong passwords of one name from one
	// network.
	refusalAgain = 15 * time.Minute
	// Each gateway audits a burst of refusalBurst wrong passwords, then one per refusalEvery.
	refusalBurst = 30
	refusalEvery = 2 * time.Second
	// networksTogether is how long records of known networks share one lease.
	networksTogether = 24 * time.Hour
)

// refusalEntry returns the audit entry of a refused login. It is zero when a similar one was
// audited lately, or when too many were. All names without a user count as similar.
func (o *Accounts) refusalEntry(s *view.Snapshot, name, address string, why refusal) txn.Entry {
	who := name
	if _, ok := s.Users.Get(name); !ok {
		who = ""
	}
	key := "refused\x00" + who + "\x00" + account.NetworkOf(address) + "\x00" + why.kind
	now := o.Now()
	if !o.refused.First(key, now, refusalAgain) {
		return txn.Entry{}
	}
	if !o.refusals.AllowN(now, 1) {
		o.refused.Forget(key)
		return txn.Entry{}
	}
	return txn.Entry{
		Action: account.ActionLoginFailed, Resource: "user", ID: shownName(s, name), Objects: []string{"login/" + shownName(s, name)},
		Failure: why.failure,
		Details: "further ones from this network are counted for " + refusalAgain.String() + " and not listed",
	}
}

// NoteAddress audits, in the background, the first use of a login or API token from a network, and
// remembers the network as known.
func (o *Accounts) NoteAddress(by txn.Actor, who auth.Identity) {
	id := who.UserID
	if who.TokenID != "" {
		id = who.TokenID
	}
	network := account.NetworkOf(by.IP)
	if known, ok := o.Snapshot().KnownNetworks.Get(id); ok {
		if _, is := known.Networks[network]; is {
			return
		}
	}
	o.NoteOnce("address\x00"+id+"\x00"+network, networksTogether, func(ctx context.Context) error {
		return o.MutateOnLease(ctx, by, &o.networks, account.KnownNetworkLife, func(s *view.Snapshot, lease store.Lease) (txn.Change, error) {
			w, added := o.meet(s, lease, id, network)
			if !added {
				return txn.Change{}, nil
			}
			resource, of := "user", who.User
			if who.TokenID != "" {
				resource, of = "api-token", who.TokenID
			}
			return txn.Change{Writes: []store.Write{w}, Audit: txn.Entry{
				Action: account.ActionNewAddress, Resource: resource, ID: of, Details: "first use from " + network, Objects: []string{"login/" + of},
			}}, nil
		})
	})
}

// meet writes that a network was used today. added is true when the network was not known.
func (o *Accounts) meet(s *view.Snapshot, lease store.Lease, id, network string) (w store.Write, added bool) {
	now, next := o.Now(), account.KnownNetworks{Networks: map[string]time.Time{}}
	var rev int64
	if known, ok := s.KnownNetworks.Get(id); ok {
		next.Networks, rev = maps.Clone(known.Networks), known.ModRev
	}
	_, is := next.Networks[network]
	next.Use(network, now)
	return store.ReplaceOn(lease, keys.KnownNetworks(id), next, rev), !is
}

// stale reports whether today's use of a network is not recorded yet.
func stale(s *view.Snapshot, id, network string, now time.Time) bool {
	known, ok := s.KnownNetworks.Get(id)
	return !ok || now.Sub(known.Networks[network]) >= networksTogether
}

// auditRefusal audits a refused login that is not counted.
func (o *Accounts) auditRefusal(ctx context.Context, by txn.Actor, name string, why refusal) error {
	e := o.refusalEntry(o.Snapshot(), name, by.IP, why)
	if e.Action == "" {
		return nil
	}
	_, err := o.RecordEntry(txn.WithoutOnce(ctx), by, e)
	return errs.Wrap("operate.auditRefusal", err)
}
