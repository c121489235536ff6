// Package sdk_test calls a running Orrery through the Go client.
package sdk_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
	orrery "github.com/orreryhq/orrery/sdk"
)

func TestMain(m *testing.M) {
	code := m.Run()
	cluster.Cleanup()
	os.Exit(code)
}

// dial returns a client that is logged in as the first user.
func dial(t *testing.T, c cluster.Cluster) *orrery.Client {
	t.Helper()
	config := orrery.Config{Addresses: []string{c.API()}}
	anonymous, err := orrery.New(config)
	if err != nil {
		t.Fatal(err)
	}
	password, err := os.ReadFile(c.PasswordFile())
	if err != nil {
		t.Fatal(err)
	}
	session, err := anonymous.Login(t.Context(), &orrery.LoginRequest{Username: "admin", Password: strings.TrimSpace(string(password))})
	if err != nil {
		t.Fatal(err)
	}
	config.Credentials = orrery.StaticToken(session.Token)
	client, err := orrery.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// reads reports whether a method only reads and needs no arguments.
func reads(method reflect.Method) bool {
	name, signature := method.Name, method.Type
	if !strings.HasPrefix(name, "Get") && !strings.HasPrefix(name, "List") || strings.HasSuffix(name, "At") {
		return false
	}
	for i := 2; i < signature.NumIn(); i++ {
		if signature.In(i).Kind() != reflect.Pointer { // a name in the path
			return false
		}
	}
	return signature.NumOut() == 2
}

func TestEveryListIsDecoded(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	client := dial(t, c)
	if _, err := client.CreateGroup(t.Context(), &orrery.GroupFields{Name: new("sdk"), Command: new("exec cat"), MinInstances: new(int64(1)), MemoryMB: new(int64(16)), ShutdownGraceSeconds: new(int64(1))}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "sdk-1 running", func() string {
		instance, err := client.GetInstance(t.Context(), "sdk-1")
		if err != nil {
			return err.Error()
		}
		return await.Unless(instance.State == "RUNNING", "%s", instance.State)
	})
	value, called := reflect.ValueOf(client), 0
	for i := range value.NumMethod() {
		method := value.Type().Method(i)
		if !reads(method) {
			continue
		}
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		for i := 2; i < method.Type.NumIn(); i++ {
			args = append(args, reflect.Zero(method.Type.In(i)))
		}
		called++
		// One list needs a permission that no role has yet.
		if err, _ := value.Method(i).Call(args)[1].Interface().(error); err != nil && !errors.Is(err, orrery.ErrDenied) {
			t.Errorf("%s: %v", method.Name, err)
		}
	}
	if called < 30 {
		t.Errorf("only %d methods were called", called)
	}
}

func TestWritersAreToldOfConflicts(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	client := dial(t, c)
	ctx := t.Context()
	if _, err := client.CreateGroup(ctx, &orrery.GroupFields{Name: new("duel"), Command: new("exec cat"), MinInstances: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	read, err := client.GetGroup(ctx, "duel")
	if err != nil || read.ETag == "" {
		t.Fatalf("etag %q: %v", read.ETag, err)
	}
	changed, err := client.UpdateGroup(ctx, "duel", orrery.Patch{"maxPlayers": 7}, &orrery.UpdateGroupParams{IfMatch: read.ETag})
	if err != nil || changed.MaxPlayers != 7 {
		t.Fatalf("%+v, %v", changed, err)
	}
	if _, err := client.UpdateGroup(ctx, "duel", orrery.Patch{"maxPlayers": 8}, &orrery.UpdateGroupParams{IfMatch: read.ETag}); !errors.Is(err, orrery.ErrPreconditionFailed) {
		t.Errorf("a second writer gets %v", err)
	}
	if _, err := client.GetGroup(ctx, "dule"); !errors.Is(err, orrery.ErrNotFound) {
		t.Errorf("a missing group gives %v", err)
	}
	plan, err := client.DeleteGroupDryRun(ctx, "duel", nil)
	if err != nil || plan == nil {
		t.Errorf("dry run: %v, %v", plan, err)
	}
	if _, err := client.GetGroup(ctx, "duel"); err != nil {
		t.Errorf("after a dry run: %v", err)
	}
}

func TestEventsResumeAtAnotherGateway(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	first, second := cluster.AddGateway(t, c, admin, "first"), cluster.AddGateway(t, c, admin, "second")
	client, err := orrery.New(orrery.Config{Addresses: []string{first.API(), second.API()}, Credentials: orrery.StaticToken(admin.Token())})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	connected, names := make(chan struct{}, 16), make(chan string, 64)
	ended := make(chan error, 1)
	go func() {
		o := orrery.EventsOptions{Types: []string{"GROUP_CREATED"}, OnConnect: func() { connected <- struct{}{} }}
		for event, err := range client.Events(ctx, o) {
			if err != nil {
				ended <- err
				return
			}
			names <- string(event.Data)
		}
	}()
	<-connected
	for _, name := range []string{"one", "two", "three"} {
		if name == "two" {
			first.Kill()
		}
		admin.Do("POST", "/api/v1/groups", map[string]any{"name": name, "command": "cat", "minInstances": 0}).OK(201)
	}
	for _, want := range []string{"one", "two", "three"} {
		select {
		case got := <-names:
			if !strings.Contains(got, `"`+want+`"`) {
				t.Errorf("event %s, want that of %s", got, want)
			}
		case err := <-ended:
			t.Fatal(err)
		case <-cluster.Bounded(t).Done():
			t.Fatalf("no event of %s", want)
		}
	}
}
