package docker

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/internal/runtime"
)

// The labels of our containers: the agent (process.Config.Owner), the instance, the instance's
// directory on the host, and the memory limit.
const (
	agentLabel    = "orrery.agent"
	instanceLabel = "orrery.instance"
	dirLabel      = "orrery.directory"
	limitLabel    = "orrery.memory-mib"
)

// The paths of the pane program and of the agent's socket in every container.
const (
	panePath   = "/.orrery/pane"
	socketPath = "/.orrery/door"
)

// created is a container that is not yet started.
type created struct {
	id string
	// env is the command's environment.
	env []string
}

// create creates an instance's container. It removes containers of earlier runs.
func (r *Runtime) create(ctx context.Context, s runtime.Spec, socket string) (created, error) {
	img, err := r.localImage(ctx, s.Container.Image)
	if err != nil {
		return created{}, err
	}
	program, err := filepath.EvalSymlinks(r.cfg.Pane[0])
	if err != nil {
		return created{}, &errs.Error{Op: "docker.create", Kind: errs.Unavailable, Err: err, Message: "the agent's program file was moved or deleted: restart the agent"}
	}
	ctx, cancel := withCallTimeout(ctx)
	defer cancel()
	config := r.config(s)
	options := client.ContainerCreateOptions{
		Name: "orrery-" + s.InstanceID, Config: config, HostConfig: hostConfig(s, program, socket, asRoot(cmp.Or(config.User, img.user))),
	}
	answer, err := r.engine.ContainerCreate(ctx, options)
	for more := true; more && errdefs.IsConflict(err); {
		more = r.removeOld(ctx, s.InstanceID) // their removal may be in progress, or have just ended
		if answer, err = r.engine.ContainerCreate(ctx, options); more && errdefs.IsConflict(err) {
			more = pause.For(ctx, retryPause)
		}
	}
	if err != nil {
		return created{}, engineError("create", err)
	}
	for _, w := range answer.Warnings {
		r.log.Warn("the container engine gave a warning", "instance", s.InstanceID, "warning", w)
	}
	return created{id: answer.ID, env: append(img.environ(s.Env), "ORRERY_AGENT="+r.cfg.Process.Owner)}, nil
}

// engineError returns an error with the engine's message, which names the network, volume or port.
func engineError(what string, err error) error {
	if client.IsErrConnectionFailed(err) || errdefs.IsUnavailable(err) || errors.Is(err, context.DeadlineExceeded) {
		return unreachable(what, err)
	}
	return &errs.Error{Op: "docker." + what, Kind: errs.Unavailable, Err: err, Message: "the container engine does not " + what + " the container: " + engineMessage(err)}
}

// config returns the container's configuration. Its environment has only the variables by
// which processes are found.
func (r *Runtime) config(s runtime.Spec) *container.Config {
	return &container.Config{
		Image: s.Container.Image, User: r.userOf(s), WorkingDir: directory(s),
		Entrypoint:   append([]string{panePath}, append(r.cfg.Pane[1:len(r.cfg.Pane):len(r.cfg.Pane)], socketPath)...),
		Env:          []string{"ORRERY_INSTANCE_ID=" + s.InstanceID, "ORRERY_AGENT=" + r.cfg.Process.Owner},
		Labels:       r.labels(s),
		ExposedPorts: exposed(s),
		Healthcheck:  &container.HealthConfig{Test: []string{"NONE"}}, // the agent checks the health itself
	}
}

func (r *Runtime) labels(s runtime.Spec) map[string]string {
	return map[string]string{
		agentLabel: r.cfg.Process.Owner, instanceLabel: s.InstanceID, dirLabel: s.Dir, limitLabel: strconv.Itoa(s.Limits.MemoryMiB),
	}
}

func directory(s runtime.Spec) string {
	if s.Container.Directory != "" {
		return s.Container.Directory
	}
	return runtime.Directory
}

// entrypointCapabilities are needed by entrypoints that start as root, chown the directory and
// switch to another user, and by the init to signal that user's processes.
var entrypointCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}

// asRoot reports whether a user of an image is root. Other names of root in an image are not
// recognised, and get no capabilities.
func asRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	number, err := strconv.Atoi(name)
	return name == "" || name == "root" || err == nil && number == 0
}

// hostConfig returns the settings of the container on the host.
func hostConfig(s runtime.Spec, program, socket string, root bool) *container.HostConfig {
	reaping := true
	h := &container.HostConfig{
		NetworkMode: container.NetworkMode(s.Container.Network), PortBindings: published(s), Resources: resources(s.Limits),
		SecurityOpt: []string{"no-new-privileges"}, CapDrop: []string{"ALL"},
		Binds: s.Container.Volumes, Init: &reaping, LogConfig: container.LogConfig{Type: "none"},
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: s.Dir, Target: directory(s)},
			{Type: mount.TypeBind, Source: program, Target: panePath, ReadOnly: true},
			{Type: mount.TypeBind, Source: socket, Target: socketPath},
		},
	}
	if root {
		h.CapAdd = entrypointCapabilities
	}
	return h
}

// resources converts limits to the engine's units.
func resources(l runtime.Limits) container.Resources {
	const period, sharesPerCore, leastShares = 100_000, 1024, 2
	r := container.Resources{
		Memory: int64(l.MemoryMiB) << 20, MemorySwap: int64(l.MemoryMiB) << 20,
		BlkioWeight: blockWeight(l.IOWeight),
	}
	if l.CPU > 0 { // NanoCPUs is rejected if it exceeds the host's cores
		r.CPUPeriod, r.CPUQuota = period, int64(l.CPU)*period/100
	}
	if l.CPUWeight > 0 {
		r.CPUShares = max(leastShares, int64(l.CPUWeight)*sharesPerCore/100)
	}
	if l.Processes > 0 {
		processes := int64(l.Processes) + 1 // the init
		r.PidsLimit = &processes
	}
	return r
}

// blockWeight converts a weight of 1 to 10,000 to the engine's 10 to 1,000, as the inverse of
// what container runtimes do. 0 stays 0.
func blockWeight(weight int) uint16 {
	if weight <= 0 {
		return 0
	}
	const least, most, ours = 10, 1000, 10_000
	return uint16(least + (min(weight, ours)-1)*(most-least)/(ours-1))
}

// published returns the published ports; none if the network is the host's or none.
func published(s runtime.Spec) network.PortMap {
	if !s.Container.Publishes() {
		return nil
	}
	bound, on := network.PortMap{}, s.Container.PublishedOn()
	for _, p := range s.Container.Ports {
		if port, ok := network.PortFrom(uint16(p.Number), network.IPProtocol(p.Protocol)); ok {
			bound[port] = []network.PortBinding{{HostIP: on, HostPort: port.Port()}}
		}
	}
	return bound
}

func exposed(s runtime.Spec) network.PortSet {
	ports := network.PortSet{}
	for p := range published(s) {
		ports[p] = struct{}{}
	}
	return ports
}

// containers returns the agent's containers of an instance, or all of them for "".
func (r *Runtime) containers(ctx context.Context, instance string) ([]container.Summary, error) {
	filters := make(client.Filters).Add("label", agentLabel+"="+r.cfg.Process.Owner)
	if instance != "" {
		filters.Add("label", instanceLabel+"="+instance)
	}
	found, err := r.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	return found.Items, err
}

// removeOld removes the containers of earlier runs, and reports whether there were any.
func (r *Runtime) removeOld(ctx context.Context, instance string) bool {
	all, err := r.containers(ctx, instance)
	for _, c := range all {
		r.remove(ctx, c.ID)
	}
	return err == nil && len(all) > 0
}

// remove kills and removes a container and its anonymous volumes. If that fails, only the
// instance's own next container is affected.
func (r *Runtime) remove(ctx context.Context, id string) {
	ctx, cancel := withCallTimeout(ctx)
	defer cancel()
	_, err := r.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) { // a conflict: another removal is in progress
		r.log.Warn("a container was not removed", "container", id, "cause", err)
	}
}
