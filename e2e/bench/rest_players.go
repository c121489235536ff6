package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// playerGroups is the number of groups, of 100 instances each, whose instances have
	// processes. They run evenly on playerNodes nodes.
	playerGroups = 2
	playerNodes  = playerGroups * restInstances / restGroups * restNodes / restInstances
	// playersEach is the average number of players per instance.
	playersEach = 1
	// playerStays is the average time that a player stays on an instance.
	playerStays = 5 * time.Minute
	// playersWindow is the length of the measurement with moving players.
	playersWindow = 2 * time.Minute
	// playersHistory is the permitted growth of etcd's history per hour, in MiB.
	playersHistory = 200
)

// played are the instances with processes, and the agents that report their players.
type played struct {
	ids     []fleet.InstanceID
	on      map[fleet.InstanceID]fleet.NodeID
	agents  map[fleet.NodeID]*client.Client
	numbers map[fleet.InstanceID]int64
	// where is the instance of each player.
	where []fleet.InstanceID
}

// players waits for the instances with processes.
func (f *restFleet) players(ctx context.Context) (*played, error) {
	p := &played{on: f.played, agents: map[fleet.NodeID]*client.Client{}, numbers: map[fleet.InstanceID]int64{}}
	for id, node := range f.played {
		p.ids = append(p.ids, id)
		if p.agents[node] == nil {
			n, err := store.Get(ctx, f.store, keys.Node(node))
			if err != nil {
				return nil, err
			}
			p.agents[node] = client.New(&http.Client{}, n.AgentURL, restSecret)
		}
	}
	slices.Sort(p.ids)
	for _, id := range p.ids {
		for {
			s, err := store.Get(ctx, f.store, keys.Status(id))
			if err == nil && s.State == fleet.Online {
				break
			}
			if err == nil && !s.State.Running() && s.State != fleet.Unplaced {
				return nil, fmt.Errorf("instance %s is %s: %s %s", id, s.State, s.Reason, s.Message)
			}
			if !pause.For(ctx, 50*time.Millisecond) {
				return nil, ctx.Err()
			}
		}
	}
	return p, nil
}

// tell reports a joining or leaving player to an agent.
func (p *played) tell(ctx context.Context, id fleet.InstanceID, h client.Heartbeat) error {
	p.numbers[id]++
	h.Sequence = p.numbers[id]
	return p.agents[p.on[id]].Heartbeat(ctx, id, h)
}

func restPlayer(n int) players.PlayerID {
	return players.PlayerID(fmt.Sprintf("%08x-0000-4000-8000-%012x", n*2654435761%(1<<32), n))
}

func (p *played) join(ctx context.Context, player int, id fleet.InstanceID) error {
	p.where[player] = id
	return p.tell(ctx, id, client.Heartbeat{Joined: &players.Presence{Player: restPlayer(player), Name: fmt.Sprintf("Player%06d", player)}})
}

// populate gives every instance its first players.
func (p *played) populate(ctx context.Context) error {
	p.where = make([]fleet.InstanceID, playersEach*len(p.ids))
	for n := range p.where {
		if err := p.join(ctx, n, p.ids[n%len(p.ids)]); err != nil {
			return err
		}
	}
	return nil
}

// move moves players between instances for a while.
func (p *played) move(ctx context.Context, random *rand.Rand) error {
	every := playerStays / time.Duration(len(p.where))
	for end := time.Now().Add(playersWindow); time.Now().Before(end); {
		player := random.IntN(len(p.where))
		if err := p.tell(ctx, p.where[player], client.Heartbeat{Left: restPlayer(player)}); err != nil {
			return err
		}
		if err := p.join(ctx, player, p.ids[random.IntN(len(p.ids))]); err != nil {
			return err
		}
		if !pause.For(ctx, every) {
			return ctx.Err()
		}
	}
	return nil
}

// kept counts the bytes of changes in etcd's history, separately for the nodes with players
// and for everything else.
type kept struct {
	mu             sync.Mutex
	players, other int
}

// perRevision is the overhead of a change in etcd's history in addition to key and value:
// the revision as the database key, revision and version numbers, and the database's own
// header.
const perRevision = 17 + 20 + 16

// Reset receives the initial list, which is not a change.
func (k *kept) Reset([]store.KeyValue, int64) {}

// Apply counts changes.
func (k *kept) Apply(changes []store.Change, _ int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range changes {
		kind, rest, ok := keys.Split(c.Key)
		n := len(c.Key) + len(c.Value) + perRevision
		if ok && slices.Contains([]string{"reports", "figures", "players"}, kind) && withPlayers(rest[0]) {
			k.players += n
		} else {
			k.other += n
		}
	}
}

func (k *kept) take() (players, other int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	players, other = k.players, k.other
	k.players, k.other = 0, 0
	return players, other
}

func withPlayers(node string) bool {
	for n := range playerNodes {
		if strings.EqualFold(node, string(restNode(n))) {
			return true
		}
	}
	return false
}

// measurePlayers measures the growth of etcd's history while players move. Only a few nodes
// have instances with processes and players, so their writes are scaled to the number of
// all nodes.
func (f *restFleet) measurePlayers(ctx context.Context, b *bench) error {
	p, err := f.players(ctx)
	if err != nil {
		return err
	}
	if err := p.populate(ctx); err != nil {
		return err
	}
	if !pause.For(ctx, restSettle) {
		return ctx.Err()
	}
	k := &kept{}
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer stop()
	watcher.Go(func() { _ = f.store.Follow(watching, keys.Root, k) })
	if err := p.move(ctx, rand.New(rand.NewPCG(3, 4))); err != nil {
		return err
	}
	players, other := k.take()
	all := float64(players)*restNodes/playerNodes + float64(other)
	b.report("rest_players_history_mib_per_h", all/(1<<20)*float64(time.Hour)/float64(playersWindow), "MiB/h", playersHistory)
	return nil
}
