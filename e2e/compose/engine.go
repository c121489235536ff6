package compose

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Container is one container of a stack. Its ID stays the same over restarts.
type Container struct {
	t  testing.TB
	id string
	// Name is the container's name, such as "…_scheduler_2".
	Name string
	// Service is its service in the compose file.
	Service string
}

// docker runs the docker command and returns its output.
func docker(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return text, nil
}

func must(t testing.TB, args ...string) string {
	t.Helper()
	out, err := docker(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Restart stops the container gracefully and starts it again.
func (c Container) Restart() { must(c.t, "restart", "--time", "30", c.id) }

// Kill kills the container's processes with SIGKILL. It stays down until Start.
func (c Container) Kill() { must(c.t, "kill", c.id) }

// Start starts a stopped container.
func (c Container) Start() { must(c.t, "start", c.id) }

// Exec runs a command inside the container and returns its output.
func (c Container) Exec(ctx context.Context, command ...string) (string, error) {
	return docker(ctx, append([]string{"exec", c.id}, command...)...)
}

// Health runs the image's health check and returns the problem, or "".
func (c Container) Health(ctx context.Context) string {
	out, err := docker(ctx, "inspect", "--format", "{{json .Config.Healthcheck.Test}}", c.id)
	if err != nil {
		return err.Error()
	}
	var test []string
	if err := json.Unmarshal([]byte(out), &test); err != nil || len(test) < 2 || test[0] != "CMD" {
		return fmt.Sprintf("%s has no health check: %s", c.Name, out)
	}
	if _, err := c.Exec(ctx, test[1:]...); err != nil {
		return err.Error()
	}
	return ""
}

// IP returns the container's address on the stack's network, or "".
func (c Container) IP(ctx context.Context) string {
	out, err := docker(ctx, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}", c.id)
	if err != nil || len(strings.Fields(out)) == 0 {
		return ""
	}
	return strings.Fields(out)[0]
}

// Disconnect removes the container from the stack's network. Its processes continue.
func (c Container) Disconnect(network string) { must(c.t, "network", "disconnect", network, c.id) }

// Connect adds it to the network again, under the name of its service.
func (c Container) Connect(network string) {
	must(c.t, "network", "connect", "--alias", c.Service, network, c.id)
}

// dockerAnyway is docker for use after the test's context has ended.
func dockerAnyway(args ...string) (string, error) { return docker(context.Background(), args...) }

func sortByName(all []Container) {
	slices.SortFunc(all, func(a, b Container) int { return strings.Compare(a.Name, b.Name) })
}
