package clusterops

import (
	"context"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/notice"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// maxPasses bounds the passes of a rotation over all records. A second one finds what was written during
// the first, and a third nothing.
const maxPasses = 16

// Sealing says which keys seal secrets.
type Sealing struct {
	// Keyring is the zero value while the cluster secret seals.
	Keyring account.Keyring
	// WrappedBy are the IDs of this gateway's key-encryption keys, the wrapping one first.
	WrappedBy []string
	// Resealed is how many records a rotation has sealed again.
	Resealed int
	// Unreadable are the records that no known key opens. They stay as they are.
	Unreadable []string
}

// Sealing returns the present keyring.
func (o *Cluster) Sealing(ctx context.Context) (out Sealing, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) error {
		out.Keyring, err = o.ring.Load(ctx)
		return err
	})
	out.WrappedBy = o.ring.KeyIDs()
	return out, err
}

// EnsureKeyring makes the first version of the sealing key in a new cluster, if this gateway has a
// key-encryption key. In a cluster that has sealed with its cluster secret, RotateSealing does that. Invalid,
// naming seal.key, if the gateway cannot unwrap the cluster's keys.
func (o *Cluster) EnsureKeyring(ctx context.Context) error {
	for {
		ring, err := o.ring.Load(ctx)
		if err != nil || ring.ModRev != 0 || len(o.ring.KeyIDs()) == 0 {
			return err
		}
		if ring, err = o.ring.Next(ring, o.Now()); err != nil {
			return err
		}
		ring.Resealing = false
		_, err = o.Store.Commit(ctx, store.Txn{
			Guards: []store.Guard{store.Missing(keys.SealedKey(account.SigningKey))},
			Writes: []store.Write{store.Create(keys.Keyring(), ring)},
		})
		if lost := store.Lost(err); lost != nil && slices.Contains(lost.Keys, keys.SealedKey(account.SigningKey).String()) {
			return nil // the cluster secret has sealed it
		}
		if err != nil && !errs.Is(err, errs.AlreadyExists) && !errs.Is(err, errs.Conflict) {
			return errs.Wrap("operate.EnsureKeyring", err)
		}
	}
}

// RotateSealing makes a new version of the sealing key, seals all records with it, and retires the previous
// versions. It continues a rotation that was cut off. Conflict names a service or agent that could not
// open what the new version seals, Invalid the setting if this gateway has no key-encryption key.
func (o *Cluster) RotateSealing(ctx context.Context, by txn.Actor) (out Sealing, err error) {
	began, err := o.beginRotation(ctx, by)
	if err != nil {
		return out, err
	}
	for range maxPasses {
		n, left, unreadable, err := o.resealAll(ctx)
		out.Resealed, out.Unreadable = out.Resealed+n, unreadable
		if err != nil {
			return out, err
		}
		if n+left > 0 {
			continue
		}
		if err := o.endRotation(ctx, by, began); err != nil {
			return out, err
		}
		done, err := o.Sealing(ctx)
		out.Keyring, out.WrappedBy = done.Keyring, done.WrappedBy
		return out, err
	}
	return out, errs.New(errs.Conflict, "the records change too fast to seal them all again: the new version of the key seals, and the previous one stays; repeat the request")
}

// beginRotation makes a new version current, unless a rotation was cut off. began is true if it did.
func (o *Cluster) beginRotation(ctx context.Context, by txn.Actor) (began bool, err error) {
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (c txn.Change, err error) {
		before, err := o.ring.Load(ctx)
		began = !before.Resealing
		if err == nil && began {
			err = o.everybodyUnseals(s)
		}
		if err != nil || !began {
			return c, err
		}
		next, err := o.ring.Next(before, o.Now())
		c.Writes = []store.Write{store.Replace(keys.Keyring(), next, before.ModRev)}
		c.Audit = txn.Entry{Action: "sealing-key.rotate", Resource: "sealing-key", ID: next.Current, Details: "replaces " + orClusterSecret(before.Current)}
		return c, err
	})
	if err == nil {
		_, err = o.ring.Load(ctx)
	}
	return began, err
}

func orClusterSecret(version string) string {
	if version == "" {
		return "the cluster secret"
	}
	return version
}

// endRotation retires all versions but the current one. The audit has the request that began, and each that
// continued.
func (o *Cluster) endRotation(ctx context.Context, by txn.Actor, began bool) error {
	_, err := o.Mutate(ctx, by, func(*view.Snapshot) (c txn.Change, err error) {
		before, err := o.ring.Load(ctx)
		if err != nil || !before.Resealing { // another gateway was faster
			return c, err
		}
		next, err := o.ring.Retire(before)
		c.Writes = []store.Write{store.Replace(keys.Keyring(), next, before.ModRev)}
		if !began {
			c.Audit = txn.Entry{Action: "sealing-key.rotate", Resource: "sealing-key", ID: next.Current, Details: "continues a rotation that was cut off"}
		}
		return c, err
	})
	return err
}

// everybodyUnseals returns Conflict, with the name of the first program that could not open what this
// gateway's key-encryption key wraps.
func (o *Cluster) everybodyUnseals(s *view.Snapshot) error {
	ids := o.ring.KeyIDs()
	if len(ids) == 0 {
		return nil // Next says what to do
	}
	for _, service := range []string{pki.Gateway, pki.Templates} {
		for _, one := range s.ServiceSessions(service) {
			if !slices.Contains(one.SealKeys, ids[0]) {
				return lacksKey(service+" "+one.Replica, ids[0])
			}
		}
	}
	for id := range s.NodeSessions.All() {
		n, ok := s.Nodes.Get(id)
		if ok && !slices.Contains(n.SealKeys, ids[0]) && !slices.Contains(n.SealKeys, cluster.AsksForSecrets) {
			return lacksKey("the agent of node "+string(id), ids[0])
		}
	}
	return nil
}

func lacksKey(who, key string) error {
	return errs.New(errs.Conflict, "%s does not have the key %s of this gateway's seal.key and could open no secret: give it the key file (--seal-key-file), and restart it; an agent that joins with a token needs none", who, key)
}

// resealing seals the parts of one kind of record again.
type resealing struct {
	o          *Cluster
	guard      store.Guard
	n, left    int
	unreadable []string
}

// resealAll makes one pass over all sealed records. n is how many it has sealed again, left how many changed
// meanwhile.
func (o *Cluster) resealAll(ctx context.Context) (n, left int, unreadable []string, err error) {
	r := &resealing{o: o, guard: store.Unchanged(keys.Keyring(), o.ring.Rev())}
	secrets := o.ring.Records(content.SecretsKind)
	signing, sources := o.ring.Records(account.SigningKey), o.ring.Records(content.SourceCredentialsKind)
	steps := []func() error{
		func() error {
			return reseal(ctx, r, keys.SealedKeys(), func(id string, k *account.SealedKey) (keys.Key[account.SealedKey], int64, []part) {
				return keys.SealedKey(id), k.ModRev, []part{{signing, &k.Sealed}, {signing, &k.Previous}}
			})
		},
		func() error {
			return reseal(ctx, r, keys.Factors(), func(id string, f *account.Factor) (keys.Key[account.Factor], int64, []part) {
				return keys.Factor(id), f.ModRev, []part{{secrets.About(account.AboutFactor(id)), &f.Sealed}}
			})
		},
		func() error {
			return reseal(ctx, r, keys.Notices(), func(name string, one *notice.Notice) (keys.Key[notice.Notice], int64, []part) {
				return keys.Notice(name), one.ModRev, []part{{secrets.About(notice.About(name)), &one.Sealed}}
			})
		},
		func() error {
			return reseal(ctx, r, keys.TemplateSources(), func(name string, one *content.TemplateSource) (keys.Key[content.TemplateSource], int64, []part) {
				return keys.TemplateSource(name), one.ModRev, []part{{sources, &one.Sealed}}
			})
		},
		func() error {
			return reseal(ctx, r, keys.Secrets(), func(name string, one *content.Secret) (keys.Key[content.Secret], int64, []part) {
				return keys.Secret(name), one.ModRev, []part{{secrets.About(compose.AboutStored(name)), &one.Sealed}}
			})
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return r.n, r.left, r.unreadable, errs.Wrap("operate.resealAll", err)
		}
	}
	return r.n, r.left, r.unreadable, nil
}

// part is a sealed part of a record.
type part struct {
	box    seal.Box
	sealed *[]byte
}

// reseal makes a pass over the records under a prefix. parts returns the key of a record, its revision, and
// its sealed parts, which reseal replaces.
func reseal[T any](ctx context.Context, r *resealing, p keys.Prefix[T], parts func(name string, one *T) (keys.Key[T], int64, []part)) error {
	sound, damaged, err := store.ListSound(ctx, r.o.Store, p)
	if err != nil {
		return err
	}
	for _, d := range damaged {
		r.unreadable = append(r.unreadable, strings.TrimPrefix(p.String(), keys.Root)+d.Name)
	}
	for _, e := range sound {
		one := e.Record
		key, rev, all := parts(e.Name, &one)
		changed := false
		for _, part := range all {
			fresh, err := part.box.Renew(*part.sealed)
			switch {
			case errs.Is(err, errs.Unavailable):
				return err
			case err != nil:
				r.unreadable = append(r.unreadable, strings.TrimPrefix(key.String(), keys.Root))
				continue
			}
			changed = changed || seal.VersionOf(fresh) != seal.VersionOf(*part.sealed)
			*part.sealed = fresh
		}
		if !changed {
			continue
		}
		_, err := r.o.Store.Commit(ctx, store.Txn{Guards: []store.Guard{r.guard}, Writes: []store.Write{store.Replace(key, one, rev)}})
		switch {
		case err == nil:
			r.n++
		case errs.Is(err, errs.Conflict): // another writer was faster, or another rotation
			r.left++
			if _, err := r.o.ring.Load(ctx); err != nil {
				return err
			}
			r.guard = store.Unchanged(keys.Keyring(), r.o.ring.Rev())
		default:
			return err
		}
	}
	return nil
}
