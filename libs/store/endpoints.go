package store

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// endpointTimeout bounds the request for the status of one endpoint.
const endpointTimeout = 2 * time.Second

// InProcess is the endpoint of an etcd in this process.
const InProcess = "in-process"

// EndpointStatus is what the member of etcd behind one endpoint reports about itself.
type EndpointStatus struct {
	Endpoint string
	// Err is why there is no answer. The other fields are then zero, except Latency.
	Err error
	// Version is the version of the member.
	Version string
	// DBSize is the size of the database file, DBSizeInUse the part that holds data. Quota is the size at
	// which etcd refuses writes, 0 if the member does not report it. All are in bytes.
	DBSize, DBSizeInUse, Quota int64
	Revision                   int64
	Leader                     bool
	RaftTerm                   uint64
	// Alarms are messages of etcd, such as one that it has no space.
	Alarms []string
	// Latency is how long the answer took.
	Latency time.Duration
}

// EndpointStatuses asks all endpoints at once, each for at most two seconds.
func (c *Client) EndpointStatuses(ctx context.Context) []EndpointStatus {
	if len(c.contact.endpoints) == 0 { // New made the client
		out := c.endpointStatus(ctx, "")
		out.Endpoint = InProcess
		return []EndpointStatus{out}
	}
	out := make([]EndpointStatus, len(c.contact.endpoints))
	var asked sync.WaitGroup
	for n, endpoint := range c.contact.endpoints {
		asked.Go(func() { out[n] = c.endpointStatus(ctx, endpoint) })
	}
	asked.Wait()
	return out
}

func (c *Client) endpointStatus(ctx context.Context, endpoint string) EndpointStatus {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	began := time.Now()
	s, err := c.etcd.Status(ctx, endpoint)
	out := EndpointStatus{Endpoint: endpoint, Latency: time.Since(began), Err: wrap("store.EndpointStatuses", err)}
	if err != nil {
		return out
	}
	out.Version, out.DBSize, out.DBSizeInUse, out.Quota = s.Version, s.DbSize, s.DbSizeInUse, s.DbSizeQuota
	out.Revision, out.Leader, out.RaftTerm = s.Header.Revision, s.Leader == s.Header.MemberId, s.RaftTerm
	out.Alarms = s.Errors
	return out
}

// CompactedRevision returns the revision up to which etcd's history is gone, 0 if etcd never compacted it.
// The client must have joined. It takes at most two seconds; then the error is Unavailable.
func (c *Client) CompactedRevision(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(onStream(ctx, c.newStream()), endpointTimeout)
	defer cancel() // ends the watch
	// Only the refusal of a watch in the compacted history names the revision. Without one, the watch
	// begins with the creation of the meta record.
	resp, answered := <-c.etcd.Watch(ctx, keys.Meta().String(), clientv3.WithRev(1))
	switch {
	case !answered:
		return 0, errs.WrapAs(errs.Unavailable, "store.CompactedRevision", ctx.Err())
	case resp.CompactRevision > 0:
		return resp.CompactRevision, nil
	}
	return 0, wrap("store.CompactedRevision", resp.Err())
}
