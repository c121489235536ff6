package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
)

// sendsPart sends a request whose body stops in the middle to a handler and returns the response.
func sendsPart(t *testing.T, within time.Duration, h gin.HandlerFunc) *http.Response {
	t.Helper()
	e := newEngine()
	e.Use(ids)
	e.POST("/api/v1/x", h)
	srv := httptest.NewUnstartedServer(e)
	srv.Config.ReadTimeout = within
	srv.Start()
	t.Cleanup(srv.Close)
	conn, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST /api/v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	resp := sendsPart(t, time.Hour, func(c *gin.Context) { Fail(c, errs.New(errs.Unauthenticated, "send a token")) })
	if resp.StatusCode != http.StatusUnauthorized || !resp.Close {
		t.Errorf("%s, closes: %v", resp.Status, resp.Close)
	}
}

func TestARefusalKeepsTheConnectionOfWhoSentASmallBody(t *testing.T) {
	e := newEngine()
	e.Use(ids)
	e.POST("/api/v1/x", func(c *gin.Context) { Fail(c, errs.New(errs.Unauthenticated, "send a token")) })
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	small := strings.Repeat("x", small)
	for name, c := range map[string]struct {
		body, expect string
		chunked      bool
		closes       bool
	}{
		"none":                  {},
		"a small one":           {body: `{"name":"x"}`},
		"the largest small one": {body: small},
		"a larger one":          {body: small + "x", closes: true},
		"one of unknown length": {body: "{}", chunked: true, closes: true},
		"one that is asked for": {body: "{}", expect: "100-continue", closes: true},
	} {
		await.That(t, name, func() string { // a small response may be late on a loaded machine
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/api/v1/x", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if c.chunked {
				req.ContentLength = -1
			}
			if c.expect != "" {
				req.Header.Set("Expect", c.expect)
			}
			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			_ = resp.Body.Close()
			return await.Unless(resp.StatusCode == http.StatusUnauthorized && resp.Close == c.closes, "%s, closes: %v", resp.Status, resp.Close)
		})
	}
}

func TestWhatIsLateAfterARefusalIsNotItsReason(t *testing.T) {
	resp := sendsPart(t, 100*time.Millisecond, func(c *gin.Context) { Fail(c, errs.New(errs.Denied, "no")) })
	if resp.StatusCode != http.StatusForbidden || !resp.Close {
		t.Errorf("%s, closes: %v", resp.Status, resp.Close)
	}
}

func TestABodyThatDoesNotComeInTimeIsA408(t *testing.T) {
	resp := sendsPart(t, 100*time.Millisecond, func(c *gin.Context) { Bind(c, &struct{}{}) })
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusRequestTimeout || err != nil || !strings.Contains(string(body), `"REQUEST_TIMEOUT"`) {
		t.Errorf("%s: %s, %v", resp.Status, body, err)
	}
}

func TestARefusalOfWhatWasReadKeepsTheConnection(t *testing.T) {
	e := newEngine()
	e.Use(ids)
	e.POST("/api/v1/x", func(c *gin.Context) {
		if Bind(c, &struct{}{}) {
			Fail(c, errs.New(errs.Conflict, "no"))
		}
	})
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	resp, err := srv.Client().Post(srv.URL+"/api/v1/x", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusConflict || resp.Close {
		t.Errorf("%s, closes: %v", resp.Status, resp.Close)
	}
}
