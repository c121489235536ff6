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

// stopMode is the value of -stop-instances: what the end of this program means for the
// instances.
type stopMode string

const (
	// stopAuto keeps the instances across a restart of a service on a host that stays up.
	stopAuto   stopMode = "auto"
	stopAlways stopMode = "true"
	stopNever  stopMode = "false"
)

// String is the mode as the flag takes it.
func (m *stopMode) String() string { return string(*m) }

// Set parses auto and everything that a boolean flag takes.
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

// IsBoolFlag lets the flag stand alone, which means true.
func (m *stopMode) IsBoolFlag() bool { return true }

// ownService reports whether systemd runs the process with this id as the main process
// of a service. Programs that such a process starts inherit the variable, not the id.
func ownService(getenv func(string) string, pid int) bool {
	return getenv("SYSTEMD_EXEC_PID") == strconv.Itoa(pid)
}

// hostStopping is systemd's state of a host that shuts down or restarts.
const hostStopping = "stopping"

// keeps decides whether the instances run on after this program, and says why. host is
// systemd's state of the host, empty when unknown: only a service asks for it. What is
// unknown never stops an instance.
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

// systemctlTimeout bounds the question for the host's state.
const systemctlTimeout = 5 * time.Second

// hostState asks systemd for the state of the host. It is empty when systemd does not answer.
func hostState(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, systemctlTimeout)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "systemctl", "is-system-running")
	cmd.Stdout = &out
	_ = cmd.Run() // it fails for every state but "running", and prints the state
	return strings.TrimSpace(out.String())
}

// keep decides at the end of this program and logs the decision.
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
