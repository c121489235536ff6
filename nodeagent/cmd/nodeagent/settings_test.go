package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

func TestInvalidCapacityAndRoomNameTheSetting(t *testing.T) {
	for _, c := range []struct {
		rule, setting string
		change        func(*settings)
	}{
		{"defaults", "", func(*settings) {}},
		{"all settings", "", func(s *settings) {
			s.Memory, s.CPU, s.ReserveMemory, s.ReserveCPU, s.ReserveDisk, s.CPUFactor, s.MaxInstances = 4096, 400, 512, 50, 1000, 1.5, 20
		}},
		{"negative memory", "memory", func(s *settings) { s.Memory = -1 }},
		{"impossible memory", "memory", func(s *settings) { s.Memory = math.MaxInt }},
		{"negative CPU", "cpu", func(s *settings) { s.CPU = -1 }},
		{"impossible CPU", "cpu", func(s *settings) { s.CPU = math.MaxInt }},
		{"negative memory reserve", "reserve-memory", func(s *settings) { s.ReserveMemory = -1 }},
		{"negative CPU reserve", "reserve-cpu", func(s *settings) { s.ReserveCPU = -1 }},
		{"impossible disk reserve", "reserve-disk", func(s *settings) { s.ReserveDisk = math.MaxInt }},
		{"a negative factor", "cpu-factor", func(s *settings) { s.CPUFactor = -0.5 }},
		{"factor NaN", "cpu-factor", func(s *settings) { s.CPUFactor = math.NaN() }},
		{"infinite factor", "cpu-factor", func(s *settings) { s.CPUFactor = math.Inf(1) }},
		{"a user out of its alphabet", "policy.users", func(s *settings) { s.Policy.Users = []string{"a b"} }},
		{"a container user with two groups", "policy.container-users", func(s *settings) { s.Policy.ContainerUsers = []string{"1:2:3"} }},
		{"a relative directory", "policy.volumes", func(s *settings) { s.Policy.Volumes = []string{"./maps"} }},
		{"a directory with a pattern", "policy.volumes", func(s *settings) { s.Policy.Volumes = []string{"/srv/*"} }},
		{"a network of another container", "policy.networks", func(s *settings) { s.Policy.Networks = []string{"container:a"} }},
		{"an image with a pattern inside", "policy.images", func(s *settings) { s.Policy.Images = []string{"ghcr.io/*/server"} }},
		{"negative instance limit", "max-instances", func(s *settings) { s.MaxInstances = -1 }},
	} {
		t.Run(c.rule, func(t *testing.T) {
			s := settings{Node: "node-1", CPUFactor: 1}
			without := len(s.Validate()) // what else a bare struct lacks
			c.change(&s)
			problems := s.Validate()[without:]
			if c.setting == "" {
				if len(problems) > 0 {
					t.Errorf("refused: %v", problems)
				}
				return
			}
			if len(problems) != 1 || errs.FieldOf(problems[0]) != c.setting || !errs.Is(problems[0], errs.Invalid) {
				t.Errorf("says %v, want the setting %s named", problems, c.setting)
			}
		})
	}
}

func TestSettingsDefineRoom(t *testing.T) {
	s := settings{ReserveMemory: 1, ReserveCPU: 2, ReserveDisk: 3, CPUFactor: 4, MaxInstances: 5}
	if want := (fleet.NodeRoom{Reserved: fleet.Resources{MemoryMiB: 1, CPU: 2, DiskMiB: 3}, CPUFactor: 4, MaxInstances: 5}); s.room() != want {
		t.Errorf("%+v, want %+v", s.room(), want)
	}
}

func TestStopTimeoutMustBePositive(t *testing.T) {
	for limit, refused := range map[time.Duration]bool{-time.Second: true, 0: true, time.Second: false} {
		problems := (&settings{Node: "n", StopTimeout: limit}).Validate()
		got := slices.ContainsFunc(problems, func(err error) bool { return errs.FieldOf(err) == "stop-timeout" })
		if got != refused {
			t.Errorf("%v refused: %v", limit, got)
		}
	}
}

func TestAnAgentThatUsesGatewaysNeedsACertificateInsteadOfTheSecret(t *testing.T) {
	fields := func(change func(*settings)) (all []string) {
		s := settings{Node: "node-1", CPUFactor: 1}
		change(&s)
		for _, problem := range s.Validate() {
			if field := errs.FieldOf(problem); slices.Contains([]string{"cluster.secret", "trust.file", "gateways"}, field) {
				all = append(all, field)
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		change func(*settings)
		want   []string
	}{
		"etcd itself":        {func(*settings) {}, []string{"cluster.secret"}},
		"gateways":           {func(s *settings) { s.Gateways, s.Trust.File = []string{"https://h:1"}, "x" }, nil},
		"no certificate":     {func(s *settings) { s.Gateways = []string{"https://h:1"} }, []string{"trust.file"}},
		"a gateway in clear": {func(s *settings) { s.Gateways, s.Trust.File = []string{"https://h:1", "http://h:2"}, "x" }, []string{"gateways"}},
	} {
		if got := fields(c.change); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
