package main

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/program"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent"
)

// settings are the settings of the program.
type settings struct {
	program.Settings
	Seal         program.Seal      `config:"seal"`
	Node         string            `config:"node" usage:"id of this node; empty: the host's name. It belongs to one data directory"`
	Data         string            `config:"data" default:"./node" usage:"directory of instances, logs, journal and cache"`
	RunDir       string            `config:"run-dir" usage:"directory in memory for files that are needed only while the host is up, such as /run/orrery, which makes starts faster; empty: in the data directory"`
	Address      string            `config:"address" default:"127.0.0.1" usage:"address at which players reach this host"`
	Listen       string            `config:"listen" default:"127.0.0.1:0" usage:"address of the agent's API, for gateways only; port 0 picks a free one"`
	AdvertiseURL string            `config:"advertise-url" usage:"URL at which gateways reach the agent's API; empty: derived from listen, with the host's name if it listens on all addresses"`
	Gateways     []string          `config:"gateways" usage:"URLs at which gateways serve nodes (their nodes.listen): the agent uses etcd through them, instead of etcd.endpoints, renews its certificate and gets secrets; needs trust.file, and makes cluster.secret unnecessary; empty: the agent uses etcd itself"`
	APIURL       string            `config:"api-url" usage:"the gateway's URL for instances, e.g. http://10.0.0.1:8080"`
	Labels       map[string]string `config:"labels" usage:"labels of the node, key=value"`
	Variables    map[string]string `config:"variables" usage:"placeholder values of the node, key=value"`
	Secrets      struct {
		Dir       string `config:"dir" usage:"directory of the secrets that file references may name; empty: file references are disabled on this node"`
		EnvPrefix string `config:"env-prefix" default:"ORRERY_SECRET_" usage:"prefix of the environment variables that env references may name; empty: env references are disabled on this node"`
	} `config:"secrets"`
	Providers struct {
		Dir string `config:"dir" usage:"directory of programs that provide placeholder values for this node's instances; empty: none"`
	} `config:"providers"`
	Memory         int     `config:"memory" usage:"memory of the node, in MiB; 0: that of the host"`
	CPU            int     `config:"cpu" usage:"CPU of the node, in hundredths of a core; 0: that of the host"`
	FileVersions   int     `config:"file-versions-mib" usage:"previous contents of files that users changed in static instances, kept for a day on this host, in MiB; 0: 2 GiB"`
	BackupDir      string  `config:"backup-dir" usage:"directory of backups of static instances, such as one on another disk, in which each node has a directory of its own; empty: backups in the data directory"`
	Cache          int     `config:"cache-mib" usage:"template content cached on this host, in MiB; 0: a tenth of the disk, between 1 and 64 GiB"`
	ReserveMemory  int     `config:"reserve-memory" usage:"memory reserved for the host itself, in MiB"`
	ReserveCPU     int     `config:"reserve-cpu" usage:"CPU reserved for the host itself, in hundredths of a core"`
	ReserveDisk    int     `config:"reserve-disk" usage:"disk reserved for the host itself, in MiB"`
	CPUFactor      float64 `config:"cpu-factor" default:"1" usage:"overcommit factor of CPU: 2 lets instances reserve each core twice, 0.5 half of it"`
	MaxInstances   int     `config:"max-instances" usage:"maximum number of instances on the node; 0: no limit"`
	StartParallel  int     `config:"start-parallel" usage:"number of instances that start at the same time; 0: no limit, and one per processor in the 10 minutes after a reboot"`
	InstanceUIDs   string  `config:"instance-uids" usage:"range of user and group ids for instances whose group does not set confine.user, each of which gets its own; requires an agent that runs as root; containers use their image's user; empty: 1900000000-1900065535 if the agent runs as root and instance-user is empty"`
	InstanceUser   string  `config:"instance-user" usage:"one host user for all instances whose group does not set confine.user, instead of instance-uids; requires an agent that runs as root; containers use their image's user; empty: users by instance-uids, or else the agent's own user"`
	RequireTenants bool    `config:"require-tenants" usage:"refuse to start if instances would share a user instead of getting one each by instance-uids"`
	Policy         struct {
		Users          []string `config:"users" usage:"host users that confine.user of a group may name, beside instance-user; *: all"`
		ContainerUsers []string `config:"container-users" usage:"users that container.user of a group may name, as user or user:group; *: all"`
		Volumes        []string `config:"volumes" usage:"directories of this host that containers may mount, each with all below it, and names of volumes of the container engine; *: all"`
		Networks       []string `config:"networks" usage:"networks that containers may join beyond none and the container engine's default, such as host; *: all"`
		Images         []string `config:"images" usage:"images that containers may use, such as ghcr.io/team/server:1, ghcr.io/team/server or ghcr.io/team/*; empty: all"`
	} `config:"policy"`
	StopInstances bool          `config:"stop-instances" usage:"stop all instances when the agent ends; otherwise they keep running and the next agent adopts them"`
	OrphanGrace   time.Duration `config:"orphan-grace" default:"10m" usage:"how long an instance without a record in the store may keep running; 0: forever"`
	LogKeep       int           `config:"log.keep" default:"2000" usage:"number of records of the agent's own log kept in memory for the API"`
	StopTimeout   time.Duration `config:"stop-timeout" default:"10m" usage:"how long stopping all instances may take"`
}

// Validate returns an error for each invalid setting.
func (s *settings) Validate() []error {
	problems := slices.Concat(s.Settings.Validate(), telemetry.CheckKept(s.LogKeep))
	if len(s.Gateways) == 0 {
		problems = append(problems, s.RequireSecret()...)
	} else if s.Trust.File == "" {
		problems = append(problems, errs.Field("trust.file", "is needed with gateways: nodeagent join writes it"))
	}
	if slices.ContainsFunc(s.Gateways, func(g string) bool { return !strings.HasPrefix(g, "https://") }) {
		problems = append(problems, errs.Field("gateways", "must all begin with https://"))
	}
	if err := fleet.NodeID(s.node()).Validate(); err != nil {
		problems = append(problems, err)
	}
	if s.Cache < 0 {
		problems = append(problems, errs.Field("cache-mib", "must not be negative"))
	}
	if s.FileVersions < 0 {
		problems = append(problems, errs.Field("file-versions-mib", "must not be negative"))
	}
	if s.StartParallel < 0 {
		problems = append(problems, errs.Field("start-parallel", "must not be negative"))
	}
	if s.OrphanGrace < 0 {
		problems = append(problems, errs.Field("orphan-grace", "must not be negative"))
	}
	if s.StopTimeout <= 0 {
		problems = append(problems, errs.Field("stop-timeout", "must be longer than 0, such as 10m"))
	}
	problems = append(problems, s.policy().Validate()...)
	return append(problems, nodeagent.CheckOffer(s.Memory, s.CPU, s.room())...)
}

// policy is what instances may use.
func (s *settings) policy() policy.Policy { return policy.Policy(s.Policy) }

// room limits how much of its capacity the node offers.
func (s *settings) room() fleet.NodeRoom {
	return fleet.NodeRoom{
		Reserved:  fleet.Resources{MemoryMiB: s.ReserveMemory, CPU: s.ReserveCPU, DiskMiB: s.ReserveDisk},
		CPUFactor: s.CPUFactor, MaxInstances: s.MaxInstances,
	}
}

// node is the configured id, or the host's name.
func (s *settings) node() string {
	if s.Node != "" {
		return s.Node
	}
	host, _ := os.Hostname()
	return strings.ToLower(host)
}
