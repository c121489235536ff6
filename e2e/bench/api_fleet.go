package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	apiNodes  = 50
	apiGroups = 10
	// apiShare is the number of instances per group.
	apiShare     = 1000
	apiInstances = apiGroups * apiShare
)

func apiGroup(n int) fleet.GroupName { return fleet.GroupName(fmt.Sprintf("api-%02d", n)) }

// seedAPI writes the records of a fleet that is online, without any of its processes.
// agentURL is the address of all nodes' agents.
func seedAPI(ctx context.Context, c *store.Client, agentURL string) error {
	now := time.Now().UTC()
	latest := map[fleet.NodeID]*reports.Report{}
	var writes []store.Write
	for n := range apiNodes {
		id := placeNode(n)
		latest[id] = &reports.Report{Node: id, MemoryMiB: 1000, Instances: map[fleet.InstanceID]reports.InstanceReport{}, At: now}
		writes = append(writes,
			store.Create(keys.Node(id), fleet.Node{
				ID: id, DataUUID: "d-" + string(id), Address: "10.0.0.1", AgentURL: agentURL, Version: "bench",
				Capacity: fleet.Resources{MemoryMiB: 1_000_000, CPU: 1_000_000}, JoinedAt: now,
				Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}},
			}),
			store.Create(keys.NodeSession(id), fleet.NodeSession{Node: id, DataUUID: "d-" + string(id), StartedAt: now}))
	}
	sp := spawn.New(view.New(c, nil).Snapshot(), now, rand.New(rand.NewPCG(1, 2)))
	for g := range apiGroups {
		births, err := seedGroup(ctx, c, sp, apiGroup(g))
		if err != nil {
			return err
		}
		for i, b := range births {
			node := placeNode((g*apiShare + i) % apiNodes)
			latest[node].Instances[b.Intent.ID] = reports.InstanceReport{Players: i % 20, MaxPlayers: 20, PlayersKnown: true, HeartbeatAt: now, TPS: 20}
			writes = append(writes, records(b.Intent, fleet.NodeSession{Node: node}, 20_000+i).Writes...)
		}
	}
	for id, r := range latest {
		writes = append(writes, store.Create(keys.Report(id), *r))
	}
	return commitAll(ctx, c, writes)
}

// seedGroup writes a group and the intents of its instances.
func seedGroup(ctx context.Context, c *store.Client, sp *spawn.Spawner, name fleet.GroupName) ([]spawn.Birth, error) {
	group := fleet.Group{Name: name, Revision: 1, CreatedAt: time.Now().UTC(), UpdatedAt: time.Now().UTC(), Spec: fleet.DefaultSpec()}
	group.Spec.Scaling.Min, group.Spec.Scaling.Max = apiShare, apiShare
	group.Spec.Command, group.Spec.Resources.MemoryMiB = "exec ./server", 16
	if _, err := c.Commit(ctx, store.Txn{Writes: []store.Write{store.Create(keys.Group(name), group)}}); err != nil {
		return nil, err
	}
	var births []spawn.Birth
	for range apiShare {
		births = append(births, sp.Fresh(&group, spawn.Cause{Origin: fleet.OriginMinimum, Reason: fleet.ReasonBelowMinimum}, "", nil))
	}
	for _, txn := range sp.Txns(births, nil, nil, c.MaxOps()) {
		if _, err := c.Commit(ctx, txn); err != nil {
			return nil, err
		}
	}
	return births, nil
}

// startStandIn runs a fake agent for all nodes, which answers the gateway's queries for
// live figures, until stop is called.
func startStandIn(ctx context.Context) (url string, stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/instances/{id}", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(client.Instance{
			ID: fleet.InstanceID(r.PathValue("id")), State: fleet.Online, PID: 4_000_000, Players: 7, MaxPlayers: 20,
			PlayersKnown: true, TPS: 20, LastHeartbeat: time.Now(),
		})
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(l)
	}()
	return "http://" + l.Addr().String(), func() { _ = s.Close(); <-served }, nil
}
