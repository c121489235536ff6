package shell

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/command"
	"github.com/orreryhq/orrery/apigateway/internal/events"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/socket"
	"github.com/orreryhq/orrery/apigateway/internal/universe"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// Defaults of a Config.
const (
	DefaultMaxConsoles  = 64
	DefaultPatience     = 30 * time.Second
	DefaultWriteTimeout = 10 * time.Second
)

// Config is what the shell needs; what has no default is required.
type Config struct {
	Commands   *command.Interpreter
	Operations *operate.Operations
	Auth       *auth.Service
	Tickets    *events.Tickets
	// NodeID is this gateway's own node, as far as there is one of that name.
	NodeID fleet.NodeID
	// Origins are those whose pages may open a WebSocket; "*" allows any.
	Origins func() []string
	// MaxConsoles is the number of WebSockets at a time. 0 means DefaultMaxConsoles.
	MaxConsoles int
	// OfUser is how many of them one user has, half of all at most. 0 means places.DefaultOfUser.
	OfUser int
	// Patience is how long a request waits for its command. 0 means DefaultPatience.
	Patience time.Duration
	// WriteTimeout is how long the client of a WebSocket may take for what one command
	// says, while it has to be waited for. 0 means DefaultWriteTimeout.
	WriteTimeout time.Duration
	Metrics      *telemetry.Metrics
}

// Shell serves commands.
type Shell struct {
	cfg  Config
	room *socket.Room
}

// New wires the shell. Close it.
func New(cfg Config) *Shell {
	cfg.MaxConsoles = cmp.Or(cfg.MaxConsoles, DefaultMaxConsoles)
	cfg.Patience = cmp.Or(cfg.Patience, DefaultPatience)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, DefaultWriteTimeout)
	s := &Shell{cfg: cfg, room: socket.NewRoom(cfg.MaxConsoles, cfg.OfUser, "consoles for commands", cfg.Origins)}
	cfg.Metrics.GaugeFunc("command", "consoles", "Consoles for commands open now.", func() float64 { return float64(s.room.Open()) })
	return s
}

// Close ends all WebSockets and refuses new ones.
func (s *Shell) Close() { s.room.Close() }

// Routes are all the shell serves. What a command demands is judged when it is read.
func (s *Shell) Routes() []server.Route {
	return server.Under("/api",
		server.Post("/commands/execute", server.Anyone, s.execute),
		server.Post("/cluster/nodes/:id/command", server.Anyone, s.executeOn),
		server.Post("/cluster/nodes/:id", server.Anyone, s.executeOn),
		server.Post("/console/ticket", server.Anyone, s.ticket).IssuesTickets(),
		server.Get("/console", server.Ticketed, s.console),
	)
}

// answer is what came of a command.
type answer struct {
	Command string   `json:"command"`
	Output  []string `json:"output"`
	Success bool     `json:"success"`
	// Error is the last line of Output when it was not done.
	Error string `json:"error,omitempty"`
}

func (s *Shell) execute(c *gin.Context) { s.run(c, s.cfg.NodeID) }

// executeOn runs a command as on the console of a node.
func (s *Shell) executeOn(c *gin.Context) {
	n, ok := universe.FindNode(s.cfg.Operations.Snapshot(), c.Param("id"))
	if !ok {
		server.Fail(c, errs.New(errs.NotFound, "Node not found"))
		return
	}
	s.run(c, n.ID)
}

// run runs the command of a request and answers with all it says. Who may not run it gets
// a 403; whatever else keeps it from being done is told in the answer.
func (s *Shell) run(c *gin.Context, node fleet.NodeID) {
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
	ctx, cancel := context.WithTimeout(c.Request.Context(), s.cfg.Patience)
	defer cancel()
	who, _ := server.Identity(c)
	out := answer{Command: b.Command, Output: []string{}, Success: true}
	err := s.cfg.Commands.Run(ctx, command.Session{
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
		out.Error = "the command did not end within " + s.cfg.Patience.String() + ": what it has begun may go on"
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
