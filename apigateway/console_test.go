package apigateway

import (
	"bufio"
	"net/http"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
)

func TestBrokenConsoleStreamsBackOff(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	id := s.start("lobby")
	s.status(id, "node-1", fleet.Status{State: fleet.Online})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/v1/instances/"+string(id)+"/console", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if lines.Text() == "event: waiting" { // sent once the retry delay grows
			return
		}
	}
	t.Errorf("it is asked again and again at once: %v", lines.Err())
}
