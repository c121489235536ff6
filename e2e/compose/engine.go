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

// Container is one container of a stack. Its id stays the same over restarts.
type Container struct {
	t  testing.TB
	id string
	// Name is what people call it, e.g. "…_scheduler_2".
	Name string
	// Service is its service in the compose file.
	Service string
}

// docker runs the engine's command line and returns what it prints.
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

// Restart stops the container as an operator would and starts it again.
func (c Container) Restart() { must(c.t, "restart", "--time", "30", c.id) }

// Kill ends the container's processes with SIGKILL; it stays down until Start.
func (c Container) Kill() { must(c.t, "kill", c.id) }

// Start starts a container that is down.
func (c Container) Start() { must(c.t, "start", c.id) }

// Exec runs a command inside and returns what it prints.
func (c Container) Exec(ctx context.Context, command ...string) (string, error) {
	return docker(ctx, append([]string{"exec", c.id}, command...)...)
}

// Health runs the image's health check and says what is wrong, "" when nothing is.
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

// IP is the container's address on the stack's network, "" while it has none.
func (c Container) IP(ctx context.Context) string {
	out, err := docker(ctx, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}", c.id)
	if err != nil || len(strings.Fields(out)) == 0 {
		return ""
	}
	return strings.Fields(out)[0]
}

// Disconnect takes the container off the stack's network; its processes go on.
func (c Container) Disconnect(network string) { must(c.t, "network", "disconnect", network, c.id) }

// Connect puts it back, under the name of its service.
func (c Container) Connect(network string) {
	must(c.t, "network", "connect", "--alias", c.Service, network, c.id)
}

// dockerAnyway is docker after the test's context has ended.
func dockerAnyway(args ...string) (string, error) { return docker(context.Background(), args...) }

func sortByName(all []Container) {
	slices.SortFunc(all, func(a, b Container) int { return strings.Compare(a.Name, b.Name) })
}
