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
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/sourceops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/upstream"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

// Config has what the API needs.
type Config struct {
	Operations *ops.Operations
	// Templates reads template files.
	Templates *upstream.Templates
	// Sources syncs template sources.
	Sources *sourceops.Sources
	// Metrics gathers the process's metrics; nil disables the route. MetricsPublic serves them without
	// authentication.
	Metrics       prometheus.Gatherer
	MetricsPublic bool
	// Self describes this gateway as a node.
	Self Self
	// NodeID names this gateway in the ping. The node with this name, if any, counts as the gateway's host.
	NodeID string
	// ClusterName is part of the ping.
	ClusterName string
	// By returns the caller for the audit.
	By func(*gin.Context) txn.Actor
	// Shown returns which protected values the caller may see.
	Shown func(*gin.Context) content.Visibility
	// May reports whether the caller has a permission in addition to the route's own.
	May func(*gin.Context, auth.Permission) bool
	// Now is the clock for hiding finished instances in lists.
	Now func() time.Time
}

// API serves the dialect.
type API struct {
	cfg       Config
	instances *shownInstances
}

// New returns the API.
func New(cfg Config) *API { return &API{cfg: cfg, instances: newShownInstances()} }

// Routes returns all routes of the dialect.
func (a *API) Routes() []server.Route {
	return slices.Concat(
		[]server.Route{server.Get("/api/ping", server.Public, a.ping)},
		a.configurationRoutes(), a.instanceRoutes(), a.nodeRoutes(), a.selfRoutes(), a.templateRoutes(),
	)
}

func (a *API) configurationRoutes() []server.Route {
	return server.Under("/api/configurations",
		server.Get("", server.NeedsOrInstance(auth.GroupsView), a.listConfigurations).Among(),
		server.Get("/:name", server.NeedsOrInstance(auth.GroupsView), a.getConfiguration).In(server.GroupInPath),
		server.Put("/:name", server.Needs(auth.GroupsCreate, auth.GroupsUpdate), a.putConfiguration).Rehearses().Makes(),
		server.Delete("/:name", server.Needs(auth.GroupsDelete), a.deleteConfiguration).Rehearses(),
	)
}

func (a *API) instanceRoutes() []server.Route {
	return server.Under("/api/instances",
		server.Get("", server.NeedsOrInstance(auth.InstancesView), a.listInstances).Among(),
		server.Post("", server.Needs(auth.GroupsStart), a.createInstance).Among(),
		server.Get("/:id", server.NeedsOrInstance(auth.InstancesView), a.getInstance).In(server.InstanceInPath),
		server.Delete("/:id", server.Needs(auth.InstancesStop), a.stopInstance).Unconditional().In(server.InstanceInPath),
		server.Patch("/:id/lifecycle", server.Needs(auth.GroupsStart, auth.InstancesStop), a.lifecycle).Unconditional().In(server.InstanceInPath),
		server.Post("/:id/execute", server.Needs(auth.InstancesCommand), a.execute).In(server.InstanceInPath),
		server.Get("/:id/logs", server.Needs(auth.InstancesConsole), a.logs).Audits(account.ActionConsoleRead).In(server.InstanceInPath),
		server.Put("/:id/state", server.NeedsOrSelf(auth.InstancesCommand), a.putState).Unconditional().In(server.InstanceInPath),
	)
}

func (a *API) nodeRoutes() []server.Route {
	return server.Under("/api/cluster/nodes",
		server.Get("", server.NeedsOrInstance(auth.NodesView), a.listNodes),
		server.Get("/:id", server.Needs(auth.NodesView), a.getNode),
	)
}

// templateRoutes returns the routes of templates. In this dialect, writes create missing templates and
// files.
func (a *API) templateRoutes() []server.Route {
	view, update := server.Needs(auth.TemplatesView), server.Needs(auth.TemplatesUpdate)
	read := server.Needs(auth.TemplatesView, auth.TemplatesContent)
	write := server.Needs(auth.TemplatesCreate, auth.TemplatesUpdate)
	return server.Under("/api/templates",
		server.Get("", view, a.listTemplates),
		server.Get("/:group/:name", view, a.getTemplate),
		server.Get("/:group/:name/files", view, a.listFiles),
		server.Get("/:group/:name/files/*path", read, a.getFile).Audits(account.ActionFileRead),
		server.Patch("/:group/:name/files/*path", write, a.patchFile).Rehearses().Reads(server.Upload),
		server.Post("/:group/:name/files/*path", write, a.postFile).Rehearses().Conditional().Reads(server.Upload),
		server.Delete("/:group/:name/files/*path", update, a.deleteFile).Rehearses(),
		server.Post("/:group/:name/export", read, a.exportTemplate).Audits(account.ActionFileRead),
		server.Post("/:group/:name/import", write, a.importTemplate).Rehearses().Reads(server.Upload),
		server.Post("/:group/:name/sync", update, a.syncTemplate).Rehearses(),
		server.Post("/sync", update, a.syncTemplates).Rehearses(),
	)
}

func (a *API) ping(c *gin.Context) {
	c.JSON(http.StatusOK, gin.H{"status": "ok", "nodeId": a.cfg.NodeID, "clusterName": a.cfg.ClusterName, "master": true})
}

func (a *API) snapshot() *view.Snapshot { return a.cfg.Operations.Snapshot() }

// fail sends an error in the dialect's format and terms.
func fail(c *gin.Context, err error) {
	var moved *txn.MovedError
	if errors.As(err, &moved) {
		refuse(c, http.StatusPreconditionFailed, moved.Error())
		return
	}
	c.Abort()
	_ = c.Error(err) // for the access log
	wire.Encode(c.Writer, wire.Universe, c.Writer.Header().Get("X-Request-Id"), inOurWords(err))
}

// refuse sends an error with a status for which there is no Kind.
func refuse(c *gin.Context, status int, message string) {
	c.Abort()
	wire.Write(c.Writer, wire.Universe, wire.Reply{Status: status, Message: message})
}

// Body decodes a JSON body. Unknown fields are ignored and listed in a Warning.
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

// warned limits the field names in a Warning.
const warned = 10

// warning returns the header's value. The names come from the client and are quoted.
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

// instance returns the instance that the path names by ID or name.
func (a *API) instance(c *gin.Context) (*view.Snapshot, *fleet.Instance, error) {
	s := a.snapshot()
	i, ok := s.Find(c.Param("id"))
	if !ok {
		return s, nil, errs.New(errs.NotFound, "Instance not found")
	}
	return s, i, nil
}
