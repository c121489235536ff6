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
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/validate"
	"github.com/orreryhq/orrery/nodeagent/internal/content/render"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/rcon"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
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
	l, r := i.live, i.remote
	i.mu.Unlock()
	switch {
	case l.Held:
		return rcon.Answer{}, errHeld
	case !l.Status.State.Running():
		return rcon.Answer{}, errs.New(errs.Conflict, "the instance %s: nothing answers its remote console", l.Status.State.Text())
	case r == nil:
		return rcon.Answer{}, errs.New(errs.Conflict, "its group had no remote console when the instance was created: set rcon and create another instance, or send the command to the console")
	}
	ctx, cancel := context.WithTimeout(ctx, rconTimeout)
	defer cancel()
	password, err := i.passwordOf(ctx, r)
	if err != nil {
		return rcon.Answer{}, &errs.Error{Op: op, Kind: errs.Conflict, Message: "cannot read the password of its remote console: " + errs.MessageOf(err), Err: err}
	}
	answer, err := rcon.Run(ctx, r.address(ctx, i.deps), password, command)
	if errs.Is(err, errs.Unavailable) || errs.Is(err, errs.Denied) { // a problem of the server, not of the agent
		return rcon.Answer{}, &errs.Error{Op: op, Kind: errs.Conflict, Message: errs.MessageOf(err), Err: err}
	}
	return answer, errs.Wrap(op, err)
}

// remote is the remote console of a generation.
type remote struct {
	plan      fleet.Plan
	placement fleet.Placement
	around    *journal.NodeValues
}

// remoteOf is the remote console of a plan, or nil.
func remoteOf(plan fleet.Plan, p fleet.Placement, around *journal.NodeValues) *remote {
	if plan.RCON.Port == "" {
		return nil
	}
	return &remote{plan, p, around}
}

func (r *remote) port() int {
	for name, port := range r.placement.Ports {
		if strings.EqualFold(name, r.plan.RCON.Port) {
			return port
		}
	}
	return 0
}

// address is the first address on which the remote console listens, or the last candidate.
func (r *remote) address(ctx context.Context, k *Deps) string {
	all := hosts(r.plan, r.placement, k.Node(), k.APIURL())
	port := strconv.Itoa(r.port())
	for _, host := range all[:len(all)-1] {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return net.JoinHostPort(host, port)
		}
	}
	return net.JoinHostPort(all[len(all)-1], port)
}

// passwordOf resolves the remote console's password.
func (i *Instance) passwordOf(ctx context.Context, r *remote) (string, error) {
	held, err := i.runSecrets(ctx, r.plan, r.placement)
	if err != nil {
		return "", err
	}
	values, _, _ := i.deps.values(r.plan, r.placement, r.around)
	maps.Copy(values, held)
	password, _ := render.Substitute(r.plan.RCON.Password, values)
	return password, nil
}
