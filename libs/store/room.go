package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	// fullPercent is the share of its quota that a database may use before a warning.
	fullPercent = 80
	// keptTooLong is the time after which an etcd with the recommended retention has compacted.
	keptTooLong = 3 * time.Hour
	// statusTimeout bounds the request to one member, so that a hung one does not delay the start.
	statusTimeout = time.Second
)

// RoomWarnings returns what will make etcd refuse writes later: a database close to its quota, an
// alarm, or a history that was never compacted. etcd does not report its retention, so an etcd
// that stopped compacting is noticed only when its database grows. The history of an in-process
// etcd is not checked, because the program sets its retention. Errors are as in Revision.
func (c *Client) RoomWarnings(ctx context.Context, now time.Time) ([]string, error) {
	if len(c.contact.endpoints) == 0 { // New made the client
		status, err := c.etcd.Status(ctx, "")
		if err != nil {
			return nil, wrap("store.RoomWarnings", err)
		}
		return memberWarnings("in this process", status), nil
	}
	var warnings []string
	for _, endpoint := range c.contact.endpoints {
		attempt, cancel := context.WithTimeout(ctx, statusTimeout)
		status, err := c.etcd.Status(attempt, endpoint)
		cancel()
		if err != nil {
			continue // skip unreachable members
		}
		warnings = append(warnings, memberWarnings(endpoint, status)...)
	}
	history, err := c.historyWarning(ctx, now)
	if history != "" {
		warnings = append(warnings, history)
	}
	return warnings, errs.Wrap("store.RoomWarnings", err)
}

func memberWarnings(endpoint string, s *clientv3.StatusResponse) (warnings []string) {
	for _, alarm := range s.Errors {
		warnings = append(warnings, fmt.Sprintf("etcd member %s has an alarm: %s", endpoint, alarm))
	}
	// Before 3.6 etcd does not report its quota.
	if s.DbSizeQuota > 0 && s.DbSize*100 >= s.DbSizeQuota*fullPercent {
		warnings = append(warnings, fmt.Sprintf(
			"etcd member %s has used %d of the %d MiB of its quota, %d MiB of them for data: defragment it, or raise --quota-backend-bytes; at the quota it refuses all writes",
			endpoint, s.DbSize>>20, s.DbSizeQuota>>20, s.DbSizeInUse>>20))
	}
	return warnings
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
