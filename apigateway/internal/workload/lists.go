package workload

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store/view"
)

// backend is an instance that players can join, as shown to servers and proxies.
type backend struct {
	InstanceID  string          `json:"instanceId"`
	Group       fleet.GroupName `json:"group"`
	NodeID      fleet.NodeID    `json:"nodeId"`
	NodeAddress string          `json:"nodeAddress"`
	State       string          `json:"state"`
	Port        int             `json:"port"`
	PlayerCount int             `json:"playerCount"`
	UptimeMs    int64           `json:"uptimeMs"`
}

// instances lists the placed instances that have not ended, except proxies and warm ones.
func (a *API) instances(c *gin.Context) {
	a.listInstances(c, func(i *fleet.Instance) bool { return !i.Terminal() && !i.Intent.Warm })
}

// readyInstances lists the instances that are ready for players.
func (a *API) readyInstances(c *gin.Context) {
	a.listInstances(c, (*fleet.Instance).TakesPlayers)
}

// listInstances lists the selected placed instances except proxies, by group and ordinal.
func (a *API) listInstances(c *gin.Context, wanted func(*fleet.Instance) bool) {
	s, now := a.cfg.Operations.Snapshot(), a.cfg.Now()
	var all []*fleet.Instance
	for _, i := range s.Instances.All() {
		if i.Shown() != nil && wanted(i) && !s.RoutesPlayers(i.Intent.Group) {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(x, y *fleet.Instance) int {
		return cmp.Or(cmp.Compare(x.Intent.Group, y.Intent.Group), cmp.Compare(x.Intent.Ordinal, y.Intent.Ordinal), cmp.Compare(x.Intent.ID, y.Intent.ID))
	})
	out := make([]backend, 0, len(all))
	for _, i := range all {
		out = append(out, a.backendOf(s, i, now))
	}
	c.JSON(http.StatusOK, out)
}

func (a *API) backendOf(s *view.Snapshot, i *fleet.Instance, now time.Time) backend {
	out := backend{InstanceID: i.Intent.Name, Group: i.Intent.Group, State: events.StateOf(i)}
	out.NodeID, out.NodeAddress, out.Port = placeOf(s, i)
	out.PlayerCount = playersOf(s, i)
	if st := i.Status; st != nil && !st.StartedAt.IsZero() {
		out.UptimeMs = max(0, now.Sub(st.StartedAt).Milliseconds())
	}
	return out
}

// playersOf returns an instance's number of players, as last reported by its agent.
func playersOf(s *view.Snapshot, i *fleet.Instance) int {
	if r, ok := s.Reports.Get(i.Node()); ok {
		return r.Instances[i.Intent.ID].Players
	}
	return 0
}

// placeOf returns an instance's node, address and port.
func placeOf(s *view.Snapshot, i *fleet.Instance) (node fleet.NodeID, address string, port int) {
	if p := i.Shown(); p != nil {
		return p.Node, s.AddressOf(i), p.Port
	}
	return "", "", 0
}

// isProxy reports whether an instance is a proxy.
func isProxy(s *view.Snapshot, id fleet.InstanceID) bool {
	i, ok := s.Instances.Get(id)
	return ok && s.RoutesPlayers(i.Intent.Group)
}

// group is a group as shown to servers and proxies. It never has values of the environment, which may
// be secret.
type group struct {
	Name               fleet.GroupName   `json:"name"`
	Platform           string            `json:"platform"`
	MinInstances       int               `json:"minInstances"`
	MaxInstances       int               `json:"maxInstances"`
	MaxPlayers         int               `json:"maxPlayers"`
	OnlineCount        int               `json:"onlineCount"` // players
	IsMaintenance      bool              `json:"isMaintenance"`
	MaintenanceMessage string            `json:"maintenanceMessage"`
	MaintenanceBypass  []string          `json:"maintenanceBypass"`
	IsStatic           bool              `json:"isStatic"`
	DefaultGroup       bool              `json:"defaultGroup"`
	MemoryMb           int               `json:"memoryMb"`
	CPUReservation     float64           `json:"cpuReservation"`
	DiskReservationMb  int               `json:"diskReservationMb"`
	JVMArgs            []string          `json:"jvmArgs"`
	Env                map[string]string `json:"env"`
	NodeAffinity       []string          `json:"nodeAffinity"`
}

// groups lists all groups by name.
func (a *API) groups(c *gin.Context) {
	s, out := a.cfg.Operations.Snapshot(), []group{}
	for name, g := range s.Groups.All() {
		if g.Deleting {
			continue
		}
		spec, m := s.Overlaid(g).Spec, s.MaintenanceOf(g)
		one := group{
			Name: name, Platform: spec.Software.Platform, MinInstances: spec.Scaling.Min, MaxInstances: spec.Scaling.Max, MaxPlayers: spec.Players.Max,
			IsMaintenance: m.On, MaintenanceMessage: m.Message, MaintenanceBypass: append([]string{}, m.Bypass...),
			IsStatic: spec.Static.Enabled, DefaultGroup: spec.Players.DefaultGroup, MemoryMb: spec.Resources.MemoryMiB,
			CPUReservation: float64(spec.Resources.CPU) / 100, DiskReservationMb: spec.Resources.DiskMiB,
			JVMArgs: append([]string{}, spec.Software.JVMArgs...), Env: map[string]string{}, NodeAffinity: append([]string{}, spec.Where.Affinity...),
		}
		for i := range s.GroupInstances(name) {
			if i.State() == fleet.Online {
				one.OnlineCount += playersOf(s, i)
			}
		}
		out = append(out, one)
	}
	c.JSON(http.StatusOK, out)
}

// player is a player as shown to servers and proxies.
type player struct {
	ID         players.PlayerID `json:"id"`
	Name       string           `json:"name"`
	InstanceID string           `json:"instanceId"`
	Group      fleet.GroupName  `json:"group"`
	Edition    string           `json:"edition"`
}

// allPlayers lists all players.
func (a *API) allPlayers(c *gin.Context) { a.listPlayers(c, func(players.Player) bool { return true }) }

// playersOfServer lists the players on the calling server, connected through it, or on its networks.
func (a *API) playersOfServer(c *gin.Context) {
	a.listPlayers(c, within(a.cfg.Operations.Snapshot(), server.OwnInstance(c)))
}

func (a *API) listPlayers(c *gin.Context, shown func(players.Player) bool) {
	s, out := a.cfg.Operations.Snapshot(), []player{}
	for _, p := range a.cfg.Players.All(s) {
		if !shown(p) {
			continue
		}
		one := player{ID: p.ID, Name: p.Name, Group: p.Group, Edition: p.Edition}
		if i, ok := s.Instances.Get(p.Server); ok {
			one.InstanceID, one.Group = i.Intent.Name, i.Intent.Group
		}
		out = append(out, one)
	}
	c.JSON(http.StatusOK, out)
}

// within returns whether a player is on an instance, connected through it, or on one of its networks.
func within(s *view.Snapshot, own fleet.InstanceID) func(players.Player) bool {
	peers := peersOf(s, own)
	return func(p players.Player) bool {
		return p.Server == own || p.Proxy == own || peers(groupOf(s, cmp.Or(p.Server, p.Proxy)))
	}
}

// peersOf returns whether a group is on the networks of an instance.
func peersOf(s *view.Snapshot, own fleet.InstanceID) func(fleet.GroupName) bool {
	return s.NetworkPeers(groupOf(s, own))
}

// groupOf returns an instance's group, "" if the instance does not exist.
func groupOf(s *view.Snapshot, id fleet.InstanceID) fleet.GroupName {
	if i, ok := s.Instances.Get(id); ok {
		return i.Intent.Group
	}
	return ""
}
