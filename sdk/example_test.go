package orrery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	orrery "github.com/orreryhq/orrery/sdk"
)

// demo is a gateway with the given answers by method and path. A program uses the address of a real one.
func demo(answers map[string]string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"7"`)
		io.WriteString(w, answers[r.Method+" "+r.URL.Path])
	}))
}

func connect(address string) *orrery.Client {
	client, err := orrery.New(orrery.Config{
		Addresses:   []string{address},
		Credentials: orrery.StaticToken("the token of a login, or an API token"),
	})
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// List the groups of all pages.
func ExampleClient_AllGroups() {
	gateway := demo(map[string]string{
		"GET /api/v1/groups": `{"data": [{"name": "arena", "minInstances": 1}, {"name": "lobby", "minInstances": 2}], "page": 1, "pageSize": 500, "total": 2}`,
	})
	defer gateway.Close()
	client := connect(gateway.URL)

	for group, err := range client.AllGroups(context.Background(), nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(group.Name, group.MinInstances)
	}
	// Output:
	// arena 1
	// lobby 2
}

// Read a group and change it, and begin again if it has changed in between.
func ExampleClient_UpdateGroup() {
	gateway := demo(map[string]string{
		"GET /api/v1/groups/lobby":   `{"name": "lobby", "minInstances": 2}`,
		"PATCH /api/v1/groups/lobby": `{"name": "lobby", "minInstances": 3}`,
	})
	defer gateway.Close()
	client, ctx := connect(gateway.URL), context.Background()

	for {
		group, err := client.GetGroup(ctx, "lobby")
		if err != nil {
			log.Fatal(err)
		}
		patch := orrery.Patch{"minInstances": group.MinInstances + 1}
		group, err = client.UpdateGroup(ctx, "lobby", patch, &orrery.UpdateGroupParams{IfMatch: group.ETag})
		if errors.Is(err, orrery.ErrPreconditionFailed) {
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(group.MinInstances)
		break
	}
	// Output: 3
}

// Create a group with an idempotency key of the program, so that it is created once even if the
// program is started again. Methods such as CreateGroup send a random key.
func ExampleClient_Call() {
	gateway := demo(map[string]string{"POST /api/v1/groups": `{"name": "event-12", "maxInstances": 4}`})
	defer gateway.Close()
	client := connect(gateway.URL)

	var group orrery.Group
	err := client.Call(context.Background(), orrery.Request{
		Method: http.MethodPost,
		Path:   "/api/v1/groups",
		Header: http.Header{"Idempotency-Key": {"event-12"}},
		Body:   &orrery.GroupFields{Name: new("event-12"), MaxInstances: new(int64(4))},
	}, &group)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(group.Name, group.MaxInstances)
	// Output: event-12 4
}
