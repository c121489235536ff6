// Package enginetest runs a container engine of a test's own: on a private socket, with
// containers that live through its restarts, no network by itself and no firewall rules.
//
// Its images have nothing but directories and a user; what is to run in them is mounted
// from the host, see Volumes.
package enginetest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// Image is an image that is there, and User one of its users.
	Image = "orrery-test:1"
	User  = "player"
	// Dressed is the same with ImageVariable in its environment.
	Dressed       = "orrery-test:dressed"
	ImageVariable = "FROM_IMAGE=yes"
	// Shy is the same that runs as User.
	Shy = "orrery-test:shy"
	// UserID is that user's number, and its group's. CrewID is a group that the image puts it
	// into.
	UserID = 4711
	CrewID = 4712

	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
	lookAgain    = 50 * time.Millisecond
)

// Volumes are what makes the image's directories those of the host.
func Volumes() []string { return []string{"/usr:/usr:ro"} }

// ErrNotHere is why this machine cannot run an engine.
var ErrNotHere = errors.New("a container engine is started by root, where dockerd, docker and docker-init are installed")

// Engine is an engine. Close it.
type Engine struct {
	dir     string
	command *exec.Cmd
}

// Start starts an engine for a test and lets it be found by DOCKER_HOST. The test is
// skipped where there can be none, and fails where all tests have to be run.
func Start(t *testing.T) *Engine {
	t.Helper()
	e, err := Launch()
	if err != nil {
		if errors.Is(err, ErrNotHere) && os.Getenv("ORRERY_CI") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("DOCKER_HOST", e.Host())
	return e
}

// Launch starts an engine.
func Launch() (*Engine, error) {
	for _, program := range []string{"dockerd", "docker", "docker-init"} {
		if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
			return nil, ErrNotHere
		}
	}
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		return nil, err
	}
	e := &Engine{dir: dir}
	err = e.Run()
	if err == nil {
		err = e.load()
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Host is what DOCKER_HOST is to be.
func (e *Engine) Host() string { return "unix://" + filepath.Join(e.dir, "socket") }

// Run starts the engine again that was ended.
func (e *Engine) Run() error {
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	e.command = exec.Command("dockerd", "--data-root", filepath.Join(e.dir, "data"), "--exec-root", filepath.Join(e.dir, "exec"),
		"--pidfile", filepath.Join(e.dir, "pid"), "--host", e.Host(), "--live-restore", "--bridge=none",
		"--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")
	e.command.Stdout, e.command.Stderr = log, log
	if err := e.command.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(startTimeout); ; <-time.After(lookAgain) {
		said, err := e.Docker("version")
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("the engine does not answer: %s\n%s", said, text)
		}
	}
}

// End ends the engine with a signal, and leaves its containers alone.
func (e *Engine) End(sig syscall.Signal) error {
	if e.command == nil || e.command.Process == nil {
		return nil
	}
	err := e.command.Process.Signal(sig)
	gone := time.AfterFunc(stopTimeout, func() { _ = e.command.Process.Kill() })
	defer gone.Stop()
	_ = e.command.Wait() // a signal is not success
	e.command = nil
	// What it was served by died with it, and may be an entry in the table of processes still.
	return errors.Join(err, os.RemoveAll(filepath.Join(e.dir, "exec/containerd/containerd.pid")))
}

// Hang has the engine answer nobody, though it is there, until the function it returns is
// called, or the engine is closed.
func (e *Engine) Hang() (goOn func(), err error) {
	if err := e.command.Process.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return func() { _ = e.command.Process.Signal(syscall.SIGCONT) }, nil
}

// Hide has nobody find the engine until the function it returns is called.
func (e *Engine) Hide() (show func() error, err error) {
	socket, hidden := filepath.Join(e.dir, "socket"), filepath.Join(e.dir, "hidden")
	return func() error { return os.Rename(hidden, socket) }, os.Rename(socket, hidden)
}

// Docker is a call of the engine's command line, and what it prints.
func (e *Engine) Docker(args ...string) (string, error) { return e.docker(nil, args...) }

func (e *Engine) docker(stdin []byte, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "docker", append([]string{"--host", e.Host()}, args...)...)
	c.Stdin = bytes.NewReader(stdin)
	out, err := c.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// load makes the images.
func (e *Engine) load() error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	var failed error
	add := func(h tar.Header, content string) {
		h.Size = int64(len(content))
		failed = errors.Join(failed, w.WriteHeader(&h))
		_, err := w.Write([]byte(content))
		failed = errors.Join(failed, err)
	}
	for _, dir := range []string{"usr", "etc", "data", "sbin"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, "")
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp", Mode: 0o1777}, "")
	for _, link := range []string{"bin", "lib", "lib64"} {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: "usr/" + link, Mode: 0o777}, "")
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, fmt.Sprintf("root:x:0:0::/:/bin/sh\n%s:x:%d:%d::/:/bin/sh\n", User, UserID, UserID))
	add(tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, fmt.Sprintf("root:x:0:\n%s:x:%d:\ncrew:x:%d:%s\n", User, UserID, CrewID, User))
	if err := errors.Join(failed, w.Close()); err != nil {
		return err
	}
	_, err := e.docker(layer.Bytes(), "import", "-", Image)
	_, dressing := e.docker(layer.Bytes(), "import", "--change", "ENV "+ImageVariable, "-", Dressed)
	_, shying := e.docker(layer.Bytes(), "import", "--change", "USER "+User, "-", Shy)
	return errors.Join(err, dressing, shying)
}

// Close ends the engine with all it runs, and removes what it kept.
func (e *Engine) Close() error {
	if e.command != nil {
		if ids, err := e.Docker("ps", "--all", "--quiet"); err == nil && ids != "" {
			_, _ = e.Docker(append([]string{"rm", "--force", "--volumes"}, strings.Fields(ids)...)...)
		}
		_, _ = e.Docker("network", "prune", "--force")
	}
	err := e.End(syscall.SIGTERM)
	// Mounts are left behind: that of a network that containers shared with the host, and
	// the engine's own directory where it ended with containers running.
	for _, mount := range []string{"exec/netns/default", "data"} {
		_ = syscall.Unmount(filepath.Join(e.dir, mount), syscall.MNT_DETACH)
	}
	return errors.Join(err, os.RemoveAll(e.dir))
}
