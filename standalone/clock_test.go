package main

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/clock"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/standalone/stack"
)

func TestAllServicesTakeTheClockOfTheProgram(t *testing.T) {
	const ahead = 12 * time.Hour
	t.Setenv(clock.Variable, ahead.String())
	began := time.Now()
	p := start(t, t.TempDir())
	c, err := store.Dial([]string{p.ready.Etcd}, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stamps := map[string]time.Time{}
	for _, service := range []string{"apigateway", "enforcer", "scheduler", "templatesvc"} {
		sessions, _, err := store.List(t.Context(), c, keys.Sessions(service))
		if err != nil || len(sessions) != 1 {
			t.Fatalf("%s has the sessions %+v, %v", service, sessions, err)
		}
		stamps[service] = sessions[0].StartedAt
	}
	node, err := store.Get(t.Context(), c, keys.NodeSession(stack.DefaultNode))
	if err != nil {
		t.Fatal(err)
	}
	stamps["nodeagent"] = node.StartedAt
	for service, at := range stamps {
		if at.Before(began.Add(ahead)) {
			t.Errorf("%s started at %v, want %v ahead of %v", service, at, ahead, began)
		}
	}
}
