package main

import (
	"bytes"
	"context"
	"log/slog"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// stopMode is the value of -stop-instances: whether instances stop when this program ends.
type stopMode string

const (
	// stopAuto keeps the instances when systemd restarts the service while the host stays
	// up.
	stopAuto   stopMode = "auto"
	stopAlways stopMode = "true"
	stopNever  stopMode = "false"
)

// String returns the mode as a flag value.
func (m *stopMode) String() string { return string(*m) }

// Set parses auto and everything that a boolean flag accepts.
func (m *stopMode) Set(text string) error {
	if text == string(stopAuto) {
		*m = stopAuto
		return nil
	}
	stop, err := strconv.ParseBool(text)
	switch {
	case err != nil:
		return errs.New(errs.Invalid, "must be auto, true or false")
	case stop:
		*m = stopAlways
	default:
		*m = stopNever
	}
	return nil
}

// IsBoolFlag allows the flag without a value, which means true.
func (m *stopMode) IsBoolFlag() bool { return true }

// ownService reports whether systemd runs this process as the main process of a service.
// Child processes inherit the variable but have another PID.
func ownService(getenv func(string) string, pid int) bool {
	return getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(pid)
}

// hostStopping is systemd's state of a host that is shutting down or rebooting.
const hostStopping = "stopping"

// keeps decides whether the instances continue after this program, and says why. host is
// systemd's state of the host, which only matters for a service; empty means unknown. An
// unknown state never stops an instance.
func (m stopMode) keeps(service bool, host string) (keep bool, why string) {
	switch {
	case m == stopAlways:
		return false, "-stop-instances is set"
	case m == stopNever:
		return true, "-stop-instances is false"
	case !service:
		return false, "no service of systemd would start this program again; -stop-instances=false keeps them"
	case host == hostStopping:
		return false, "the host shuts down"
	case host == "":
		return true, "this program is a service of systemd, which does not say whether the host shuts down"
	default:
		return true, "this program is a service of systemd, and the host stays up"
	}
}

// systemctlTimeout limits the query for the host's state.
const systemctlTimeout = 5 * time.Second

// hostState asks systemd for the state of the host. It returns "" when systemd does not
// answer.
func hostState(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, systemctlTimeout)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "systemctl", "is-system-running")
	cmd.Stdout = &out
	_ = cmd.Run() // it fails for every state but "running", and still prints the state
	return strings.TrimSpace(out.String())
}

// keep decides when this program ends, and logs the decision.
func (m stopMode) keep(ctx context.Context, service bool, log *slog.Logger) bool {
	host := ""
	if m == stopAuto && service {
		host = hostState(ctx)
	}
	keep, why := m.keeps(service, host)
	if keep {
		log.Info("the instances run on, and the next start adopts them", "why", why)
	} else {
		log.Info("stopping the instances", "why", why)
	}
	return keep
}

// promise says at the start what the end will mean.
func (m stopMode) promise(service bool) string {
	keep, _ := m.keeps(service, "")
	switch {
	case keep && m == stopAuto:
		return "systemctl restart and stop end Orrery only: the servers run on, and the next start finds them. A shutdown of the host stops them first."
	case keep:
		return "Ctrl-C stops Orrery; the servers run on, and the next start finds them."
	default:
		return "Ctrl-C stops the servers, then Orrery."
	}
}
