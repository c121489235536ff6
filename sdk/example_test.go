package orrery_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	orrery "github.com/orreryhq/orrery/sdk"
)

// List the groups of all pages.
func ExampleClient_AllGroups() {
	client, err := orrery.New(orrery.Config{
		Addresses:   []string{"http://127.0.0.1:8080"},
		Credentials: orrery.StaticToken(os.Getenv("ORRERY_TOKEN")),
	})
	if err != nil {
		log.Fatal(err)
	}
	for group, err := range client.AllGroups(context.Background(), nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(group.Name, group.MinInstances)
	}
}

// Read a group, change it, and begin again if somebody else changed it in between.
func ExampleClient_UpdateGroup() {
	raise := func(ctx context.Context, client *orrery.Client, name string) error {
		for {
			group, err := client.GetGroup(ctx, name)
			if err != nil {
				return err
			}
			patch := orrery.Patch{"minInstances": group.MinInstances + 1}
			_, err = client.UpdateGroup(ctx, name, patch, &orrery.UpdateGroupParams{IfMatch: group.ETag})
			if !errors.Is(err, orrery.ErrPreconditionFailed) {
				return err
			}
		}
	}
	_ = raise
}

// Create a group with an idempotency key that outlives the process, so that even a restarted
// program creates it once. Calls without a key of their own get a random one.
func ExampleClient_Call() {
	create := func(ctx context.Context, client *orrery.Client, order string) (*orrery.Group, error) {
		group := new(orrery.Group)
		err := client.Call(ctx, orrery.Request{
			Method: http.MethodPost,
			Path:   "/api/v1/groups",
			Header: http.Header{"Idempotency-Key": {"order-" + order}},
			Body:   &orrery.GroupFields{Name: new("event-" + order), MaxInstances: new(int64(4))},
		}, group)
		return group, err
	}
	_ = create
}
