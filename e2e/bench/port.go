package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const (
	// portKills is how often one server is killed, or how many servers are.
	portKills = 20
	// portClients is how many connections a server has when it is killed.
	portClients = 4
	// firstFixedPort is the fixed port of the first server.
	firstFixedPort = 21000
)

// measurePort kills static servers with a fixed port and open connections, and measures how
// long they take to be ready again.
func measurePort(ctx context.Context, b *bench) error {
	program, err := b.build(ctx, "./e2e/bench/holdport")
	if err != nil {
		return err
	}
	s, err := b.startStandalone(ctx, "-memory", "1000000", "-cpu", "1000000")
	if err != nil {
		return err
	}
	defer s.stop()
	events, err := s.events(ctx)
	if err != nil {
		return err
	}
	defer events.close()
	m := &portMeter{s: s, events: events, program: program}
	for n, network := range []string{"tcp", "udp"} {
		took, moved, err := m.oneAfterAnother(ctx, "port-"+network, "-network "+network, firstFixedPort+n)
		if err != nil {
			return err
		}
		b.reportReturns("port_"+network, took, moved, -1)
	}
	took, moved, err := m.allAtOnce(ctx, "-reuse=false", firstFixedPort+10)
	if err != nil {
		return err
	}
	const kept = 60 // seconds for which Linux keeps the connections of a killed server
	b.reportReturns("port_tcp_without_reuse", took, moved, kept)
	return nil
}

func (b *bench) reportReturns(id string, took []time.Duration, moved int, limit float64) {
	b.report(id+"_p50_s", quantile(took, 0.5)/1000, "s", limit)
	b.report(id+"_max_s", slices.Max(took).Seconds(), "s", limit)
	b.report(id+"_moved", float64(moved), "servers", 0)
}

// portMeter runs servers with a fixed port.
type portMeter struct {
	s       *server
	events  *eventStream
	program string
}

// fixed is a ready server with a fixed port.
type fixed struct {
	group, uid string
	port       int
	clients    []net.Conn
	killed     time.Time
}

// start creates a group with one static server and waits until it is ready.
func (m *portMeter) start(ctx context.Context, group, args string, port int) (*fixed, error) {
	readiness := "port"
	if args == "-network udp" {
		readiness = "none"
	}
	spec := map[string]any{
		"name": group, "command": "exec " + m.program + " " + args, "static": true, "readiness": map[string]any{"type": readiness},
		"memoryMb": 16, "minInstances": 1, "maxInstances": 1, "portRangeStart": port, "portRangeEnd": port,
	}
	if err := m.s.call(ctx, http.MethodPost, "/api/v1/groups", spec, nil); err != nil {
		return nil, err
	}
	online, err := m.events.await(group, "RUNNING", "")
	return &fixed{group: group, uid: online.UID, port: port}, err
}

// kill opens connections to a server and kills it. Half of the clients then close their
// connections.
func (m *portMeter) kill(ctx context.Context, f *fixed, tcp bool) error {
	var i struct{ PID int }
	if err := m.s.call(ctx, http.MethodGet, "/api/v1/services/"+f.uid, nil, &i); err != nil {
		return err
	}
	for n := 0; tcp && n < portClients; n++ {
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(f.port))
		if err != nil {
			return err
		}
		f.clients = append(f.clients, c)
		if _, err := io.ReadFull(c, make([]byte, len("hello"))); err != nil {
			return err
		}
	}
	if i.PID <= 0 {
		return fmt.Errorf("%s has no process", f.uid)
	}
	f.killed = time.Now()
	if err := syscall.Kill(i.PID, syscall.SIGKILL); err != nil {
		return err
	}
	for n, c := range f.clients {
		if n%2 == 0 {
			_ = c.Close()
		}
	}
	return nil
}

// back waits until a killed server is ready again. moved is true when its ID or port has
// changed.
func (m *portMeter) back(ctx context.Context, f *fixed) (took time.Duration, moved bool, err error) {
	online, err := m.events.await(f.group, "RUNNING", "")
	if err != nil {
		return 0, false, err
	}
	for _, c := range f.clients {
		_ = c.Close()
	}
	f.clients = nil
	var i struct{ Port int }
	err = m.s.call(ctx, http.MethodGet, "/api/v1/services/"+online.UID, nil, &i)
	moved = online.UID != f.uid || i.Port != f.port
	f.uid = online.UID
	return online.at.Sub(f.killed), moved, err
}

// oneAfterAnother kills one server repeatedly. It changes the group each time, because
// crashes of an older revision cause no back-off.
func (m *portMeter) oneAfterAnother(ctx context.Context, group, args string, port int) (all []time.Duration, moved int, err error) {
	f, err := m.start(ctx, group, args, port)
	if err != nil {
		return nil, 0, err
	}
	for n := range portKills {
		if err := m.s.call(ctx, http.MethodPatch, "/api/v1/groups/"+group, map[string]any{"maxPlayers": n + 1}, nil); err != nil {
			return nil, 0, err
		}
		if err := m.kill(ctx, f, args == "-network tcp"); err != nil {
			return nil, 0, err
		}
		took, other, err := m.back(ctx, f)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, took)
		if other {
			moved++
		}
	}
	return all, moved, nil
}

// allAtOnce kills many servers at the same moment, because each is away for a minute.
func (m *portMeter) allAtOnce(ctx context.Context, args string, port int) (all []time.Duration, moved int, err error) {
	var servers []*fixed
	for n := range portKills {
		f, err := m.start(ctx, "port-alone"+strconv.Itoa(n), args, port+n)
		if err != nil {
			return nil, 0, err
		}
		servers = append(servers, f)
	}
	for _, f := range servers {
		if err := m.kill(ctx, f, true); err != nil {
			return nil, 0, err
		}
	}
	for _, f := range servers {
		took, other, err := m.back(ctx, f)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, took)
		if other {
			moved++
		}
	}
	return all, moved, nil
}
