package health

import (
	"context"
	"errors"
	"regexp"
	"runtime/trace"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/probe"
)

// Server is one run of a server for checks. All fields except Ports and Ping are required.
type Server struct {
	// Hosts are the addresses on which it may listen. The next one is probed only if the
	// previous one refuses connections. Port is its main port, or 0, and Ports are the
	// additional ones by name.
	Hosts []string
	Port  int
	Ports map[string]int
	// Log is the file with its output, LogFrom the offset of this run's output, and Logs
	// notifies of changes.
	Log     string
	LogFrom int64
	Logs    *console.Follower
	// Heartbeats holds its heartbeats, and Ping is the probe of fleet.CheckAny.
	Heartbeats *Heartbeats
	Ping       fleet.Check
	// OnPlayers receives the number of players from an answer. It must not block.
	OnPlayers func(players, maxPlayers int)
	// OnUnready receives each change of the cause why the server is not ready. It must not
	// block.
	OnUnready func(why string)
}

// CheckPossible returns an Invalid error with the cause if a check can never pass for a server
// with these ports.
func CheckPossible(c fleet.Check, port int, ports map[string]int) (err error) {
	switch c.Type {
	case fleet.CheckNone, fleet.CheckHeartbeat, fleet.CheckAny, "":
	case fleet.CheckLog:
		_, err = pattern(c)
	case fleet.CheckPort, fleet.CheckUDP, fleet.CheckHTTP, fleet.CheckMinecraft, fleet.CheckBedrock, fleet.CheckA2S:
		if _, err = (Server{Port: port, Ports: ports}).port(c); err == nil {
			_, err = pattern(c)
		}
	}
	return err
}

// pattern compiles the pattern of a check. Invalid if it is not a regular expression.
func pattern(c fleet.Check) (*regexp.Regexp, error) {
	p, err := regexp.Compile(c.Pattern)
	if err != nil {
		return nil, errs.New(errs.Invalid, "its pattern is not a regular expression (%v)", err)
	}
	return p, nil
}

// port is the port of a check. Invalid if the server does not have it.
func (s Server) port(c fleet.Check) (int, error) {
	if c.Port == "" {
		if s.Port == 0 {
			return 0, errs.New(errs.Invalid, "it has no port to probe")
		}
		return s.Port, nil
	}
	for name, port := range s.Ports {
		if strings.EqualFold(name, c.Port) {
			return port, nil
		}
	}
	return 0, errs.New(errs.Invalid, "it has no additional port %s to probe", c.Port)
}

// ask probes the server once and reports its players.
func (s Server) ask(ctx context.Context, c fleet.Check, timeout time.Duration) error {
	defer trace.StartRegion(ctx, "probe").End()
	port, err := s.port(c)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := s.askHosts(within, c, port)
	if err == nil && answer.PlayersKnown && ctx.Err() == nil {
		s.OnPlayers(answer.Players, answer.MaxPlayers)
	}
	return err
}

// askHosts probes the hosts until one does not refuse. If all refuse, it returns the error
// of the first.
func (s Server) askHosts(ctx context.Context, c fleet.Check, port int) (answer probe.Answer, err error) {
	for n, host := range s.Hosts {
		a, asked := probe.Ask(ctx, c, host, port)
		if !errors.Is(asked, unix.ECONNREFUSED) {
			return a, asked
		}
		if n == 0 {
			answer, err = a, asked
		}
	}
	return answer, err
}
