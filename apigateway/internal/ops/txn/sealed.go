package txn

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// sealedUnder are the prefixes of the records that are sealed again when the sealing key is replaced.
func sealedUnder() []string {
	return []string{
		keys.Secrets().String(), keys.TemplateSources().String(), keys.Notices().String(), keys.Factors().String(), keys.SealedKeys().String(),
	}
}

// guardSealed returns a guard for a transaction that writes sealed records: it fails if the sealing key was
// replaced since. Without it, a gateway that lags behind could seal with a key that is retired. Conflict if
// a record is sealed with a key that was replaced already.
func (o *Committer) guardSealed(t store.Txn) ([]store.Guard, error) {
	var guards []store.Guard
	for _, w := range t.Writes {
		if w.Value() == "" || !slices.ContainsFunc(sealedUnder(), func(p string) bool { return strings.HasPrefix(w.Key(), p) }) {
			continue
		}
		if guards == nil {
			guards = []store.Guard{store.Unchanged(keys.Keyring(), o.ring.Rev())}
		}
		var record struct {
			Sealed   []byte `json:"sealed"`
			Previous []byte `json:"previous"`
		}
		if err := json.Unmarshal([]byte(w.Value()), &record); err != nil {
			return nil, errs.WrapAs(errs.Internal, "operate.guardSealed", err)
		}
		for _, sealed := range [][]byte{record.Sealed, record.Previous} {
			if len(sealed) > 0 && seal.VersionOf(sealed) != o.ring.Current() {
				return nil, errs.New(errs.Conflict, "the sealing key was replaced meanwhile: retry")
			}
		}
	}
	return guards, nil
}

// sealedCommit commits a transaction like store.Client.Commit, with guardSealed.
func (o *Committer) sealedCommit(ctx context.Context, t store.Txn) (int64, error) {
	guards, err := o.guardSealed(t)
	if err != nil {
		return 0, err
	}
	t.Guards = append(slices.Clip(t.Guards), guards...)
	rev, err := o.Store.Commit(ctx, t)
	if lost := store.Lost(err); lost != nil && slices.Contains(lost.Keys, keys.Keyring().String()) {
		if _, err := o.ring.Load(ctx); err != nil {
			return rev, err
		}
	}
	return rev, err
}
