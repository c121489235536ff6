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

// The labels of our containers: the agent, as process.Config.Owner names it, the
// instance, and the instance's directory on the host.
const (
	agentLabel    = "orrery.agent"
	instanceLabel = "orrery.instance"
	dirLabel      = "orrery.directory"
	limitLabel    = "orrery.memory-mib"
)

// Where the program that waits, and the door it calls at, are in every container.
const (
	panePath = "/.orrery/pane"
	doorPath = "/.orrery/door"
)

// made is a container that was made and not yet started.
type made struct {
	id string
	// env is the command's environment.
	env []string
}

// create makes an instance's container. What an earlier run of it left is removed.
func (r *Runtime) create(ctx context.Context, s runtime.Spec, door string) (made, error) {
	img, err := r.present(ctx, s.Container.Image)
	if err != nil {
		return made{}, err
	}
	program, err := filepath.EvalSymlinks(r.cfg.Pane[0])
	if err != nil {
		return made{}, &errs.Error{Op: "docker.create", Kind: errs.Unavailable, Err: err, Message: "the agent's own program is no more where it was: start the agent again"}
	}
	ctx, cancel := within(ctx)
	defer cancel()
	config := r.config(s)
	options := client.ContainerCreateOptions{
		Name: "orrery-" + s.InstanceID, Config: config, HostConfig: hostConfig(s, program, door, asRoot(cmp.Or(config.User, img.user))),
	}
	answer, err := r.engine.ContainerCreate(ctx, options)
	for errdefs.IsConflict(err) && r.removeLeft(ctx, s.InstanceID) { // which may be under way already
		if answer, err = r.engine.ContainerCreate(ctx, options); errdefs.IsConflict(err) && !pause.For(ctx, askAgain) {
			break
		}
	}
	if err != nil {
		return made{}, refused("make", err)
	}
	for _, w := range answer.Warnings {
		r.log.Warn("the container engine does not do all that was asked", "instance", s.InstanceID, "warning", w)
	}
	return made{id: answer.ID, env: append(img.environ(s.Env), "ORRERY_AGENT="+r.cfg.Process.Owner)}, nil
}

// refused tells what the engine does not do, in its own words: they name the network,
// the volume or the port.
func refused(what string, err error) error {
	if client.IsErrConnectionFailed(err) || errdefs.IsUnavailable(err) || errors.Is(err, context.DeadlineExceeded) {
		return away(what, err)
	}
	return &errs.Error{Op: "docker." + what, Kind: errs.Unavailable, Err: err, Message: "the container engine does not " + what + " the container: " + said(err)}
}

// config is what stands for the inside. Its environment has the marks that processes
// are found by, and nothing else.
func (r *Runtime) config(s runtime.Spec) *container.Config {
	return &container.Config{
		Image: s.Container.Image, User: r.userOf(s), WorkingDir: directory(s),
		Entrypoint:   append([]string{panePath}, append(r.cfg.Pane[1:len(r.cfg.Pane):len(r.cfg.Pane)], doorPath)...),
		Env:          []string{"ORRERY_INSTANCE_ID=" + s.InstanceID, "ORRERY_AGENT=" + r.cfg.Process.Owner},
		Labels:       r.labels(s),
		ExposedPorts: exposed(s),
		Healthcheck:  &container.HealthConfig{Test: []string{"NONE"}}, // it is asked by the agent
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

// entrypointCapabilities are those that an entrypoint needs which starts as root, gives the
// directory to another user and becomes it, and whose init signals that user's processes.
var entrypointCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}

// asRoot reports whether a user of an image is root. An image may have other names for it:
// those get no capability, like any user.
func asRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	number, err := strconv.Atoi(name)
	return name == "" || name == "root" || err == nil && number == 0
}

// hostConfig is what stands for the outside.
func hostConfig(s runtime.Spec, program, door string, root bool) *container.HostConfig {
	reaping := true
	h := &container.HostConfig{
		NetworkMode: container.NetworkMode(s.Container.Network), PortBindings: published(s), Resources: resources(s.Limits),
		SecurityOpt: []string{"no-new-privileges"}, CapDrop: []string{"ALL"},
		Binds: s.Container.Volumes, Init: &reaping, LogConfig: container.LogConfig{Type: "none"},
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: s.Dir, Target: directory(s)},
			{Type: mount.TypeBind, Source: program, Target: panePath, ReadOnly: true},
			{Type: mount.TypeBind, Source: door, Target: doorPath},
		},
	}
	if root {
		h.CapAdd = entrypointCapabilities
	}
	return h
}

// resources are the limits as an engine counts them.
func resources(l runtime.Limits) container.Resources {
	const period, sharesPerCore, leastShares = 100_000, 1024, 2
	r := container.Resources{
		Memory: int64(l.MemoryMiB) << 20, MemorySwap: int64(l.MemoryMiB) << 20,
		BlkioWeight: blockWeight(l.IOWeight),
	}
	if l.CPU > 0 { // NanoCPUs would be refused where it is more than the host has
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

// blockWeight turns a weight of 1 to 10,000 into an engine's 10 to 1,000, the way
// that runtimes of containers turn that into the former. 0 stays 0.
func blockWeight(weight int) uint16 {
	if weight <= 0 {
		return 0
	}
	const least, most, ours = 10, 1000, 10_000
	return uint16(least + (min(weight, ours)-1)*(most-least)/(ours-1))
}

// published has every port reach the host, unless the network is the host's or none.
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

// left are the containers of an instance that are ours.
func (r *Runtime) left(ctx context.Context, instance string) ([]container.Summary, error) {
	filters := make(client.Filters).Add("label", agentLabel+"="+r.cfg.Process.Owner)
	if instance != "" {
		filters.Add("label", instanceLabel+"="+instance)
	}
	found, err := r.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	return found.Items, err
}

// removeLeft removes what an earlier run left, and reports whether there was something.
func (r *Runtime) removeLeft(ctx context.Context, instance string) bool {
	all, err := r.left(ctx, instance)
	for _, c := range all {
		r.remove(ctx, c.ID)
	}
	return err == nil && len(all) > 0
}

// remove ends and removes a container, with the volumes nobody named. One that cannot
// be removed is in the way of nothing but the instance's own next one.
func (r *Runtime) remove(ctx context.Context, id string) {
	ctx, cancel := within(ctx)
	defer cancel()
	_, err := r.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) { // a conflict: somebody is at it
		r.log.Warn("a container was not removed", "container", id, "cause", err)
	}
}
