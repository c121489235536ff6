package main

import (
	"crypto/rand"
	"os"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// settings are what an operator may set.
type settings struct {
	telemetry.Config
	Replica string `config:"replica" usage:"name of this process among the enforcers; empty: the host's name and a random part"`
	Etcd    struct {
		Endpoints []string `config:"endpoints" default:"http://127.0.0.1:2379" usage:"where etcd listens"`
	} `config:"etcd"`
	Session struct {
		TTL time.Duration `config:"ttl" default:"10s" usage:"how long others wait for this replica's groups when it died; at least 1s"`
	} `config:"session"`
	Records struct {
		Age   time.Duration `config:"age" default:"1h" usage:"how long records of finished instances are kept"`
		Count int           `config:"count" default:"20" usage:"how many of them are kept per group; at least 1"`
	} `config:"records"`
	Cluster struct {
		Secret string `config:"secret" secret:"true" usage:"secret shared by all services, for calls between them; the enforcer makes none"`
	} `config:"cluster"`
}

// Validate names the settings that cannot be used.
func (s *settings) Validate() []error {
	var problems []error
	check := func(ok bool, field, message string) {
		if !ok {
			problems = append(problems, errs.Field(field, "%s", message))
		}
	}
	check(len(s.Etcd.Endpoints) > 0, "etcd.endpoints", "must name at least one address of etcd")
	check(s.Session.TTL >= time.Second, "session.ttl", "must be at least 1s")
	check(s.Records.Age > 0, "records.age", "must be positive")
	check(s.Records.Count >= 1, "records.count", "must be at least 1")
	check(!strings.Contains(s.Replica, "/"), "replica", "must not contain a slash")
	return problems
}

// replica is the given name, else one that no other process has.
func (s *settings) replica() string {
	if s.Replica != "" {
		return s.Replica
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "enforcer"
	}
	return host + "-" + strings.ToLower(rand.Text()[:6])
}
