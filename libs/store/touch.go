package store

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Marker are the records that hold nothing: only that their revision moves counts.
// What is written over one is not lost.
type Marker interface {
	fleet.Alloc | fleet.QuotaAlloc | fleet.MentionMark | fleet.RoleMark
}

// anyRev stands for whatever revision a marker is at.
const anyRev = -1

// Touch moves the revision of a marker, whatever it was, in a transaction that
// compares something else: all that was decided from its former revision is refused.
// It always gets through, also where decisions move the marker all the time. Whoever
// decides by a marker replaces it instead.
func Touch[T Marker](k Key[T], v T) Write { return put(k.String(), v, anyRev) }

// Forget removes a marker, whatever revision it is at, if it is there; otherwise as Touch.
func Forget[T Marker](k Key[T]) Write { return Write{key: k.String(), remove: true, modRev: anyRev} }

// compare is the comparison that guards a write; that of anyRev always holds.
func (w Write) compare() clientv3.Cmp {
	if w.modRev == anyRev {
		return clientv3.Compare(clientv3.CreateRevision(w.key), ">", anyRev)
	}
	return unchanged(w.key, w.modRev)
}

// lost reports whether the comparison failed on a key that is at mod, 0 for none.
func (w Write) lost(mod int64) bool { return w.modRev != anyRev && mod != w.modRev }
