// Package wakeup listens on the port of a sleeping instance. It answers the status pings of
// Minecraft's Java and Bedrock editions, tells a player who joins that the server starts, and reports
// what asks the instance to wake.
//
// It trusts nothing that a client sends. Everything is bounded: the connections, their duration, the
// size of packets, and the number of answers per second.
package wakeup

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/orreryhq/orrery/libs/fleet/sleep"
	"github.com/orreryhq/orrery/libs/pause"
)

const (
	// maxConns bounds the connections that are served at once, and connTime the time of each.
	maxConns = 64
	connTime = 5 * time.Second
	// perSecond and burst bound the connections, and separately the datagrams, that are answered.
	perSecond = 100
	burst     = 200
	// quietTime is how long after the instance fell asleep connections wake it that are not joins.
	// Scanners connect to every port all the time. Without a limit they would keep each server awake.
	quietTime = time.Minute
	// The pause before another attempt to listen doubles from firstRetry to lastRetry.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// starting is what clients see once the instance is asked to wake.
const starting = "starting, rejoin in a moment"

// Config describes a sleeping instance.
type Config struct {
	// Port is its main port.
	Port int
	// Rules are those of its plan.
	Rules sleep.Rules
	// MaxPlayers is shown in the server list.
	MaxPlayers int
	// Since is when it fell asleep.
	Since time.Time
	// Now reads the clock.
	Now func() time.Time
	// Call is called when something asks it to wake. It must not block, and may be called repeatedly.
	Call func(sleep.Call)
	Log  *slog.Logger
}

// Serve listens for TCP and UDP until ctx ends. Then it closes all sockets before it returns. While
// another program uses the port, it retries.
func Serve(ctx context.Context, cfg Config) {
	s := &server{Config: cfg}
	var both sync.WaitGroup
	both.Go(func() { s.retry(ctx, "TCP", s.serveTCP) })
	both.Go(func() { s.retry(ctx, "UDP", s.serveUDP) })
	both.Wait()
}

// server serves one instance.
type server struct {
	Config
	called atomic.Bool
}

// retry listens again after an error.
func (s *server) retry(ctx context.Context, protocol string, serve func(context.Context) error) {
	for wait := firstRetry; ctx.Err() == nil; wait = min(2*wait, lastRetry) {
		err := serve(ctx)
		if ctx.Err() != nil {
			return
		}
		if wait == firstRetry {
			s.Log.Warn("cannot listen on the port of a sleeping instance: retrying", "port", s.Port, "protocol", protocol, "error", err)
		}
		pause.For(ctx, wait)
	}
}

func (s *server) address() string { return ":" + strconv.Itoa(s.Port) }

// text is what the server list shows.
func (s *server) text() string {
	if s.called.Load() {
		return starting
	}
	return s.Rules.Text()
}

// join reports a player who joins.
func (s *server) join(player string) {
	s.called.Store(true)
	s.Call(sleep.Call{Join: true, Player: player, At: s.Now().UTC()})
}

// connection reports a connection or datagram that is not a join.
func (s *server) connection() {
	if s.Rules.Wakes() != sleep.WakeOnConnect || s.Now().Sub(s.Since) < quietTime {
		return
	}
	s.called.Store(true)
	s.Call(sleep.Call{At: s.Now().UTC()})
}

func (s *server) serveTCP(ctx context.Context) error {
	l, err := net.Listen("tcp", s.address())
	if err != nil {
		return err
	}
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer l.Close()
	limit, free := rate.NewLimiter(perSecond, burst), make(chan struct{}, maxConns)
	for {
		c, err := l.Accept()
		var temporary net.Error
		switch {
		case err == nil:
		case errors.As(err, &temporary) && temporary.Timeout():
			continue
		default:
			return err
		}
		select {
		case free <- struct{}{}:
		default:
			_ = c.Close()
			continue
		}
		if !limit.Allow() {
			_ = c.Close()
			<-free
			continue
		}
		conns.Go(func() {
			defer func() { <-free }()
			stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
			defer stop()
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(connTime))
			s.serveJava(c)
		})
	}
}

func (s *server) serveUDP(ctx context.Context) error {
	c, err := net.ListenPacket("udp", s.address())
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer c.Close()
	limit, buf := rate.NewLimiter(perSecond, burst), make([]byte, maxDatagram)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return err
		}
		if !limit.Allow() {
			continue
		}
		if answer := s.answerBedrock(buf[:n]); answer != nil {
			_, _ = c.WriteTo(answer, from)
		}
	}
}
