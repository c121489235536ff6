// Package etcdmember asks the members of etcd for their state.
package etcdmember

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// Timeout bounds each request, so that a member that hangs delays nothing for long.
	Timeout = 2 * time.Second
	// fullPercent is the share of its quota that a database may use before a warning.
	fullPercent = 80
)

// InProcess is the endpoint of an etcd in this process.
const InProcess = "in this process"

// Status is what the member behind one endpoint reports about itself.
type Status struct {
	Endpoint string
	// Err is why there is no answer. Then only Endpoint and Latency are set.
	Err error
	// Version is the version of the member.
	Version string
	// DBSize is the size of the database file, DBSizeInUse the part that holds data. Quota is the size at
	// which etcd refuses writes. Before 3.6 etcd does not report its quota; then it is 0. All are in bytes.
	DBSize, DBSizeInUse, Quota int64
	Revision                   int64
	Leader                     bool
	RaftTerm                   uint64
	// Alarms are messages of etcd, such as one that it has no space.
	Alarms []string
	// Latency is how long the answer took.
	Latency time.Duration
}

// Statuses asks all endpoints at once. Without endpoints it asks the etcd in this process.
func Statuses(ctx context.Context, etcd *clientv3.Client, endpoints []string) []Status {
	if len(endpoints) == 0 {
		out := ask(ctx, etcd, "")
		out.Endpoint = InProcess
		return []Status{out}
	}
	out := make([]Status, len(endpoints))
	var asked sync.WaitGroup
	for n, endpoint := range endpoints {
		asked.Go(func() { out[n] = ask(ctx, etcd, endpoint) })
	}
	asked.Wait()
	return out
}

func ask(ctx context.Context, etcd *clientv3.Client, endpoint string) Status {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	began := time.Now()
	s, err := etcd.Status(ctx, endpoint)
	if err != nil {
		return Status{Endpoint: endpoint, Latency: time.Since(began), Err: err}
	}
	return Status{
		Endpoint: endpoint, Latency: time.Since(began), Version: s.Version, DBSize: s.DbSize, DBSizeInUse: s.DbSizeInUse, Quota: s.DbSizeQuota,
		Revision: s.Header.Revision, Leader: s.Leader == s.Header.MemberId, RaftTerm: s.RaftTerm, Alarms: s.Errors,
	}
}

// Warnings returns what will make the member refuse writes: alarms, and a database close to its quota.
func (s Status) Warnings() (warnings []string) {
	for _, alarm := range s.Alarms {
		warnings = append(warnings, fmt.Sprintf("etcd member %s has an alarm: %s", s.Endpoint, alarm))
	}
	if s.Quota > 0 && s.DBSize*100 >= s.Quota*fullPercent {
		warnings = append(warnings, fmt.Sprintf(
			"etcd member %s has used %d of the %d MiB of its quota, %d MiB of them for data: defragment it, or raise --quota-backend-bytes; at the quota it refuses all writes",
			s.Endpoint, s.DBSize>>20, s.Quota>>20, s.DBSizeInUse>>20))
	}
	return warnings
}

// CompactedRevision returns the revision up to which etcd's history is gone, 0 if etcd never compacted it.
// key exists.
func CompactedRevision(ctx context.Context, etcd *clientv3.Client, key string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel() // ends the watch
	// Only the refusal of a watch in the compacted history names the revision. Without one, the watch
	// begins with the creation of the key.
	resp, answered := <-etcd.Watch(ctx, key, clientv3.WithRev(1))
	switch {
	case !answered:
		return 0, context.Cause(ctx)
	case resp.CompactRevision > 0:
		return resp.CompactRevision, nil
	}
	return 0, resp.Err()
}
