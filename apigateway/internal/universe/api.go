package universe

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
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
	// NodeID names this gateway in the ping, and its own host's node in the list of
	// nodes if there is one of that name.
	NodeID string
	// ClusterName is told in the ping.
	ClusterName string
	// Allow authenticates the caller and demands permissions, all of them.
	Allow func(...auth.Permission) gin.HandlerFunc
	// AllowSelf is Allow that also accepts the own token of the instance that the
	// path names as :id.
	AllowSelf func(...auth.Permission) gin.HandlerFunc
	// By is who makes a request that was let through.
	By func(*gin.Context) operate.Actor
	// Shown is what of values that not everybody is shown the caller is.
	Shown func(*gin.Context) fleet.Visibility
	// Now is the clock by which finished instances are left out of lists.
	Now func() time.Time
}

// API serves the dialect.
type API struct{ cfg Config }

// New wires the dialect.
func New(cfg Config) *API { return &API{cfg: cfg} }

// Mount adds the routes to the root of a listener. All but the ping ask Allow or
// AllowSelf first.
func (a *API) Mount(r gin.IRoutes) {
	may := a.cfg.Allow
	r.GET("/api/ping", a.ping)

	r.GET("/api/configurations", may(auth.GroupsView), a.listConfigurations)
	r.GET("/api/configurations/:name", may(auth.GroupsView), a.getConfiguration)
	r.PUT("/api/configurations/:name", may(auth.GroupsCreate, auth.GroupsUpdate), a.putConfiguration)
	r.DELETE("/api/configurations/:name", may(auth.GroupsDelete), a.deleteConfiguration)

	r.GET("/api/instances", may(auth.InstancesView), a.listInstances)
	r.POST("/api/instances", may(auth.GroupsStart), a.createInstance)
	r.GET("/api/instances/:id", a.cfg.AllowSelf(auth.InstancesView), a.getInstance)
	r.DELETE("/api/instances/:id", may(auth.InstancesStop), a.stopInstance)
	r.PATCH("/api/instances/:id/lifecycle", may(auth.GroupsStart, auth.InstancesStop), a.lifecycle)
	r.POST("/api/instances/:id/execute", may(auth.InstancesCommand), a.execute)
	r.GET("/api/instances/:id/logs", may(auth.InstancesConsole), a.logs)
	r.PUT("/api/instances/:id/state", a.cfg.AllowSelf(auth.InstancesCommand), a.putState)

	r.GET("/api/cluster/nodes", may(auth.NodesView), a.listNodes)
	r.GET("/api/cluster/nodes/:id", may(auth.NodesView), a.getNode)

	a.mountTemplates(r)
}

func (a *API) mountTemplates(r gin.IRoutes) {
	view := a.cfg.Allow(auth.TemplatesView)
	r.GET("/api/templates", view, a.listTemplates)
	r.GET("/api/templates/:group/:name", view, a.getTemplate)
	r.GET("/api/templates/:group/:name/files", view, a.listFiles)
	r.GET("/api/templates/:group/:name/files/*path", view, a.getFile)
	r.POST("/api/templates/:group/:name/export", view, a.exportTemplate)
	r.POST("/api/templates/sync", a.cfg.Allow(auth.TemplatesUpdate), a.syncTemplates)
	r.POST("/api/templates/:group/:name/sync", a.cfg.Allow(auth.TemplatesUpdate), a.syncTemplate)
	// what writes makes what is not there, as this dialect always did
	write := a.cfg.Allow(auth.TemplatesCreate, auth.TemplatesUpdate)
	r.PATCH("/api/templates/:group/:name/files/*path", write, a.patchFile)
	r.POST("/api/templates/:group/:name/files/*path", write, a.postFile)
	r.DELETE("/api/templates/:group/:name/files/*path", a.cfg.Allow(auth.TemplatesUpdate), a.deleteFile)
	r.POST("/api/templates/:group/:name/import", write, a.importTemplate)
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

// body reads a JSON body; fields nobody knows are ignored and named in a Warning.
func body(c *gin.Context, into any) error {
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
