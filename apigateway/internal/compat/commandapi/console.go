package commandapi

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/compat/command"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/stream/socket"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

const (
	// streamName is the stream that console tickets are bound to.
	streamName = "commands"
	// maxTyped limits a client message, in bytes.
	maxTyped = 64 << 10
	// maxWaiting limits the queued commands.
	maxWaiting = 16
	// aliveEvery is the interval of pings.
	aliveEvery = 15 * time.Second
)

// errSlow ends the console of a client that does not keep up.
var errSlow = errors.New("the client is slow to take what a command says")

// ticket issues a ticket for the console, bound to the caller's token.
func (a *API) ticket(c *gin.Context) {
	who, _ := server.Identity(c)
	if err := a.cfg.Commands.Serves(who); err != nil {
		server.Fail(c, err)
		return
	}
	a.cfg.Tickets.Send(c, account.Ticket{Credential: who.Credential(), Stream: streamName})
}

// opener authenticates the caller by ticket or token. It returns Denied if the caller may run no
// command.
func (a *API) opener(c *gin.Context) (account.Credential, error) {
	ticket, ok := server.Ticket(c)
	if !ok {
		who, ok := server.Identity(c)
		if !ok {
			return account.Credential{}, errs.New(errs.Unauthenticated, "send a ticket, or a token")
		}
		return who.Credential(), a.cfg.Commands.Serves(who)
	}
	record, err := a.cfg.Tickets.Redeem(c.Request.Context(), ticket, streamName)
	if err != nil {
		return record.Credential, err
	}
	who, err := a.cfg.Auth.Judge(record.Credential)
	if err != nil {
		return record.Credential, err
	}
	return record.Credential, a.cfg.Commands.Serves(who)
}

// console runs the commands of a WebSocket client. Each text message is one command, and each line of
// output is one message. A message that ends in a TAB is completed instead.
func (a *API) console(c *gin.Context) {
	credential, err := a.opener(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	watch := func(ctx context.Context) (context.Context, func(), error) { return a.cfg.Auth.While(ctx, credential) }
	a.pool.Upgrade(c, credential, watch, maxTyped, func(ctx context.Context, conn *websocket.Conn) {
		t := &terminal{
			api: a, credential: credential, by: txn.Actor{User: credential.User, IP: c.ClientIP()},
			Socket: socket.Socket{Conn: conn, Timeout: a.cfg.WriteTimeout}, lines: make(chan string, maxWaiting),
		}
		t.serve(ctx)
	})
}

// terminal is an open console.
type terminal struct {
	socket.Socket
	api        *API
	credential account.Credential
	by         txn.Actor
	// lines are the queued commands.
	lines chan string
	// waited is how long slow reads of the client have delayed the current command.
	waited time.Duration
}

// serve runs commands until the client leaves or loses its permissions, or ctx ends.
func (t *terminal) serve(ctx context.Context) {
	ctx, gone := context.WithCancel(ctx)
	// Canceling the read context would cut the connection without a close reason.
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { defer gone(); t.read(reading) })
	running.Go(func() { defer gone(); t.keepAlive(ctx) })
	status, reason := t.run(ctx)
	if reason != "" {
		_ = t.Conn.Close(status, socket.Truncated(reason))
	} else {
		t.api.pool.CloseEnded(t.Conn)
	}
	gone()
	stop()
	running.Wait()
}

// read receives commands until the client disconnects.
func (t *terminal) read(ctx context.Context) {
	for {
		kind, line, err := t.Conn.Read(ctx)
		if err != nil {
			return
		}
		answer := ""
		begun, completes := strings.CutSuffix(string(line), "\t")
		switch {
		case kind != websocket.MessageText:
			answer = "a command must come as a text message of its own"
		case completes:
			answer = t.completed(begun)
		default:
			select {
			case t.lines <- string(line):
			default:
				answer = "the command was not run, since many others wait: send it again in a moment"
			}
		}
		if answer != "" && t.Text([]byte(answer)) != nil {
			return
		}
	}
}

// completed answers a line that ends in a TAB: the first line repeats it, the others are candidates for
// its last word. Output of commands never has several lines.
func (t *terminal) completed(line string) string {
	if strings.ContainsAny(line, "\r\n") {
		return "a line that is to be completed must not have line breaks in it"
	}
	who, err := t.api.cfg.Auth.Judge(t.credential)
	if err != nil { // which is about to close the console
		return ""
	}
	return strings.ToValidUTF8(line, "\uFFFD") + "\n" + strings.Join(t.api.cfg.Commands.Complete(who, line), "\n")
}

// keepAlive detects clients that have gone silently.
func (t *terminal) keepAlive(ctx context.Context) {
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if t.Ping(ctx) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// run runs the queued commands and returns the close status and reason. Without a reason the client has
// disconnected or ctx has ended.
func (t *terminal) run(ctx context.Context) (websocket.StatusCode, string) {
	for {
		var line string
		select {
		case line = <-t.lines:
		case <-ctx.Done():
			return 0, ""
		}
		who, err := t.api.cfg.Auth.Judge(t.credential)
		if err != nil {
			return websocket.StatusPolicyViolation, errs.MessageOf(err)
		}
		t.waited = 0
		err = t.api.cfg.Commands.Run(ctx, command.Session{By: t.by, Who: who, Node: t.api.cfg.NodeID, Say: t.say}, line)
		var mute *muteError
		switch {
		case err == nil:
		case errors.Is(err, command.ErrLeave):
			return websocket.StatusNormalClosure, "left"
		case errors.Is(err, errSlow):
			return websocket.StatusPolicyViolation, "you are too slow to take what commands say: connect again and ask for less"
		case errors.As(err, &mute), ctx.Err() != nil:
			return 0, ""
		default:
			if t.say(command.Explain(err)) != nil {
				return 0, ""
			}
		}
	}
}

// muteError means that the client no longer reads.
type muteError struct{ error }

// say sends a line. It disconnects a client that delays a command for too long.
func (t *terminal) say(line string) error {
	began := time.Now()
	if err := t.Text([]byte(strings.ToValidUTF8(line, "\uFFFD"))); err != nil {
		return &muteError{err}
	}
	if t.waited += time.Since(began); t.waited > t.Timeout {
		return errSlow
	}
	return nil
}
