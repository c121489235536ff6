package driver

import (
	"context"
	"errors"
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/rcon"
)

// rconTimeout bounds one command over a remote console.
const rconTimeout = 5 * time.Second

// RCON sends the server a command over its remote console and returns the answer. Conflict
// if the instance does not run, its group has no remote console, or the server does not
// answer or refuses the password. Invalid for a command that cannot be sent.
func (i *Instance) RCON(ctx context.Context, command string) (rcon.Answer, error) {
	const op = "driver.RCON"
	if validate.HasControl(command) {
		return rcon.Answer{}, errs.Field("command", "must not contain control characters other than tab")
	}
	i.mu.Lock()
	l, p := i.live, i.built
	i.mu.Unlock()
	switch {
	case l.Held:
		return rcon.Answer{}, errHeld
	case !l.Status.State.Running():
		return rcon.Answer{}, errs.New(errs.Conflict, "the instance %s: nothing answers its remote console", l.Status.State.Text())
	case !p.rcon():
		return rcon.Answer{}, errs.New(errs.Conflict, "its group had no remote console when the instance was created: set rcon and create another instance, or send the command to the console")
	}
	ctx, cancel := context.WithTimeout(ctx, rconTimeout)
	defer cancel()
	password, err := i.rconPassword(ctx, p)
	if err != nil {
		return rcon.Answer{}, &errs.Error{Op: op, Kind: errs.Conflict, Message: "cannot read the password of its remote console: " + errs.MessageOf(err), Err: err}
	}
	answer, err := rcon.Run(ctx, p.rconAddress(ctx, i.deps), password, command)
	if errs.Is(err, errs.Unavailable) || errs.Is(err, errs.Denied) { // a problem of the server, not of the agent
		return rcon.Answer{}, &errs.Error{Op: op, Kind: errs.Conflict, Message: errs.MessageOf(err), Err: err}
	}
	return answer, errs.Wrap(op, err)
}

// rcon reports whether the instance has a remote console.
func (p buildInfo) rcon() bool { return p.plan.RCON.Port != "" }

func (p buildInfo) rconPort() int {
	for name, port := range p.placement.Ports {
		if strings.EqualFold(name, p.plan.RCON.Port) {
			return port
		}
	}
	return 0
}

// rconAddress is the first address on which the remote console listens, or the last candidate.
func (p buildInfo) rconAddress(ctx context.Context, d *Deps) string {
	all := hosts(p.plan, p.placement, d.Node(), d.apiURL(p.plan))
	port := strconv.Itoa(p.rconPort())
	for _, host := range all[:len(all)-1] {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return net.JoinHostPort(host, port)
		}
	}
	return net.JoinHostPort(all[len(all)-1], port)
}

// rconPassword resolves the remote console's password.
func (i *Instance) rconPassword(ctx context.Context, p buildInfo) (string, error) {
	held, err := i.runSecrets(ctx, p.plan, p.placement)
	if err != nil {
		return "", err
	}
	values, _, _ := i.deps.values(p.plan, p.placement, p.nodeValues)
	maps.Copy(values, held)
	password, _ := render.Substitute(p.plan.RCON.Password, values)
	return password, nil
}
