package universe

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

// Config is what the dialect needs.
type Config struct {
	View       *view.View
	Operations Operations
	Agents     Agents
	// NodeID names this gateway in the ping, and its own host's node in the list of
	// nodes if there is one of that name.
	NodeID string
	// ClusterName is told in the ping.
	ClusterName string
	// By is who makes a request, for the records that say who asked.
	By func(*gin.Context) string
	// Now is the clock by which finished instances are left out of lists.
	Now func() time.Time
}

// API serves the dialect.
type API struct{ cfg Config }

// New wires the dialect.
func New(cfg Config) *API { return &API{cfg: cfg} }

// Mount adds the routes: to open those that need no credentials, to authed the
// others. Both stand for the root of the listener.
func (a *API) Mount(open, authed gin.IRoutes) {
	open.GET("/api/ping", a.ping)

	authed.GET("/api/configurations", a.listConfigurations)
	authed.GET("/api/configurations/:name", a.getConfiguration)
	authed.PUT("/api/configurations/:name", a.putConfiguration)
	authed.DELETE("/api/configurations/:name", a.deleteConfiguration)

	authed.GET("/api/instances", a.listInstances)
	authed.POST("/api/instances", a.createInstance)
	authed.GET("/api/instances/:id", a.getInstance)
	authed.DELETE("/api/instances/:id", a.stopInstance)
	authed.PATCH("/api/instances/:id/lifecycle", a.lifecycle)
	authed.POST("/api/instances/:id/execute", a.execute)
	authed.GET("/api/instances/:id/logs", a.logs)
	authed.PUT("/api/instances/:id/state", a.putState)

	authed.GET("/api/cluster/nodes", a.listNodes)
	authed.GET("/api/cluster/nodes/:id", a.getNode)

	authed.GET("/api/templates", a.listTemplates)
	authed.GET("/api/templates/:group/:name", a.getTemplate)
}

func (a *API) ping(c *gin.Context) {
	c.JSON(http.StatusOK, gin.H{"status": "ok", "nodeId": a.cfg.NodeID, "clusterName": a.cfg.ClusterName, "master": true})
}

func (a *API) snapshot() *view.Snapshot { return a.cfg.View.Snapshot() }

// fail answers with the dialect's envelope, in its words.
func fail(c *gin.Context, err error) {
	c.Abort()
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
