package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listeners returns the addresses of all TCP listeners of the program, IPv4 and IPv6.
func (p *program) listeners() []netip.AddrPort {
	p.t.Helper()
	sockets := map[string]bool{}
	fds := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	entries, err := os.ReadDir(fds)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil {
			sockets[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	var out []netip.AddrPort
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			const listening, inode = "0A", 9
			fields := strings.Fields(lines.Text())
			if len(fields) <= inode || fields[3] != listening || !sockets[fields[inode]] {
				continue
			}
			out = append(out, address(p.t, fields[1]))
		}
		_ = f.Close()
	}
	return out
}

// address parses an address from /proc/net/tcp: four-byte words, each in the host's byte
// order (little endian here), and a port.
func address(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	n, errPort := strconv.ParseUint(port, 16, 16)
	if err != nil || errPort != nil {
		t.Fatalf("%q is no address: %v %v", text, err, errPort)
	}
	for word := range slices.Chunk(b, 4) {
		slices.Reverse(word)
	}
	a, _ := netip.AddrFromSlice(b)
	if a = a.Unmap(); a.IsUnspecified() {
		a = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.AddrPortFrom(a, uint16(n))
}

func TestAPageOfAnotherOriginGetsNothingFromAnyListenerAndChangesNothing(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	state := func() (out []string) {
		for _, path := range []string{"/api/v1/groups", "/api/v1/users", "/api/v1/templates", "/api/v1/api-tokens", "/api/v1/cluster/config/versions"} {
			var all map[string]any
			p.get(path, &all)
			out = append(out, fmt.Sprint(path, ": ", all))
		}
		return out
	}
	before := state()
	all := p.listeners()
	const fewest = 5 // the API, metrics, the agent, templatesvc and the scheduler
	if len(all) < fewest {
		t.Fatalf("only %d listeners were found: %v", len(all), all)
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: new(net.Dialer).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       10 * time.Second,
	}
	for _, at := range all {
		foreign := []http.Header{{"Origin": {"https://evil.example"}}, {"Origin": {"null"}}, {"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site"}}}
		for n, header := range append(foreign, http.Header{"Origin": {"http://evil.example:" + strconv.Itoa(int(at.Port()))}}) {
			rebound := n == len(foreign) // DNS rebinding: the page's own host name leads to the listener
			for _, path := range []string{
				"/", "/livez", "/metrics", "/debug/pprof/cmdline", "/openapi.json", "/api/v1/groups", "/api/v1/users", "/api/v1/auth/login", "/api/configurations",
				"/v1/instances", "/v1/stop", "/v1/artifacts", "/v1/simulate", "/v1/templates/default/evil/edits", "/v3/kv/put", "/v3/kv/range",
			} {
				for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
					if rebound && path == "/api/v1/auth/login" {
						continue // the server sees a login like any other
					}
					body := `{"name":"evil","username":"evil","password":"evil"}`
					r, err := http.NewRequestWithContext(t.Context(), method, "http://"+at.String()+path, strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					r.Header = header.Clone()
					r.Header.Set("Content-Type", "text/plain")
					if method == http.MethodOptions {
						r.Header.Set("Access-Control-Request-Method", "PUT")
					}
					if rebound {
						r.Host = strings.TrimPrefix(header.Get("Origin"), "http://")
					}
					what := fmt.Sprintf("%s %s%s from %s", method, at, path, header.Get("Origin"))
					resp, err := client.Do(r)
					if err != nil {
						continue // this listener does not speak HTTP
					}
					_ = resp.Body.Close()
					for name := range resp.Header {
						if strings.HasPrefix(name, "Access-Control-Allow") {
							t.Errorf("%s: %s is %q", what, name, resp.Header.Get(name))
						}
					}
					if method != http.MethodGet && resp.StatusCode/100 == 2 {
						t.Errorf("%s: %d", what, resp.StatusCode)
					}
					if private := strings.HasPrefix(path, "/metrics") || strings.HasPrefix(path, "/debug"); private && rebound && resp.StatusCode == http.StatusOK {
						t.Errorf("%s: a page reads it under its own name", what)
					}
				}
			}
		}
	}
	if after := state(); !slices.Equal(after, before) {
		t.Errorf("pages of another origin changed something:\n%s\n%s", before, after)
	}
}
