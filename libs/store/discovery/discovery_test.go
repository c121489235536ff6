package discovery_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/discovery"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestDiscoveryFollowsReplicas(t *testing.T) {
	c := storetest.New(t)
	d := discovery.New(c, "templatesvc")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = d.Run(ctx) }()
	defer func() { cancel(); <-done }()

	open := func(service, replica, url string) *store.Session {
		s, err := store.OpenSession(t.Context(), c, keys.Session(service, replica), cluster.Session{URL: url}, time.Minute, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Abandon)
		return s
	}
	expect := func(want ...string) {
		t.Helper()
		await.That(t, fmt.Sprint("the URLs ", want), func() string {
			got := d.URLs()
			return await.Unless(slices.Equal(got, want), "%v", got)
		})
	}
	a := open("templatesvc", "a", "http://a")
	open("templatesvc", "b", "http://b")
	open("scheduler", "c", "http://c")
	open("templatesvc", "mute", "")
	expect("http://a", "http://b")
	a.Close(t.Context())
	expect("http://b")
}
