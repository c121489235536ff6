// Package isolation has the settings that keep an instance within bounds: its limits, what its
// processes may do, and its container.
package isolation

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Limits are hard limits of one instance, in addition to its memory and CPU
// time. If a node cannot enforce a limit, the instance's message says so.
type Limits struct {
	// Processes limits processes and threads. 0 means no limit.
	Processes int `json:"processes,omitempty"`
	// IOWeight is the share of disk I/O, 1 to 10,000. 0 means the usual 100.
	IOWeight int `json:"ioWeight,omitempty"`
	// DiskMiB limits the size of the instance's directory. An instance that exceeds it is ended
	// with reason DiskLimit. 0 means no limit.
	DiskMiB int `json:"diskMiB,omitempty"`
	// LogMiB limits the kept console output; the oldest is removed first. 0 means DefaultLogMiB.
	LogMiB int `json:"logMiB,omitempty"`
}

// DefaultLogMiB is the default of Limits.LogMiB.
const DefaultLogMiB = 64

// Confine restricts what an instance may do. With runtime docker, the container engine enforces
// the restrictions where it can.
type Confine struct {
	// User is the name or number of the host user that runs the processes. Empty means the agent's
	// own user.
	User string `json:"user,omitempty"`
	// NoNewPrivileges keeps programs from gaining privileges, for example through setuid files.
	NoNewPrivileges bool `json:"noNewPrivileges,omitempty"`
	// PrivateTmp gives each run its own /tmp, which is deleted afterwards.
	PrivateTmp bool `json:"privateTmp,omitempty"`
	// ReadOnlyTemplates makes the files that come from templates read-only.
	ReadOnlyTemplates bool `json:"readOnlyTemplates,omitempty"`
}

// Container configures runtime docker. Other runtimes ignore it.
type Container struct {
	// Image is the image to run, either local or from its registry. Placeholders are allowed.
	Image string `json:"image,omitempty"`
	// User is the user inside the container. Empty means the image's own.
	User string `json:"user,omitempty"`
	// Network is the name of a network, or host. Empty means the engine's default network with the
	// instance's ports published.
	Network string `json:"network,omitempty"`
	// Volumes are further mounts: host:container or host:container:ro. The instance's directory is
	// always mounted at Directory.
	Volumes []string `json:"volumes,omitempty"`
	// Directory is the path of the instance's directory in the container. Empty means /data.
	Directory string `json:"directory,omitempty"`
}

const (
	maxProcesses = 4 << 20
	maxIOWeight  = 10_000
	maxDiskMiB   = 1 << 30 // 1 PiB
	maxLogMiB    = 1 << 20
	maxImage     = 1 << 10
)

var (
	hostUserPattern = regexp.MustCompile(`^([a-z_][a-z0-9_-]{0,31}\$?|[0-9]{1,9})$`)
	dockerName      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	dockerUser      = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)
)

// Validate returns everything that is wrong with l, as Invalid errors that name the field.
func (l Limits) Validate() []error {
	var p validate.Problems
	within := func(name string, v, limit int) {
		p.Check(v >= 0 && v <= limit, "limits."+name, "must be between 0 and %d, is %d", limit, v)
	}
	within("processes", l.Processes, maxProcesses)
	within("ioWeight", l.IOWeight, maxIOWeight)
	within("diskMb", l.DiskMiB, maxDiskMiB)
	within("logMb", l.LogMiB, maxLogMiB)
	return p.List
}

// Validate returns everything that is wrong with c. docker reports whether it is for runtime docker.
func (c Confine) Validate(docker bool) []error {
	var p validate.Problems
	p.Check(!c.ReadOnlyTemplates || c.User != "" || docker, "confine.readOnlyTemplates", "needs confine.user: the agent's own user could make the files writable again")
	p.Check(c.User == "" || HostUser(c.User), "confine.user", "%q is not a user name or number", validate.Clip(c.User))
	return p.List
}

// Validate returns everything that is wrong with c. docker reports whether it is for runtime docker,
// and custom is the image that the variable of the environment named by variable sets.
func (c Container) Validate(docker bool, variable, custom string) []error {
	var p validate.Problems
	p.Check(!docker || c.Image != "" || custom != "", "container.image", "is required with runtime docker, unless the environment sets %s", variable)
	p.Check(len(c.Image) <= maxImage && !validate.HasControl(c.Image) && !strings.Contains(c.Image, " "), "container.image", "must have at most %d bytes and no blanks", maxImage)
	p.Check(c.User == "" || ContainerUser(c.User), "container.user", "%q is not a container user: use user or user:group", validate.Clip(c.User))
	p.Check(c.Network == "" || NetworkName(c.Network), "container.network", "%q is not a network name", validate.Clip(c.Network))
	p.Check(c.Directory == "" || absolute(c.Directory), "container.directory", "%q is not an absolute path without ..", validate.Clip(c.Directory))
	p.Check(len(c.Volumes) <= validate.MaxEntries, "container.volumes", "must have at most %d entries", validate.MaxEntries)
	for n, v := range c.Volumes {
		parts := strings.Split(v, ":")
		ok := (len(parts) == 2 || len(parts) == 3 && (parts[2] == "ro" || parts[2] == "rw")) && absolute(parts[1]) && VolumeSource(parts[0])
		p.Check(ok, fmt.Sprintf("container.volumes[%d]", n), "%q must be host:container or host:container:ro, where host is an absolute path or a volume name and container is an absolute path", validate.Clip(v))
	}
	return p.List
}

// HostUser reports whether s can be the name or number of a host user.
func HostUser(s string) bool { return hostUserPattern.MatchString(s) }

// ContainerUser reports whether s can be a user in a container: user or user:group.
func ContainerUser(s string) bool { return dockerUser.MatchString(s) }

// NetworkName reports whether s can be the name of a container network.
func NetworkName(s string) bool { return dockerName.MatchString(s) }

// VolumeSource reports whether s can be the host's part of a mount: a clean absolute path, or the name of
// a volume.
func VolumeSource(s string) bool {
	return absolute(s) && !strings.Contains(s, ":") || dockerName.MatchString(s)
}

// absolute reports whether p is a clean absolute slash path.
func absolute(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) <= 1024 && !validate.HasControl(p)
}

// Tenants says whether each instance of a node outside a container, whose group names no user, runs as a
// user of its own.
type Tenants struct {
	Isolated bool `json:"isolated"`
	// Why says why instances are not isolated, or what is missing although they are. Empty if nothing is.
	Why string `json:"why,omitempty"`
}
