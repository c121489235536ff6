package rest

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/logs"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/pins"
	"github.com/orreryhq/orrery/apigateway/internal/presence"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/settings"
	"github.com/orreryhq/orrery/apigateway/internal/share"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/series"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Pages at most as long as the reference's.
const (
	pageMany = 500
	pageSome = 200
	pageFew  = 100
)

// Config is what the API needs; all of it is required but what says otherwise.
type Config struct {
	Store      *store.Client
	View       *view.View
	Auth       *auth.Service
	Operations *operate.Operations
	Sources    *operate.Sources
	Templates  *upstream.Templates
	Pins       *pins.Pinner
	// PinTime bounds the time that an answer waits for the first download of a version.
	PinTime    time.Duration
	Schedulers *upstream.Schedulers
	Players    *presence.Table
	// Stale reports whether a node's reports are overdue.
	Stale func(fleet.NodeID) bool
	// Endings are subscribed to the view.
	Endings *Endings
	// Past is how the fleet did; see NewPast.
	Past   *series.Ring
	Logs   *logs.Logs
	Shares *share.Shares
	// NoShares is true when nothing may be shared.
	NoShares bool
	// APIURL is where others reach the gateway; empty where that is not set.
	APIURL string
	// Ready tells what the gateway waits for before it can serve; nothing when it can.
	Ready func(ctx context.Context) (waiting []string)
	// WithinName counts an attempt to log in under a user name; false means that there were
	// too many and the request was answered.
	WithinName func(c *gin.Context, name string) bool
	// WithinPictures counts a picture of the user with an id, as WithinName does.
	WithinPictures func(c *gin.Context, user string) bool
	// Settings are those that hold now.
	Settings *settings.Live
	// Meta identifies the cluster.
	Meta fleet.Meta
	// End asks this replica to end.
	End func()
	// Replica is this one's name; ClusterName is told to people.
	Replica, ClusterName string
	// Version is the gateway's own.
	Version string
	Log     *slog.Logger
	Now     func() time.Time
}

// API serves Orrery's own dialect.
type API struct {
	cfg       Config
	instances *shownInstances
}

// New wires the API.
func New(cfg Config) *API { return &API{cfg: cfg, instances: newShownInstances(cfg.Endings)} }

// Routes are all routes of the dialect, and what each demands.
func (a *API) Routes() []server.Route {
	return slices.Concat(
		a.systemRoutes(), a.identityRoutes(), a.userRoutes(), a.accountRoutes(), a.roleRoutes(), a.groupRoutes(),
		a.instanceRoutes(stockInstances), a.instanceRoutes("/api/v1/instances"), a.instanceFileRoutes(),
		a.nodeRoutes(), a.timeseriesRoutes(), a.joinTokenRoutes(), a.revokedNodeRoutes(),
		a.networkRoutes(), a.clusterRoutes(), a.configRoutes(), a.quotaRoutes(), a.crashRoutes(), a.shareRoutes(), a.diagnosticRoutes(),
		a.templateRoutes(), a.sourceRoutes(), a.catalogRoutes(), a.secretRoutes(),
		a.historyRoutes(), a.playerRoutes(), a.credentialRoutes(),
	)
}

func (a *API) snapshot() *view.Snapshot { return a.cfg.View.Snapshot() }

// reported are the figures an instance's agent last reported.
func reported(s *view.Snapshot, i *fleet.Instance) fleet.InstanceReport {
	if r, ok := s.Reports.Get(i.Node()); ok {
		return r.Instances[i.Intent.ID]
	}
	return fleet.InstanceReport{}
}

// figures are how much there is.
type figures struct {
	NodeCount     int `json:"nodeCount"` // of those that live
	InstanceCount int `json:"instanceCount"`
	PlayerCount   int `json:"playerCount"`
	GroupCount    int `json:"groupCount"`
}

// overview counts what there is.
func (a *API) overview(c *gin.Context) { c.JSON(http.StatusOK, figuresOf(a.snapshot())) }

func figuresOf(s *view.Snapshot) (out figures) {
	for id := range s.Nodes.All() {
		if _, alive := s.NodeSessions.Get(id); alive {
			out.NodeCount++
		}
	}
	for _, g := range s.Groups.All() {
		if !g.Deleting {
			out.GroupCount++
		}
	}
	players := map[fleet.GroupName]int{}
	for _, i := range s.Instances.All() {
		if !i.Terminal() {
			out.InstanceCount++
		}
		if i.State().Running() { // the last report of an OFFLINE one is out of date
			players[i.Intent.Group] += reported(s, i).Players
		}
	}
	out.PlayerCount = playersOnce(players, s.Networks.All(), s.RoutesPlayers)
	return out
}
