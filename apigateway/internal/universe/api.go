package universe

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

// Config is what the dialect needs.
type Config struct {
	Operations *operate.Operations
	// Templates reads templates' files.
	Templates *upstream.Templates
	// Sources has the sources of templates looked at.
	Sources *operate.Sources
	// Metrics are the process'; nil when it keeps none. MetricsPublic shows them to everybody.
	Metrics       prometheus.Gatherer
	MetricsPublic bool
	// Self is what the gateway tells of itself.
	Self Self
	// NodeID names this gateway in the ping, and its own host's node in the list of
	// nodes if there is one of that name.
	NodeID string
	// ClusterName is told in the ping.
	ClusterName string
	// By is who makes a request that was let through.
	By func(*gin.Context) operate.Actor
	// Shown is what of values that not everybody is shown the caller is.
	Shown func(*gin.Context) fleet.Visibility
	// May reports whether the caller has a permission beside those of the route.
	May func(*gin.Context, auth.Permission) bool
	// Now is the clock by which finished instances are left out of lists.
	Now func() time.Time
}

// API serves the dialect.
type API struct {
	cfg       Config
	instances *shownInstances
}

// New wires the dialect.
func New(cfg Config) *API { return &API{cfg: cfg, instances: newShownInstances()} }

// Routes are all routes of the dialect, and what each demands.
func (a *API) Routes() []server.Route {
	return slices.Concat(
		[]server.Route{server.Get("/api/ping", server.Public, a.ping)},
		a.configurationRoutes(), a.instanceRoutes(), a.nodeRoutes(), a.selfRoutes(), a.templateRoutes(),
	)
}

func (a *API) configurationRoutes() []server.Route {
	return server.Under("/api/configurations",
		server.Get("", server.NeedsOrInstance(auth.GroupsView), a.listConfigurations),
		server.Get("/:name", server.NeedsOrInstance(auth.GroupsView), a.getConfiguration),
		server.Put("/:name", server.Needs(auth.GroupsCreate, auth.GroupsUpdate), a.putConfiguration).Rehearses().Makes(),
		server.Delete("/:name", server.Needs(auth.GroupsDelete), a.deleteConfiguration).Rehearses(),
	)
}

func (a *API) instanceRoutes() []server.Route {
	return server.Under("/api/instances",
		server.Get("", server.NeedsOrInstance(auth.InstancesView), a.listInstances),
		server.Post("", server.Needs(auth.GroupsStart), a.createInstance),
		server.Get("/:id", server.NeedsOrInstance(auth.InstancesView), a.getInstance),
		server.Delete("/:id", server.Needs(auth.InstancesStop), a.stopInstance).Unconditional(),
		server.Patch("/:id/lifecycle", server.Needs(auth.GroupsStart, auth.InstancesStop), a.lifecycle).Unconditional(),
		server.Post("/:id/execute", server.Needs(auth.InstancesCommand), a.execute),
		server.Get("/:id/logs", server.Needs(auth.InstancesConsole), a.logs).Audits(fleet.ActionConsoleRead),
		server.Put("/:id/state", server.NeedsOrSelf(auth.InstancesCommand), a.putState).Unconditional(),
	)
}

func (a *API) nodeRoutes() []server.Route {
	return server.Under("/api/cluster/nodes",
		server.Get("", server.NeedsOrInstance(auth.NodesView), a.listNodes),
		server.Get("/:id", server.Needs(auth.NodesView), a.getNode),
	)
}

// templateRoutes are templates. What writes makes what is not there, as this dialect
// always did.
func (a *API) templateRoutes() []server.Route {
	view, update := server.Needs(auth.TemplatesView), server.Needs(auth.TemplatesUpdate)
	read := server.Needs(auth.TemplatesView, auth.TemplatesContent)
	write := server.Needs(auth.TemplatesCreate, auth.TemplatesUpdate)
	return server.Under("/api/templates",
		server.Get("", view, a.listTemplates),
		server.Get("/:group/:name", view, a.getTemplate),
		server.Get("/:group/:name/files", view, a.listFiles),
		server.Get("/:group/:name/files/*path", read, a.getFile).Audits(fleet.ActionFileRead),
		server.Patch("/:group/:name/files/*path", write, a.patchFile).Rehearses().Reads(server.Upload),
		server.Post("/:group/:name/files/*path", write, a.postFile).Rehearses().Conditional().Reads(server.Upload),
		server.Delete("/:group/:name/files/*path", update, a.deleteFile).Rehearses(),
		server.Post("/:group/:name/export", read, a.exportTemplate).Audits(fleet.ActionFileRead),
		server.Post("/:group/:name/import", write, a.importTemplate).Rehearses().Reads(server.Upload),
		server.Post("/:group/:name/sync", update, a.syncTemplate).Rehearses(),
		server.Post("/sync", update, a.syncTemplates).Rehearses(),
	)
}

func (a *API) ping(c *gin.Context) {
	c.JSON(http.StatusOK, gin.H{"status": "ok", "nodeId": a.cfg.NodeID, "clusterName": a.cfg.ClusterName, "master": true})
}

func (a *API) snapshot() *view.Snapshot { return a.cfg.Operations.Snapshot() }

// fail answers with the dialect's envelope, in its words.
func fail(c *gin.Context, err error) {
	var moved *operate.MovedError
	if errors.As(err, &moved) {
		refuse(c, http.StatusPreconditionFailed, moved.Error())
		return
	}
	c.Abort()
	_ = c.Error(err) // for the access log
	wire.Encode(c.Writer, wire.Universe, c.Writer.Header().Get("X-Request-Id"), inOurWords(err))
}

// refuse answers with a status that has no Kind of its own here.
func refuse(c *gin.Context, status int, message string) {
	c.Abort()
	wire.Write(c.Writer, wire.Universe, wire.Reply{Status: status, Message: message})
}

// Body reads a JSON body; fields nobody knows are ignored and named in a Warning.
func Body(c *gin.Context, into any) error {
	ignored, err := wire.DecodeJSONLenient(c.Request.Body, 0, into)
	if err != nil {
		return err
	}
	if len(ignored) > 0 {
		c.Header("Warning", warning(ignored))
	}
	return nil
}

// warned bounds what of a request is repeated in a header.
const warned = 10

// warning is the header's value; names come from outside and are quoted.
func warning(ignored []string) string {
	more := ""
	if len(ignored) > warned {
		more = fmt.Sprintf(" and %d more", len(ignored)-warned)
		ignored = ignored[:warned]
	}
	names := make([]string, 0, len(ignored))
	for _, n := range ignored {
		if len(n) > 64 {
			n = n[:64]
		}
		names = append(names, strings.Trim(strconv.QuoteToASCII(n), `"`))
	}
	return "299 orrery " + strconv.Quote("unknown fields ignored: "+strings.Join(names, ", ")+more)
}

// instance is the instance a path names by id or name.
func (a *API) instance(c *gin.Context) (*view.Snapshot, *fleet.Instance, error) {
	s := a.snapshot()
	i, ok := s.Find(c.Param("id"))
	if !ok {
		return s, nil, errs.New(errs.NotFound, "Instance not found")
	}
	return s, i, nil
}
