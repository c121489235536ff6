package main

import (
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/program"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent"
)

// settings are what an operator may set.
type settings struct {
	program.Settings
	Node         string            `config:"node" usage:"id of this node; empty: the host's name. It belongs to one data directory"`
	Data         string            `config:"data" default:"./node" usage:"directory of instances, logs, journal and cache"`
	RunDir       string            `config:"run-dir" usage:"directory in memory for what is needed only while the host is up, such as /run/orrery: starts are faster; empty: in the data directory"`
	Address      string            `config:"address" default:"127.0.0.1" usage:"address players reach this host by"`
	Listen       string            `config:"listen" default:"127.0.0.1:0" usage:"address of the agent's API, for gateways only; port 0 picks a free one"`
	AdvertiseURL string            `config:"advertise-url" usage:"URL gateways reach the agent's API by; empty: derived from listen, with the host's name where it listens on all addresses"`
	APIURL       string            `config:"api-url" usage:"the gateway's URL as seen by instances, e.g. http://10.0.0.1:8080"`
	Labels       map[string]string `config:"labels" usage:"labels of the node, key=value"`
	Variables    map[string]string `config:"variables" usage:"placeholder values of the node, key=value"`
	Secrets      struct {
		Dir       string `config:"dir" usage:"directory below which file references of secrets are read; empty: this node follows none"`
		EnvPrefix string `config:"env-prefix" default:"ORRERY_SECRET_" usage:"what the names begin with that env references of secrets may read of the agent's environment; empty: this node follows none"`
	} `config:"secrets"`
	Providers struct {
		Dir string `config:"dir" usage:"directory of programs that give placeholders of this node's instances; empty: none"`
	} `config:"providers"`
	Memory        int           `config:"memory" usage:"memory the node offers, in MiB; 0: what the host has"`
	CPU           int           `config:"cpu" usage:"CPU the node offers, in hundredths of a core; 0: what the host has"`
	Cache         int           `config:"cache-mib" usage:"template content kept on this host for the next start, in MiB; 0: a tenth of the disk, between 1 and 64 GiB"`
	ReserveMemory int           `config:"reserve-memory" usage:"memory kept for the host itself, in MiB"`
	ReserveCPU    int           `config:"reserve-cpu" usage:"CPU kept for the host itself, in hundredths of a core"`
	ReserveDisk   int           `config:"reserve-disk" usage:"disk kept for the host itself, in MiB"`
	CPUFactor     float64       `config:"cpu-factor" default:"1" usage:"how often each hundredth of a core may be reserved: 2 is twice, 0.5 half"`
	MaxInstances  int           `config:"max-instances" usage:"most instances on the node; 0: no bound"`
	InstanceUser  string        `config:"instance-user" usage:"user of this host that instances run as unless their group sets confine.user; the agent has to be root; containers keep their image's user; empty: the agent's own user"`
	StopInstances bool          `config:"stop-instances" usage:"stop all instances when the agent ends; otherwise they run on and the next agent adopts them"`
	OrphanGrace   time.Duration `config:"orphan-grace" default:"10m" usage:"how long a process runs on whose instance has no record in the store; 0: for ever"`
	LogKeep       int           `config:"log.keep" default:"2000" usage:"records of the agent's own log kept in memory, for who reads it over the API"`
	StopTimeout   time.Duration `config:"stop-timeout" default:"10m" usage:"how long stopping all instances may take"`
}

// Validate names the settings that cannot be used.
func (s *settings) Validate() []error {
	problems := slices.Concat(s.Settings.Validate(), s.RequireSecret(), telemetry.CheckKept(s.LogKeep))
	if err := fleet.NodeID(s.node()).Validate(); err != nil {
		problems = append(problems, err)
	}
	if s.Cache < 0 {
		problems = append(problems, errs.Field("cache-mib", "must not be negative"))
	}
	if s.OrphanGrace < 0 {
		problems = append(problems, errs.Field("orphan-grace", "must not be negative"))
	}
	if s.StopTimeout <= 0 {
		problems = append(problems, errs.Field("stop-timeout", "must be longer than 0, such as 10m"))
	}
	return append(problems, nodeagent.CheckOffer(s.Memory, s.CPU, s.room())...)
}

// room is how much of its capacity the node gives.
func (s *settings) room() fleet.NodeRoom {
	return fleet.NodeRoom{
		Reserved:  fleet.Resources{MemoryMiB: s.ReserveMemory, CPU: s.ReserveCPU, DiskMiB: s.ReserveDisk},
		CPUFactor: s.CPUFactor, MaxInstances: s.MaxInstances,
	}
}

// unreachable reports whether the agent tells others an address that means this
// host, while its etcd is on another, so that gateways there cannot reach it.
func (s *settings) unreachable() bool {
	advertised := s.Listen
	if u, err := url.Parse(s.AdvertiseURL); s.AdvertiseURL != "" && err == nil {
		advertised = u.Host
	}
	return loopback(advertised) && !slices.ContainsFunc(s.Etcd.Endpoints, func(e string) bool {
		u, err := url.Parse(e)
		switch {
		case err == nil && u.Scheme == "unix": // a socket is on this host
			return true
		case err == nil && u.Host != "":
			e = u.Host
		}
		return loopback(e)
	})
}

// loopback reports whether a host, with or without a port, is this one.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// node is the given id, else the host's name.
func (s *settings) node() string {
	if s.Node != "" {
		return s.Node
	}
	host, _ := os.Hostname()
	return strings.ToLower(host)
}
