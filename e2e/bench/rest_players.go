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
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// playerGroups are the groups, of 100 instances each, whose instances have processes.
	// They run on playerNodes nodes, as many on each as on any other node.
	playerGroups = 2
	playerNodes  = playerGroups * restInstances / restGroups * restNodes / restInstances
	// playersEach is how many players an instance has on average.
	playersEach = 1
	// playerStays is how long a player stays on an instance on average.
	playerStays = 5 * time.Minute
	// playersWindow is how long the players are watched while they move.
	playersWindow = 2 * time.Minute
	// playersHistory is the most that etcd's history may grow by in an hour, in MiB.
	playersHistory = 200
)

// played are the instances that have processes, with the agents that tell of their players.
type played struct {
	ids     []fleet.InstanceID
	on      map[fleet.InstanceID]fleet.NodeID
	agents  map[fleet.NodeID]*client.Client
	numbers map[fleet.InstanceID]int64
	// where is the instance of each player.
	where []fleet.InstanceID
}

// players waits for the instances that have processes.
func (f *restFleet) players(ctx context.Context) (*played, error) {
	p := &played{on: f.played, agents: map[fleet.NodeID]*client.Client{}, numbers: map[fleet.InstanceID]int64{}}
	for id, node := range f.played {
		p.ids = append(p.ids, id)
		if p.agents[node] == nil {
			n, err := store.Get(ctx, f.store, store.NodeKey(node))
			if err != nil {
				return nil, err
			}
			p.agents[node] = client.New(&http.Client{}, n.AgentURL, restSecret)
		}
	}
	slices.Sort(p.ids)
	for _, id := range p.ids {
		for {
			s, err := store.Get(ctx, f.store, store.StatusKey(id))
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

// tell tells an agent that a player joined or left one of its instances.
func (p *played) tell(ctx context.Context, id fleet.InstanceID, h client.Heartbeat) error {
	p.numbers[id]++
	h.Sequence = p.numbers[id]
	return p.agents[p.on[id]].Heartbeat(ctx, id, h)
}

func restPlayer(n int) fleet.PlayerID {
	return fleet.PlayerID(fmt.Sprintf("%08x-0000-4000-8000-%012x", n*2654435761%(1<<32), n))
}

func (p *played) join(ctx context.Context, player int, id fleet.InstanceID) error {
	p.where[player] = id
	return p.tell(ctx, id, client.Heartbeat{Joined: &fleet.Presence{Player: restPlayer(player), Name: fmt.Sprintf("Player%06d", player)}})
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

// move has players leave for other instances, for a while.
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

// kept counts the bytes of changes that etcd's history keeps, of the nodes with players
// and of all else.
type kept struct {
	mu             sync.Mutex
	players, other int
}

// perRevision is what etcd's history keeps of a change beside key and value: its revision as
// the key in the database, numbers of revisions and versions, and the database's own header.
const perRevision = 17 + 20 + 16

// Reset is the list at the start, which is no change.
func (k *kept) Reset([]store.KeyValue, int64) {}

// Apply counts.
func (k *kept) Apply(changes []store.Change, _ int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range changes {
		kind, rest, ok := store.SplitKey(c.Key)
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

// measurePlayers measures what etcd's history grows by while players move. A few nodes
// have instances with processes and players; what these nodes write counts as often as
// all nodes are more.
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
	watcher.Go(func() { _ = f.store.Follow(watching, store.Root, k) })
	if err := p.move(ctx, rand.New(rand.NewPCG(3, 4))); err != nil {
		return err
	}
	players, other := k.take()
	all := float64(players)*restNodes/playerNodes + float64(other)
	b.report("rest_players_history_mib_per_h", all/(1<<20)*float64(time.Hour)/float64(playersWindow), "MiB/h", playersHistory)
	return nil
}
