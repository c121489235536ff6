package fleet

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Limits are hard bounds of one instance beside its memory (Resources.MemoryMiB) and
// its processor time (CPULimit). A node whose host cannot hold one says so in the
// instance's message.
type Limits struct {
	// Processes bounds processes and threads. 0 does not.
	Processes int `json:"processes,omitempty"`
	// IOWeight is its share of the disks against others, 1 to 10,000; 0 is the usual 100.
	IOWeight int `json:"ioWeight,omitempty"`
	// DiskMiB bounds what its directory holds: what exceeds it is ended, with that reason. 0 does not.
	DiskMiB int `json:"diskMiB,omitempty"`
	// LogMiB bounds what is kept of its console; the oldest goes first. 0 is DefaultLogMiB.
	LogMiB int `json:"logMiB,omitempty"`
}

// DefaultLogMiB is what is kept of a console that says nothing about it.
const DefaultLogMiB = 64

// Confine says what an instance is kept from beside its limits. Runtime docker does
// the same by its own means where it has them.
type Confine struct {
	// User is the host's user the processes run as, by name or number; empty is the
	// agent's own.
	User string `json:"user,omitempty"`
	// NoNewPrivileges keeps programs from gaining rights by setuid files and the like.
	NoNewPrivileges bool `json:"noNewPrivileges,omitempty"`
	// PrivateTmp gives it a /tmp of its own, which goes with the run.
	PrivateTmp bool `json:"privateTmp,omitempty"`
	// ReadOnlyTemplates takes the right to write from the files that came from templates.
	ReadOnlyTemplates bool `json:"readOnlyTemplates,omitempty"`
}

// Container is what runtime docker needs; other runtimes ignore it.
type Container struct {
	// Image is what is run; it must be there or be had from its registry. Placeholders allowed.
	Image string `json:"image,omitempty"`
	// User inside the container; empty is the image's own.
	User string `json:"user,omitempty"`
	// Network is a network's name, host, or empty for the engine's own one with the
	// instance's ports published.
	Network string `json:"network,omitempty"`
	// Volumes are further mounts, host:container or host:container:ro. The instance's
	// directory is always mounted, at Directory.
	Volumes []string `json:"volumes,omitempty"`
	// Directory is where the instance's directory is in the container; empty is /data.
	Directory string `json:"directory,omitempty"`
}

// RCON is a channel for commands beside the console: Source's remote console, as
// Minecraft's and many other servers speak it. Off without a Port.
type RCON struct {
	// Port names the additional TCP port the server listens on for it.
	Port string `json:"port,omitempty"`
	// Password is what the server was configured with. Placeholders allowed.
	Password string `json:"password,omitempty"`
}

// Hidden is shown in place of a password to whoever may not see it; written, it stands
// for the password there is.
const Hidden = "***"

// Hide is the channel without its password; one that has none has none to hide.
func (r RCON) Hide() RCON {
	if r.Password != "" {
		r.Password = Hidden
	}
	return r
}

const (
	maxProcesses = 4 << 20
	maxIOWeight  = 10_000
	maxLogMiB    = 1 << 20
	maxImage     = 1 << 10
)

var (
	hostUserPattern = regexp.MustCompile(`^([a-z_][a-z0-9_-]{0,31}\$?|[0-9]{1,9})$`)
	dockerName      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
	dockerUser      = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)
)

func (l Limits) validate() []error {
	var p problems
	within := func(name string, v, limit int) {
		p.check(v >= 0 && v <= limit, "limits."+name, "must be between 0 and %d, is %d", limit, v)
	}
	within("processes", l.Processes, maxProcesses)
	within("ioWeight", l.IOWeight, maxIOWeight)
	within("diskMb", l.DiskMiB, maxDiskMiB)
	within("logMb", l.LogMiB, maxLogMiB)
	return p.list
}

func (c Confine) validate(r RuntimeName) []error {
	var p problems
	p.check(!c.ReadOnlyTemplates || c.User != "" || r == RuntimeDocker, "confine.readOnlyTemplates", "needs confine.user: the agent's own user could take the right to write back")
	p.check(c.User == "" || hostUserPattern.MatchString(c.User), "confine.user", "%q is not the name or number of a user", clip(c.User))
	return p.list
}

// validate lists everything wrong with it; custom is the image that the environment names.
func (c Container) validate(r RuntimeName, custom string) []error {
	var p problems
	p.check(r != RuntimeDocker || c.Image != "" || custom != "", "container.image", "must be given with runtime docker, or %s in the environment: it is what is run", customImage)
	p.check(len(c.Image) <= maxImage && !HasControl(c.Image) && !strings.Contains(c.Image, " "), "container.image", "must be at most %d bytes without blanks", maxImage)
	p.check(c.User == "" || dockerUser.MatchString(c.User), "container.user", "%q is not a user, or user:group, of a container", clip(c.User))
	p.check(c.Network == "" || dockerName.MatchString(c.Network), "container.network", "%q is not the name of a network", clip(c.Network))
	p.check(c.Directory == "" || absolute(c.Directory), "container.directory", "%q is not an absolute path without ..", clip(c.Directory))
	p.check(len(c.Volumes) <= maxEntries, "container.volumes", "must have at most %d entries", maxEntries)
	for n, v := range c.Volumes {
		parts := strings.Split(v, ":")
		ok := (len(parts) == 2 || len(parts) == 3 && (parts[2] == "ro" || parts[2] == "rw")) && absolute(parts[1]) &&
			(absolute(parts[0]) || dockerName.MatchString(parts[0]))
		p.check(ok, fmt.Sprintf("container.volumes[%d]", n), "%q must be host:container or host:container:ro, where host is an absolute path or a volume's name and container an absolute path", clip(v))
	}
	return p.list
}

func (r RCON) validate(ports []NamedPort) []error {
	var p problems
	if r.Port == "" {
		p.check(r.Password == "", "rcon.port", "must be given with a password: it names the additional port the server listens on")
		return p.list
	}
	found := false
	for _, n := range ports {
		found = found || strings.EqualFold(n.Name, r.Port) && n.Protocol == "tcp"
	}
	p.check(found, "rcon.port", "%q is not the name of an additional TCP port", clip(r.Port))
	p.check(r.Password != "", "rcon.password", "must be given: servers refuse an empty one")
	p.check(r.Password != Hidden, "rcon.password", "%s stands for the password there is, and there is none: give it", Hidden)
	p.check(len(r.Password) <= maxStopCommand && !HasControl(r.Password), "rcon.password", "must be at most %d bytes without control characters", maxStopCommand)
	return p.list
}

// absolute reports whether p is an absolute slash path that says where it leads.
func absolute(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) <= 1024 && !HasControl(p)
}
