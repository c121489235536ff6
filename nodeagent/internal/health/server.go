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
	"github.com/orreryhq/orrery/nodeagent/internal/console"
	"github.com/orreryhq/orrery/nodeagent/internal/probe"
)

// Server is one run of a server as it can be asked. Every field but Ports and Ping is required.
type Server struct {
	// Hosts are where it may listen: the next one is asked only where nobody listens on
	// the one before. Port is its main port, 0 when it has none, and Ports the additional
	// ones by name.
	Hosts []string
	Port  int
	Ports map[string]int
	// Log is the file that takes its output, LogFrom where this run's begins, and Logs
	// tells of more.
	Log     string
	LogFrom int64
	Logs    *console.Follower
	// Pulse is what it says of itself, and Ping what fleet.CheckAny asks beside it.
	Pulse *Pulse
	Ping  fleet.Check
	// Heard takes what an answer says of players. It must not block.
	Heard func(players, maxPlayers int)
	// Unready takes why the server is not ready yet, as often as that changes. It must
	// not block.
	Unready func(why string)
}

// Answerable refuses a check that can never be passed, whatever a server with these ports
// does: Invalid, and why.
func Answerable(c fleet.Check, port int, ports map[string]int) (err error) {
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

// pattern is what a check looks for. Invalid when that cannot be read.
func pattern(c fleet.Check) (*regexp.Regexp, error) {
	p, err := regexp.Compile(c.Pattern)
	if err != nil {
		return nil, errs.New(errs.Invalid, "its pattern is no regular expression (%v)", err)
	}
	return p, nil
}

// port is the one a check asks. Invalid when the server has none such.
func (s Server) port(c fleet.Check) (int, error) {
	if c.Port == "" {
		if s.Port == 0 {
			return 0, errs.New(errs.Invalid, "it has no port that could be asked")
		}
		return s.Port, nil
	}
	for name, port := range s.Ports {
		if strings.EqualFold(name, c.Port) {
			return port, nil
		}
	}
	return 0, errs.New(errs.Invalid, "it has no additional port %s that could be asked", c.Port)
}

// ask asks once and passes on what the answer says of players.
func (s Server) ask(ctx context.Context, c fleet.Check, timeout time.Duration) error {
	defer trace.StartRegion(ctx, "probe").End()
	port, err := s.port(c)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := s.askAnywhere(within, c, port)
	if err == nil && answer.Told && ctx.Err() == nil {
		s.Heard(answer.Players, answer.MaxPlayers)
	}
	return err
}

// askAnywhere asks where somebody listens. Where nobody does, the error is the first host's.
func (s Server) askAnywhere(ctx context.Context, c fleet.Check, port int) (answer probe.Answer, err error) {
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
