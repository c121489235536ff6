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
	"golang.org/x/sys/unix"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// greetTimeout bounds the first questions to an engine, callTimeout a call whose
	// answer needs no more than the engine's own work.
	greetTimeout = 5 * time.Second
	callTimeout  = 20 * time.Second
)

// connect finds the engine that the environment names, as its own command line does.
// Unavailable when what it names makes no sense. Nothing is asked yet.
func connect() (*client.Client, error) {
	// Connections that are kept would have to be ended with the agent, and save next to nothing.
	calls := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	engine, err := client.New(client.WithHTTPClient(calls), client.WithScheme("http"),
		client.WithHost(client.DefaultDockerHost), client.WithHostFromEnv(), client.WithAPIVersionFromEnv())
	if err != nil {
		return nil, errs.New(errs.Unavailable, "the container engine's address makes no sense, look at DOCKER_HOST: %v", err)
	}
	return engine, nil
}

// greet makes sure that there is an engine and that it can run what is below dir.
// Unavailable, with what to do about it, when not. rootless is true when what is root in
// its containers is not root on the host.
func greet(ctx context.Context, engine *client.Client, dir string) (rootless bool, err error) {
	socket, ok := strings.CutPrefix(engine.DaemonHost(), "unix://")
	if !ok {
		return false, errs.New(errs.Unavailable, "the container engine is at %s: only one on this host, on a unix socket, can be used", engine.DaemonHost())
	}
	pid, err := listener(ctx, socket)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return false, errs.New(errs.Unavailable, "the agent's user may not use the container engine's socket %s: add it to the socket's group, and start the agent again", socket)
	case err != nil:
		return false, errs.New(errs.Unavailable, "no container engine answers on %s: install and start one", socket)
	case pid == 0 || !sees(pid, dir):
		return false, errs.New(errs.Unavailable, "the container engine sees other processes or files than the agent: run the agent on the host itself, not in a container")
	}
	info, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return false, &errs.Error{Op: "docker.greet", Kind: errs.Unavailable, Err: err, Message: "the container engine on " + socket + " does not answer as one: look at its log"}
	}
	if info.Info.OSType != "linux" {
		return false, errs.New(errs.Unavailable, "the container engine runs %s containers: only linux ones can be used", info.Info.OSType)
	}
	return slices.Contains(info.Info.SecurityOptions, "name=rootless"), nil
}

// listener is the process that listens on a socket; 0 when this one cannot see it.
func listener(ctx context.Context, socket string) (pid int, err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		credentials, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, asked); err != nil {
		return 0, err
	}
	return int(credentials.Pid), nil
}

// sees reports whether a process' files are this one's. A process that may not be
// looked at is believed.
func sees(pid int, dir string) bool {
	for ; ; dir = filepath.Dir(dir) { // the directory itself may not be made yet
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

// within bounds one call.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout)
}

// until bounds one call, which also ends with a channel. The function it returns ends
// whatever watches that.
func until(ctx context.Context, end <-chan struct{}) (context.Context, func()) {
	ctx, cancel := within(ctx)
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
