package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/etcdmember"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// keptTooLong is the time after which an etcd with the recommended retention has compacted.
const keptTooLong = 3 * time.Hour

// RoomWarnings returns what will make etcd refuse writes later: a database close to its quota, an
// alarm, or a history that was never compacted. etcd does not report its retention, so an etcd
// that stopped compacting is noticed only when its database grows. The history of an in-process
// etcd is not checked, because the program sets its retention. Errors are as in Revision.
func (c *Client) RoomWarnings(ctx context.Context, now time.Time) (warnings []string, err error) {
	for _, s := range c.Members(ctx) { // members that do not answer have no warnings
		warnings = append(warnings, s.Warnings()...)
		err = s.Err
	}
	if len(c.contact.endpoints) == 0 { // New made the client
		return warnings, err
	}
	history, err := c.historyWarning(ctx, now)
	if history != "" {
		warnings = append(warnings, history)
	}
	return warnings, errs.Wrap("store.RoomWarnings", err)
}

// Members asks the member behind each endpoint for its status, all at once and each for etcdmember.Timeout.
func (c *Client) Members(ctx context.Context) []etcdmember.Status {
	all := etcdmember.Statuses(ctx, c.etcd, c.contact.endpoints)
	for n := range all {
		all[n].Err = wrap("store.Members", all[n].Err)
	}
	return all
}

// CompactedRevision returns the revision up to which etcd's history is gone, 0 if etcd never compacted it.
// The client must have joined. It takes at most etcdmember.Timeout; then the error is Unavailable.
func (c *Client) CompactedRevision(ctx context.Context) (int64, error) {
	rev, err := etcdmember.CompactedRevision(onStream(ctx, c.newStream()), c.etcd, keys.Meta().String())
	return rev, wrap("store.CompactedRevision", err)
}

// historyWarning returns a warning if etcd still has the revision at which the cluster was
// created.
func (c *Client) historyWarning(ctx context.Context, now time.Time) (string, error) {
	meta, err := Get(ctx, c, keys.Meta())
	if err != nil || now.Sub(meta.CreatedAt) < keptTooLong {
		return "", err
	}
	_, err = c.etcd.Get(ctx, keys.Meta().String(), clientv3.WithRev(meta.CreateRev), clientv3.WithKeysOnly())
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return "", nil
	case err != nil:
		return "", wrap("store.historyWarning", err)
	}
	return fmt.Sprintf("etcd has never compacted its history since %s: set --auto-compaction-mode=periodic and --auto-compaction-retention=10m on every member, or its database fills up",
		meta.CreatedAt.UTC().Format(time.RFC3339)), nil
}
