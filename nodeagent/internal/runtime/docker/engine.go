package docker

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/moby/client"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime/pane"
)

const (
	// checkTimeout limits the check of an engine, callTimeout a call that needs no network.
	checkTimeout = 5 * time.Second
	callTimeout  = 20 * time.Second
)

// connect returns a client of the engine that the environment names, like the docker command.
// It returns Unavailable for an invalid address. It sends nothing yet.
func connect() (*client.Client, error) {
	// Idle connections would have to be closed with the agent, and save little time.
	calls := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	engine, err := client.New(client.WithHTTPClient(calls), client.WithScheme("http"),
		client.WithHost(client.DefaultDockerHost), client.WithHostFromEnv(), client.WithAPIVersionFromEnv())
	if err != nil {
		return nil, errs.New(errs.Unavailable, "the container engine's address is invalid, check DOCKER_HOST: %v", err)
	}
	return engine, nil
}

// checkEngine checks that there is an engine that can use files below dir. It returns Unavailable,
// with what to do, if not. rootless is true if root in its containers is not root on the host.
func checkEngine(ctx context.Context, engine *client.Client, dir string) (rootless bool, err error) {
	socket, ok := strings.CutPrefix(engine.DaemonHost(), "unix://")
	if !ok {
		return false, errs.New(errs.Unavailable, "the container engine is at %s: only one on this host, on a unix socket, can be used", engine.DaemonHost())
	}
	pid, err := listenerPID(ctx, socket)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return false, errs.New(errs.Unavailable, "the agent's user may not use the container engine's socket %s: add the user to the socket's group, and restart the agent", socket)
	case err != nil:
		return false, errs.New(errs.Unavailable, "no container engine answers on %s: install and start one", socket)
	case pid == 0 || !sharesFiles(pid, dir):
		return false, errs.New(errs.Unavailable, "the container engine sees other processes or files than the agent: run the agent on the host itself, not in a container")
	}
	info, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return false, &errs.Error{Op: "docker.checkEngine", Kind: errs.Unavailable, Err: err, Message: "the container engine on " + socket + " does not answer like a container engine: check its log"}
	}
	if info.Info.OSType != "linux" {
		return false, errs.New(errs.Unavailable, "the container engine runs %s containers: only linux ones can be used", info.Info.OSType)
	}
	return slices.Contains(info.Info.SecurityOptions, "name=rootless"), nil
}

// listenerPID returns the process that listens on a socket; 0 if it is invisible here.
func listenerPID(ctx context.Context, socket string) (pid int, err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	peer, err := pane.Credentials(conn.(syscall.Conn))
	if err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

// sharesFiles reports whether a process sees the same files below dir as this one. It returns true
// if that may not be examined.
func sharesFiles(pid int, dir string) bool {
	for ; ; dir = filepath.Dir(dir) { // the directory itself may not exist yet
		ours, err := os.Stat(dir)
		if err != nil && dir != "/" {
			continue
		}
		theirs, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "root", dir))
		if errors.Is(err, fs.ErrPermission) {
			return true
		}
		return err == nil && os.SameFile(ours, theirs)
	}
}

// withCallTimeout limits one call.
func withCallTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout)
}

// withCallTimeoutUntil limits one call, and cancels it when end is closed. The caller calls the
// returned function, which also ends the goroutine.
func withCallTimeoutUntil(ctx context.Context, end <-chan struct{}) (context.Context, func()) {
	ctx, cancel := withCallTimeout(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-end:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() { cancel(); watching.Wait() }
}
