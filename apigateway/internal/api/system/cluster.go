package system

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// clusterRoutes serve the replicas of the services, and which of them owns which shard.
func (a *API) clusterRoutes() []server.Route {
	see := server.Needs(auth.ClusterView)
	return server.Under("/api/v1/cluster",
		server.Get("", see, a.cluster),
		server.Get("/members", see, a.members),
		server.Get("/leases", see, a.leases),
	)
}

func (a *API) cluster(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	c.JSON(http.StatusOK, gin.H{
		"clusterId": a.cfg.Meta.ClusterID, "createdAt": a.cfg.Meta.CreatedAt, "schemaVersion": a.cfg.Meta.Schema,
		"memberCount": s.Sessions.Len(), "activeConfigVersion": s.Config().Version,
	})
}

// member is a live replica of a service: one that has a session.
type member struct {
	// NodeID is "<service>/<replica>" and Label the service, for clients of PrexorCloud's API.
	NodeID   string    `json:"nodeId"`
	RaftAddr string    `json:"raftAddr"` // always empty, like GRPCAddr
	RESTAddr string    `json:"restAddr"`
	GRPCAddr string    `json:"gRPCAddr"`
	Label    string    `json:"label"`
	JoinedAt time.Time `json:"joinedAt"`
	// LastSeen is now: a session ends within its TTL after its replica is gone.
	LastSeen time.Time `json:"lastSeen"`
	Service  string    `json:"service"`
	Replica  string    `json:"replica"`
	URL      string    `json:"url"`
	Version  string    `json:"version"`
}

func (a *API) members(c *gin.Context) {
	out, now := []member{}, a.cfg.Operations.Now()
	for id, m := range a.cfg.Operations.Snapshot().Sessions.All() {
		out = append(out, member{
			NodeID: id, RESTAddr: m.URL, Label: m.Service, JoinedAt: m.StartedAt, LastSeen: now,
			Service: m.Service, Replica: m.Replica, URL: m.URL, Version: m.Version,
		})
	}
	c.JSON(http.StatusOK, gin.H{"members": out})
}

// lease is the ownership of a shard.
type lease struct {
	// Name is "<service>/<number>".
	Name    string `json:"name"`
	Holder  string `json:"holder"` // the replica
	Service string `json:"service"`
	Shard   int    `json:"shard"`
	// Epoch is the fencing token that every transaction of the owner compares.
	Epoch int64 `json:"epoch"`
	// GrantedAt, RenewedAt and TTLMillis are null: the lease belongs to the session in etcd.
	GrantedAt *time.Time `json:"grantedAt"`
	RenewedAt *time.Time `json:"renewedAt"`
	TTLMillis *int64     `json:"ttlMillis"`
}

func (a *API) leases(c *gin.Context) {
	out, err := a.leasesOf(c.Request.Context())
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"leases": out})
}

// leasesOf lists all leases, sorted by service and shard.
func (a *API) leasesOf(ctx context.Context) ([]lease, error) {
	var shards []store.Entry[cluster.Shard]
	err := txn.InTime(ctx, func(ctx context.Context) (err error) {
		shards, _, err = store.ListSound(ctx, a.cfg.Operations.Store, keys.AllShards())
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]lease, 0, len(shards))
	for _, s := range shards {
		l := lease{Name: s.Name, Holder: s.Record.Replica, Service: s.Record.Service, Epoch: s.Record.CreateRev}
		_, number, _ := strings.Cut(s.Name, "/")
		l.Shard, _ = strconv.Atoi(number)
		out = append(out, l)
	}
	slices.SortFunc(out, func(x, y lease) int {
		return cmp.Or(cmp.Compare(x.Service, y.Service), cmp.Compare(x.Shard, y.Shard))
	})
	return out, nil
}
