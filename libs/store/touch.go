package store

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Marker is a record without content: only its revision matters, so overwriting it loses nothing.
type Marker interface {
	fleet.Alloc | cluster.QuotaAlloc | players.MentionMark | account.RoleMark
}

// anyRev means that a marker may be at any revision.
const anyRev = -1

// Touch changes the revision of a marker in a transaction that compares something else, which
// invalidates every decision based on its former revision. It succeeds even if other transactions
// change the marker all the time. A transaction that depends on a marker must use Replace instead.
func Touch[T Marker](k keys.Key[T], v T) Write { return put(k.String(), v, anyRev) }

// Forget removes a marker at any revision, if it exists; otherwise like Touch.
func Forget[T Marker](k keys.Key[T]) Write {
	return Write{key: k.String(), remove: true, modRev: anyRev}
}

// compare returns the comparison that guards a write. With anyRev it always holds.
func (w Write) compare() clientv3.Cmp {
	if w.modRev == anyRev {
		return clientv3.Compare(clientv3.CreateRevision(w.key), ">", anyRev)
	}
	return unchanged(w.key, w.modRev)
}

// lost reports whether the comparison failed for a key at revision mod, 0 if it does not exist.
func (w Write) lost(mod int64) bool { return w.modRev != anyRev && mod != w.modRev }
