package main

import (
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

func TestAnAgentThatOthersCannotReachIsTold(t *testing.T) {
	for _, c := range []struct {
		listen, advertised, etcd string
		unreachable              bool
	}{
		{"127.0.0.1:0", "", "http://127.0.0.1:2379", false},
		{"127.0.0.1:0", "", "localhost:2379", false},
		{"127.0.0.1:0", "", "http://10.0.0.1:2379", true},
		{"[::1]:7000", "", "10.0.0.1:2379", true},
		{":7000", "", "http://10.0.0.1:2379", false},
		{"10.0.0.2:7000", "", "http://10.0.0.1:2379", false},
		{"127.0.0.1:7000", "http://10.0.0.2:7000", "http://10.0.0.1:2379", false},
		{":7000", "http://localhost:7000", "http://10.0.0.1:2379", true},
	} {
		s := settings{Listen: c.listen, AdvertiseURL: c.advertised}
		s.Etcd.Endpoints = []string{c.etcd}
		if got := s.unreachable(); got != c.unreachable {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestAStopHasToBeGivenTime(t *testing.T) {
	for limit, refused := range map[time.Duration]bool{-time.Second: true, 0: true, time.Second: false} {
		problems := (&settings{Node: "n", StopTimeout: limit}).Validate()
		got := slices.ContainsFunc(problems, func(err error) bool { return errs.FieldOf(err) == "stop-timeout" })
		if got != refused {
			t.Errorf("%v refused: %v", limit, got)
		}
	}
}
