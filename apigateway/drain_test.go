package apigateway

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
)

func TestShutdownAnswersRequestsInFlight(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	address := strings.TrimPrefix(s.url, "http://")
	var late []net.Conn
	for range 20 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		late = append(late, c)
	}
	s.do("GET", "/readyz", nil).want(200) // connections are accepted in order: the earlier ones are accepted now
	s.stop()
	refused(t, address)
	for i, c := range late {
		if err := c.SetDeadline(time.Now().Add(await.Patience)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /livez HTTP/1.1\r\nHost: %s\r\n\r\n", address)
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("request %d got no answer: %v", i, err)
		}
		_ = r.Body.Close()
	}
}

// refused waits until an address refuses connections.
func refused(t *testing.T, address string) {
	t.Helper()
	await.That(t, "the address refusing connections", func() string {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return ""
		}
		_ = c.Close()
		return address + " took one"
	})
}

func TestSilentConnectionDelaysShutdownBriefly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.do("GET", "/readyz", nil).want(200)
	s.stop() // the site's cleanup waits for the gateway and fails at the test's deadline
}
