package commandapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/compat/command"
	"github.com/orreryhq/orrery/apigateway/internal/compat/universe"
	"github.com/orreryhq/orrery/apigateway/internal/ops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/apigateway/internal/stream/socket"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// Defaults of Config.
const (
	DefaultMaxConsoles  = 64
	DefaultPatience     = 30 * time.Second
	DefaultWriteTimeout = 10 * time.Second
)

// Config has what the API needs. Fields without a default are required.
type Config struct {
	Commands   *command.Interpreter
	Operations *ops.Operations
	Auth       *auth.Service
	Tickets    *events.Tickets
	// NodeID is the node with this gateway's name, if there is one.
	NodeID fleet.NodeID
	// Origins returns the origins whose pages may open a WebSocket; "*" allows any.
	Origins func() []string
	// MaxConsoles limits the concurrent WebSockets. 0 means DefaultMaxConsoles.
	MaxConsoles int
	// PerUser limits those of one user, to at most half of all. 0 means streamlimit.DefaultPerUser.
	PerUser int
	// Patience limits how long a request waits for its command. 0 means DefaultPatience.
	Patience time.Duration
	// WriteTimeout limits the total time that a WebSocket client may delay one command by reading slowly.
	// 0 means DefaultWriteTimeout.
	WriteTimeout time.Duration
	Metrics      *telemetry.Metrics
}

// API serves commands.
type API struct {
	cfg  Config
	pool *socket.Pool
}

// New returns the API. Close it at the end.
func New(cfg Config) *API {
	cfg.MaxConsoles = cmp.Or(cfg.MaxConsoles, DefaultMaxConsoles)
	cfg.Patience = cmp.Or(cfg.Patience, DefaultPatience)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, DefaultWriteTimeout)
	a := &API{cfg: cfg, pool: socket.NewPool(cfg.MaxConsoles, cfg.PerUser, "consoles for commands", cfg.Origins)}
	cfg.Metrics.GaugeFunc("command", "consoles", "Consoles for commands open now.", func() float64 { return float64(a.pool.Len()) })
	return a
}

// Close ends all WebSockets and refuses new ones.
func (a *API) Close() { a.pool.Close() }

// Routes returns all routes. Permissions are checked when a command is parsed.
func (a *API) Routes() []server.Route {
	return server.Under("/api",
		server.Post("/commands/execute", server.Anyone, a.execute),
		server.Post("/cluster/nodes/:id/command", server.Anyone, a.executeOn),
		server.Post("/cluster/nodes/:id", server.Anyone, a.executeOn),
		server.Post("/console/ticket", server.Anyone, a.ticket).IssuesTickets(),
		server.Get("/console", server.Ticketed, a.console),
	)
}

// answer is the result of a command.
type answer struct {
	Command string   `json:"command"`
	Output  []string `json:"output"`
	Success bool     `json:"success"`
	// Error is the last line of Output if the command failed.
	Error string `json:"error,omitempty"`
}

func (a *API) execute(c *gin.Context) { a.run(c, a.cfg.NodeID) }

// executeOn runs a command on the console of a node.
func (a *API) executeOn(c *gin.Context) {
	n, ok := universe.FindNode(a.cfg.Operations.Snapshot(), c.Param("id"))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "Node not found"))
		return
	}
	a.run(c, n.ID)
}

// run runs the command of a request and sends its output. It answers 403 if the caller lacks the
// permission; other failures are part of the result.
func (a *API) run(c *gin.Context, node fleet.NodeID) {
	var b struct {
		Command string `json:"command"`
	}
	if err := universe.Body(c, &b); err != nil {
		server.Fail(c, err)
		return
	}
	if strings.TrimSpace(b.Command) == "" {
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "command", Message: "command is missing: send the line to run; help lists the commands"})
		return
	}
	server.Unhurried(c)
	ctx, cancel := context.WithTimeout(c.Request.Context(), a.cfg.Patience)
	defer cancel()
	who, _ := server.Identity(c)
	out := answer{Command: b.Command, Output: []string{}, Success: true}
	err := a.cfg.Commands.Run(ctx, command.Session{
		By: server.Actor(c), Who: who, Node: node,
		Say: func(line string) error { out.Output = append(out.Output, line); return nil },
	}, b.Command)
	switch {
	case errs.Is(err, errs.Denied):
		server.Fail(c, err)
		return
	case errors.Is(err, command.ErrLeave):
		out.Error = "there is no console to leave here; a gateway is stopped where it was started"
	case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		out.Error = "the command did not end within " + a.cfg.Patience.String() + ", and its operations may still finish"
	case err != nil:
		_ = c.Error(err) // for the access log
		out.Error = command.Explain(err)
	}
	if out.Error != "" {
		out.Success, out.Output = false, append(out.Output, out.Error)
		server.Undone(c)
	}
	c.JSON(http.StatusOK, out)
}
