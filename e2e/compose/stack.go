// Package compose runs the repository's docker-compose.yml on a container engine for
// end-to-end scenarios with real images, networks and faults.
//
// It needs docker, docker-compose (or docker's compose plugin) and the images that `make
// images` builds. Every stack is a separate project on free ports. It leaves no container,
// network or volume behind.
package compose

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/examples"
	"github.com/orreryhq/orrery/libs/await"
)

// password is the admin's password in every stack.
const password = "compose-e2e-password"

// projectLabel marks what belongs to a stack.
const projectLabel = "com.docker.compose.project"

// Stack is a running docker-compose.yml. It implements cluster.Cluster with the API of the
// first gateway.
type Stack struct {
	t       testing.TB
	project string
	// root is the directory of the compose file, and dir the stack's data from the test.
	root, dir string
	env       []string
	// gateways are the published base URLs.
	gateways []string
	stopped  sync.Once
}

// Start starts a stack, waits until it is ready, and removes it when the test ends.
func Start(t testing.TB) *Stack {
	t.Helper()
	s := newStack(t, cluster.Root(t))
	s.env = append(s.env, "ORRERY_CLUSTER_SECRET="+rand.Text()+rand.Text(), "ORRERY_ADMIN_INITIAL_PASSWORD="+password)
	s.keepPassword(password)
	t.Cleanup(s.Stop)
	s.Compose("up", "-d", "--no-build")
	s.awaitReady()
	return s
}

// newStack prepares a stack from the compose file in a directory, with a template.
func newStack(t testing.TB, root string) *Stack {
	t.Helper()
	s := &Stack{t: t, project: "orrery-e2e-" + strings.ToLower(rand.Text()[:8]), root: root, dir: t.TempDir()}
	templates := filepath.Join(s.dir, "templates", filepath.FromSlash(examples.DemoTemplateName))
	if err := os.CopyFS(templates, examples.DemoTemplate()); err != nil {
		t.Fatal(err)
	}
	s.env = append(os.Environ(), "COMPOSE_PROJECT_NAME="+s.project, "COMPOSE_HTTP_TIMEOUT=120", "ORRERY_TEMPLATES="+s.TemplateDir())
	for i := range 2 {
		address := freeAddress(t)
		s.gateways = append(s.gateways, "http://"+address)
		s.env = append(s.env, fmt.Sprintf("ORRERY_GATEWAY_%d_PORT=%s", i+1, address))
	}
	return s
}

// keepPassword writes the admin's password to PasswordFile.
func (s *Stack) keepPassword(password string) {
	s.t.Helper()
	if err := os.WriteFile(s.PasswordFile(), []byte(password), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Compose runs docker-compose with the stack's file and project.
func (s *Stack) Compose(args ...string) {
	s.t.Helper()
	if out, err := s.compose(args...); err != nil {
		s.t.Fatalf("docker-compose %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (s *Stack) compose(args ...string) (string, error) {
	command := []string{"docker-compose"}
	if _, err := exec.LookPath(command[0]); err != nil {
		command = []string{"docker", "compose"}
	}
	command = append(command, args...)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Env = s.root, s.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// secretsService creates the secrets and ends.
const secretsService = "init"

// awaitReady waits until every container's health check passes and every node is online.
func (s *Stack) awaitReady() {
	s.t.Helper()
	for _, c := range s.Containers("") {
		if c.Service != secretsService {
			s.AwaitHealthy(c)
		}
	}
	s.AwaitNodes(cluster.Login(s.t, s), "agent-1", "agent-2", "agent-3")
}

// AwaitHealthy waits until a container's health check passes.
func (s *Stack) AwaitHealthy(c Container) {
	s.t.Helper()
	await.That(s.t, c.Name+" healthy", func() string { return c.Health(s.t.Context()) })
}

// AwaitNodes waits until exactly these nodes are online.
func (s *Stack) AwaitNodes(admin *cluster.Client, want ...string) {
	s.t.Helper()
	await.That(s.t, fmt.Sprint("online nodes ", want), func() string {
		var page struct{ Data []struct{ ID, Status string } }
		reply := admin.Do("GET", "/api/v1/nodes", nil).OK(200, &page)
		var online []string
		for _, n := range page.Data {
			if n.Status == "ONLINE" {
				online = append(online, n.ID)
			}
		}
		if fmt.Sprint(online) == fmt.Sprint(want) {
			return ""
		}
		return string(reply.Body)
	})
}

// Containers returns a service's containers sorted by name, including stopped ones. With
// service "", it returns those of all services.
func (s *Stack) Containers(service string) []Container {
	s.t.Helper()
	args := []string{"ps", "--all", "--filter", "label=" + projectLabel + "=" + s.project, "--format", `{{.Names}} {{.ID}} {{.Label "com.docker.compose.service"}}`}
	if service != "" {
		args = append(args, "--filter", "label=com.docker.compose.service="+service)
	}
	var all []Container
	for line := range strings.Lines(must(s.t, args...)) {
		if f := strings.Fields(line); len(f) == 3 {
			all = append(all, Container{t: s.t, Name: f[0], id: f[1], Service: f[2]})
		}
	}
	sortByName(all)
	return all
}

// Container returns the only container of a service.
func (s *Stack) Container(service string) Container {
	s.t.Helper()
	all := s.Containers(service)
	if len(all) != 1 {
		s.t.Fatalf("%d containers of %s, want 1", len(all), service)
	}
	return all[0]
}

// Network returns the name of the private network on the engine.
func (s *Stack) Network() string { return s.project + "_private" }

// API returns the first gateway's base URL.
func (s *Stack) API() string { return s.gateways[0] }

// Through returns the same stack as seen through gateway 1 or 2.
func (s *Stack) Through(gateway int) cluster.Cluster {
	return seen{Stack: s, api: s.gateways[gateway-1]}
}

type seen struct {
	*Stack
	api string
}

func (s seen) API() string { return s.api }

// DataDir returns the directory of the stack's data from the test.
func (s *Stack) DataDir() string { return s.dir }

// TemplateDir returns the directory that is mounted into templatesvc.
func (s *Stack) TemplateDir() string { return filepath.Join(s.dir, "templates") }

// PasswordFile returns the file with the admin's password.
func (s *Stack) PasswordFile() string { return filepath.Join(s.dir, "admin-password") }

// Stop removes everything at once, and fails the test if something is left.
func (s *Stack) Stop() {
	s.stopped.Do(func() {
		if s.t.Failed() {
			logs, _ := s.compose("logs", "--no-color", "--tail=40")
			s.t.Logf("---- logs\n%s", logs)
		}
		_, _ = s.compose("kill") // it fails when nothing runs
		if out, err := s.compose("down", "--volumes", "--timeout", strconv.Itoa(0)); err != nil {
			s.t.Errorf("docker-compose down: %v\n%s", err, out)
		}
		for _, kind := range [][]string{{"ps", "--all"}, {"network", "ls"}, {"volume", "ls"}} {
			left, err := dockerAnyway(append(kind, "--quiet", "--filter", "label="+projectLabel+"="+s.project)...)
			if err != nil || left != "" {
				s.t.Errorf("docker %s: left behind: %s %v", strings.Join(kind, " "), left, err)
			}
		}
	})
}
