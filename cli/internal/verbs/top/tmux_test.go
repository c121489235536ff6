package top_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/clitest/golden"
	"github.com/orreryhq/orrery/cli/internal/clitest/tmuxtest"
)

// gateway answers like the recorded one, and streams the events that the test sends.
func gateway(t *testing.T, events <-chan string, acts chan<- string) string {
	t.Helper()
	mux := http.NewServeMux()
	for _, kind := range []string{"nodes", "groups", "instances"} {
		content, err := os.ReadFile(filepath.Join("testdata", kind+".json"))
		if err != nil {
			t.Fatal(err)
		}
		mux.HandleFunc("GET /api/v1/"+kind, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
	}
	mux.HandleFunc("GET /api/v1/problems", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[],"page":1,"pageSize":1,"total":2}`)
	})
	mux.HandleFunc("POST /api/v1/services/{name}/{verb}", func(w http.ResponseWriter, r *http.Request) {
		acts <- r.PathValue("verb") + " " + r.PathValue("name")
		fmt.Fprint(w, `{"status":"force-stopping","changed":true,"instance":{}}`)
	})
	mux.HandleFunc("GET /api/v1/events/stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: connected\ndata: {\"latestSequence\":9,\"clusterId\":\"c\"}\n\n")
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case data := <-events:
				fmt.Fprintf(w, "event: message\ndata: %s\n\n", data)
			case <-r.Context().Done():
				return
			}
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return server.URL
}

func TestTopInATerminal(t *testing.T) {
	events, acts := make(chan string), make(chan string, 8)
	server := gateway(t, events, acts)
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("current: test\ncontexts: [{name: test, servers: [\""+server+"\"]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"ORRERY_TOKEN=token", "ORRERY_CONFIG=" + config, "NO_COLOR=1"}
	term := tmuxtest.Start(t, 80, 24, env, tmuxtest.Build(t), "top")
	screen := func(name, text string, without ...string) {
		t.Helper()
		golden.Equal(t, "tmux-"+name+".txt", term.WaitFor(text, without...))
	}
	screen("start", "problems 2")
	events <- `{"type":"INSTANCE_STATE_CHANGED","instanceId":"arena-2","uid":"vl1mev","group":"arena","nodeId":"node-1","oldState":"RUNNING","newState":"CRASHED","reason":"ProcessExited","message":"exit code 1"}`
	term.Press("Down")
	screen("crashed", "ProcessExited")
	term.Press("k")
	screen("question", "kill arena-2? y/n")
	term.Press("y")
	screen("killed", "force-stopping")
	if act := <-acts; act != "force-stop arena-2" {
		t.Errorf("the server was asked to %s", act)
	}
	term.Press("/")
	term.Press("running")
	term.Press("Enter")
	screen("filtered", "/running (2)", "force-stopping")
	term.Resize(40, 10)
	screen("small", "q quit  ? help  a attach  l logs  s stop", "─")
	term.Press("1")
	screen("nodes", "STATUS")
	term.Resize(20, 5)
	screen("tiny-nodes", "[1 nodes 1]", "Ente")
	term.Press("3")
	screen("tiny", "› arena", "[1 nodes 1]", "attach")
	term.Press("q")
	term.WaitForExit()
}
