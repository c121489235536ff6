package shell

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/command"
	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/socket"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

const (
	// streamName is what a ticket for the console is bound to.
	streamName = "commands"
	// maxTyped bounds one message of a client, in bytes.
	maxTyped = 64 << 10
	// maxWaiting is how many commands wait for the one that runs.
	maxWaiting = 16
	// aliveEvery is the pause between signs of life.
	aliveEvery = 15 * time.Second
)

// errSlow is what ends a console whose client does not keep up.
var errSlow = errors.New("the client is slow to take what a command says")

// ticket answers with a ticket for the console, bound to the caller's token.
func (s *Shell) ticket(c *gin.Context) {
	who, _ := server.Identity(c)
	if err := s.cfg.Commands.Serves(who); err != nil {
		server.Fail(c, err)
		return
	}
	var ticket string
	err := operate.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		ticket, err = s.cfg.Tickets.Issue(ctx, fleet.Ticket{Credential: who.Credential(), Stream: streamName})
		return err
	})
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, gin.H{"ticket": ticket, "expiresInSeconds": int(s.cfg.Tickets.TTL() / time.Second)})
}

// opener is the credential of who opens the console: by a ticket or the usual credentials.
// Denied when there is nothing to be done there for them.
func (s *Shell) opener(c *gin.Context) (fleet.Credential, error) {
	ticket, ok := server.Ticket(c)
	if !ok {
		who, ok := server.Identity(c)
		if !ok {
			return fleet.Credential{}, errs.New(errs.Unauthenticated, "send a ticket, or a token")
		}
		return who.Credential(), s.cfg.Commands.Serves(who)
	}
	var record fleet.Ticket
	err := operate.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		record, err = s.cfg.Tickets.Use(ctx, ticket, func(t fleet.Ticket) bool { return t.Stream == streamName })
		return err
	})
	if err != nil {
		return record.Credential, err
	}
	who, err := s.cfg.Auth.Judge(record.Credential)
	if err != nil {
		return record.Credential, err
	}
	return record.Credential, s.cfg.Commands.Serves(who)
}

// console runs what the client of a WebSocket sends, one command a text message, and sends
// what they say, one line a text message. A message that ends in a TAB is completed.
func (s *Shell) console(c *gin.Context) {
	credential, err := s.opener(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	watch := func(ctx context.Context) (context.Context, func(), error) { return s.cfg.Auth.While(ctx, credential) }
	s.room.Upgrade(c, credential, watch, maxTyped, func(ctx context.Context, conn *websocket.Conn) {
		t := &terminal{
			shell: s, credential: credential, by: operate.Actor{User: credential.User, IP: c.ClientIP()},
			Socket: socket.Socket{Conn: conn, Timeout: s.cfg.WriteTimeout}, lines: make(chan string, maxWaiting),
		}
		t.serve(ctx)
	})
}

// terminal is an open console.
type terminal struct {
	socket.Socket
	shell      *Shell
	credential fleet.Credential
	by         operate.Actor
	// lines wait to be run.
	lines chan string
	// waited is how long the client was waited for while the present command spoke.
	waited time.Duration
}

// serve runs commands until the client goes or leaves, may no more, or ctx ends.
func (t *terminal) serve(ctx context.Context) {
	ctx, gone := context.WithCancel(ctx)
	// What is read with a context that ends cuts the connection, and no reason would come through.
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { defer gone(); t.read(reading) })
	running.Go(func() { defer gone(); t.keepAlive(ctx) })
	status, reason := t.run(ctx)
	if reason != "" {
		_ = t.Conn.Close(status, socket.Clipped(reason))
	} else {
		t.shell.room.Bye(t.Conn)
	}
	gone()
	stop()
	running.Wait()
}

// read takes commands until the client goes.
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

// completed is the answer to a line that ends in a TAB: the line, and below it the words that
// its last one may be. What commands say is never of several lines.
func (t *terminal) completed(line string) string {
	if strings.ContainsAny(line, "\r\n") {
		return "a line that is to be completed must not have line breaks in it"
	}
	who, err := t.shell.cfg.Auth.Judge(t.credential)
	if err != nil { // which is about to close the console
		return ""
	}
	return strings.ToValidUTF8(line, "\uFFFD") + "\n" + strings.Join(t.shell.cfg.Commands.Complete(who, line), "\n")
}

// keepAlive finds out when the client has gone without a word.
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

// run runs commands one after the other, and returns what the console closes with;
// without a reason the client has gone, or ctx has ended.
func (t *terminal) run(ctx context.Context) (websocket.StatusCode, string) {
	for {
		var line string
		select {
		case line = <-t.lines:
		case <-ctx.Done():
			return 0, ""
		}
		who, err := t.shell.cfg.Auth.Judge(t.credential)
		if err != nil {
			return websocket.StatusPolicyViolation, errs.MessageOf(err)
		}
		t.waited = 0
		err = t.shell.cfg.Commands.Run(ctx, command.Session{By: t.by, Who: who, Node: t.shell.cfg.NodeID, Say: t.say}, line)
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

// muteError is that the client takes nothing any more.
type muteError struct{ error }

// say sends a line, which ends a client that keeps a command waiting.
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
