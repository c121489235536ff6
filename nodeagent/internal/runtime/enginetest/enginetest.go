// Package enginetest runs a container engine for tests: on a private socket, with containers that
// survive its restarts, and without networks and firewall rules.
//
// Its images have only directories and a user. Programs are mounted from the host, see Volumes.
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
	// Image is a loaded image, and User one of its users.
	Image = "orrery-test:1"
	User  = "player"
	// Dressed is the same image with ImageVariable in its environment.
	Dressed       = "orrery-test:dressed"
	ImageVariable = "FROM_IMAGE=yes"
	// Shy is the same image that runs as User.
	Shy = "orrery-test:shy"
	// UserID is the number of that user and its group. CrewID is another group of the user.
	UserID = 4711
	CrewID = 4712

	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
	lookAgain    = 50 * time.Millisecond
)

// Volumes mounts the host's directories over those of the image.
func Volumes() []string { return []string{"/usr:/usr:ro"} }

// ErrNotHere says that this machine cannot run an engine.
var ErrNotHere = errors.New("the test engine needs root, dockerd, docker and docker-init")

// Engine is a running engine. Close it.
type Engine struct {
	dir     string
	command *exec.Cmd
}

// Start starts an engine for a test and sets DOCKER_HOST. It skips the test if this machine cannot
// run one, or fails it under ORRERY_CI.
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

// Host returns the value of DOCKER_HOST.
func (e *Engine) Host() string { return "unix://" + filepath.Join(e.dir, "socket") }

// Run starts the engine again after End.
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

// End stops the engine with a signal. Its containers continue.
func (e *Engine) End(sig syscall.Signal) error {
	if e.command == nil || e.command.Process == nil {
		return nil
	}
	err := e.command.Process.Signal(sig)
	gone := time.AfterFunc(stopTimeout, func() { _ = e.command.Process.Kill() })
	defer gone.Stop()
	_ = e.command.Wait() // a signal is not success
	e.command = nil
	// Its child processes died with it, but may still be zombies.
	return errors.Join(err, os.RemoveAll(filepath.Join(e.dir, "exec/containerd/containerd.pid")))
}

// Hang stops the engine from answering until the returned function is called or the engine is
// closed.
func (e *Engine) Hang() (goOn func(), err error) {
	if err := e.command.Process.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return func() { _ = e.command.Process.Signal(syscall.SIGCONT) }, nil
}

// Hide makes the engine's socket unreachable until the returned function is called.
func (e *Engine) Hide() (show func() error, err error) {
	socket, hidden := filepath.Join(e.dir, "socket"), filepath.Join(e.dir, "hidden")
	return func() error { return os.Rename(hidden, socket) }, os.Rename(socket, hidden)
}

// Docker runs the docker command and returns its output.
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

// load loads the images.
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

// Close stops the engine and all containers, and removes its files.
func (e *Engine) Close() error {
	if e.command != nil {
		if ids, err := e.Docker("ps", "--all", "--quiet"); err == nil && ids != "" {
			_, _ = e.Docker(append([]string{"rm", "--force", "--volumes"}, strings.Fields(ids)...)...)
		}
		_, _ = e.Docker("network", "prune", "--force")
	}
	err := e.End(syscall.SIGTERM)
	// Mounts may remain: of a network shared with the host, and of the engine's own directory
	// if it stopped with running containers.
	for _, mount := range []string{"exec/netns/default", "data"} {
		_ = syscall.Unmount(filepath.Join(e.dir, mount), syscall.MNT_DETACH)
	}
	return errors.Join(err, os.RemoveAll(e.dir))
}
