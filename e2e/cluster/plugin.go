package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
)

// Plugin calls the API as the plugin of an instance would, with the token of the instance.
type Plugin struct {
	t        testing.TB
	api      string
	token    string
	sequence int
}

// WritesToken returns a shell command by which an instance leaves its token for PluginOf in a
// directory of OpenDir.
func WritesToken(dir, name string) string { return fmt.Sprintf("echo $ORRERY_TOKEN >%s/%s", dir, name) }

// PluginOf waits for the token of an instance and returns its plugin.
func PluginOf(t testing.TB, c Cluster, dir, name string) *Plugin {
	t.Helper()
	p := &Plugin{t: t, api: c.API()}
	await.That(t, "the token of "+name, func() string {
		token, err := os.ReadFile(filepath.Join(dir, name))
		p.token = strings.TrimSpace(string(token))
		return await.Unless(strings.HasSuffix(string(token), "\n"), "%q, %v", token, err)
	})
	return p
}

// Call calls the API and decodes the answer into a value, unless that is nil.
func (p *Plugin) Call(method, path, body string, into any) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(Bounded(p.t), method, p.api+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	p.sequence++
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("X-Prexor-Sequence", fmt.Sprint(p.sequence))
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		p.t.Fatalf("%s %s: status %d", method, path, resp.StatusCode)
	}
	if into != nil {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			p.t.Fatal(err)
		}
	}
}
