package operate

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// accessAgain is how long further reads of the same thing by the same caller are not audited.
	accessAgain = time.Hour
	// refusalAgain is that for wrong passwords of the same name from the same network.
	refusalAgain = 15 * time.Minute
	// Each gateway audits refusalBurst wrong passwords at once, and one each refusalEvery.
	refusalBurst = 30
	refusalEvery = 2 * time.Second
	// maxSeen bounds what is remembered; past it things are audited more often.
	maxSeen = 8192
	// networksTogether is how long known networks are put on one lease.
	networksTogether = 24 * time.Hour
)

// recent remembers for a while what was audited.
type recent struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func newRecent() *recent { return &recent{until: map[string]time.Time{}} }

// first reports whether something is new, and remembers it for a while.
func (r *recent) first(key string, now time.Time, span time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.until[key]) {
		return false
	}
	if len(r.until) >= maxSeen {
		maps.DeleteFunc(r.until, func(_ string, until time.Time) bool { return !now.Before(until) })
	}
	if len(r.until) >= maxSeen {
		clear(r.until)
	}
	r.until[key] = now.Add(span)
	return true
}

// forget has something be new again.
func (r *recent) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.until, key)
}

// refused is the entry of a wrong password; the zero value when one like it was audited lately,
// or too many were. All names that nobody has are alike.
func (o *Operations) refused(s *view.Snapshot, name, address string) entry {
	who := name
	if _, ok := s.Users.Get(name); !ok {
		who = ""
	}
	key := "refused\x00" + who + "\x00" + fleet.NetworkOf(address)
	now := o.now()
	if !o.seen.first(key, now, refusalAgain) {
		return entry{}
	}
	if !o.refusals.AllowN(now, 1) {
		o.seen.forget(key)
		return entry{}
	}
	return entry{
		action: fleet.ActionLoginFailed, resource: "user", id: shownName(s, name), objects: []string{"login/" + shownName(s, name)},
		failure: "a wrong password",
		details: "further ones from this network are counted for " + refusalAgain.String() + " and not listed",
	}
}

// NoteRead audits, behind the answer, that somebody reads the console or files of something:
// once for each caller, network and thing within accessAgain. path may be empty.
func (o *Operations) NoteRead(by Actor, action, resource, id, path string) {
	key := "read\x00" + by.User + "\x00" + by.TokenID + "\x00" + fleet.NetworkOf(by.IP) + "\x00" + action + "\x00" + resource + "\x00" + id + "\x00" + path
	e := entry{action: action, resource: resource, id: id, details: clip(path), objects: []string{"read/" + resource + "/" + id}}
	o.noteBehind(key, accessAgain, func(ctx context.Context) error {
		_, err := o.record(ctx, by, e)
		return err
	})
}

// noteBehind writes something behind the answer, unless that was done lately. What cannot be
// written now is written the next time.
func (o *Operations) noteBehind(key string, span time.Duration, write func(context.Context) error) {
	if !o.seen.first(key, o.now(), span) {
		return
	}
	job := func(ctx context.Context) {
		if err := write(ctx); err != nil && ctx.Err() == nil {
			o.seen.forget(key)
			o.cfg.Log.Warn("an entry of the audit was not written; the next request like it tries again", "error", err)
		}
	}
	select {
	case o.jobs <- job:
	default:
		o.seen.forget(key)
	}
}

// NoteAddress audits, behind the answer, that a login or an API token is used from a network
// that is not known of its user or of the token. From then on it is known.
func (o *Operations) NoteAddress(by Actor, who auth.Identity) {
	id := who.UserID
	if who.TokenID != "" {
		id = who.TokenID
	}
	network := fleet.NetworkOf(by.IP)
	if known, ok := o.Snapshot().KnownNetworks.Get(id); ok {
		if _, is := known.Networks[network]; is {
			return
		}
	}
	o.noteBehind("address\x00"+id+"\x00"+network, networksTogether, func(ctx context.Context) error {
		return o.onNetworks(ctx, func(lease store.Lease) error {
			_, err := o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
				w, added := o.meet(s, lease, id, network)
				if !added {
					return change{}, nil
				}
				resource, of := "user", who.User
				if who.TokenID != "" {
					resource, of = "api-token", who.TokenID
				}
				return change{writes: []store.Write{w}, audit: entry{
					action: fleet.ActionNewAddress, resource: resource, id: of, details: "first use from " + network, objects: []string{"login/" + of},
				}}, nil
			})
			return err
		})
	})
}

func (o *Operations) onNetworks(ctx context.Context, write func(store.Lease) error) error {
	return InTime(ctx, func(ctx context.Context) error {
		return o.on(ctx, &o.networks, fleet.KnownNetworkLife, write)
	})
}

// meet writes that a network was used today. added is true when it was not known.
func (o *Operations) meet(s *view.Snapshot, lease store.Lease, id, network string) (w store.Write, added bool) {
	now, next := o.now(), fleet.KnownNetworks{Networks: map[string]time.Time{}}
	var rev int64
	if known, ok := s.KnownNetworks.Get(id); ok {
		next.Networks, rev = maps.Clone(known.Networks), known.ModRev
	}
	_, is := next.Networks[network]
	next.Use(network, now)
	return store.ReplaceOn(lease, store.KnownNetworksKey(id), next, rev), !is
}

// stale reports whether a use of a network today is not noted.
func stale(s *view.Snapshot, id, network string, now time.Time) bool {
	known, ok := s.KnownNetworks.Get(id)
	return !ok || now.Sub(known.Networks[network]) >= networksTogether
}

// auditRefusal audits a wrong password that nothing counts.
func (o *Operations) auditRefusal(ctx context.Context, by Actor, name string) error {
	e := o.refused(o.Snapshot(), name, by.IP)
	if e.action == "" {
		return nil
	}
	_, err := o.record(elsewhere(ctx), by, e)
	return errs.Wrap("operate.auditRefusal", err)
}
