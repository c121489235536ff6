package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
)

func TestALargeBodyMayTakeLongerThanAServersTimeLimit(t *testing.T) {
	const limit = 100 * time.Millisecond
	e := newEngine()
	e.Use(bodies)
	got := make(chan string, 1)
	handler := func(c *gin.Context) {
		b, err := io.ReadAll(c.Request.Body)
		if err != nil {
			b = []byte("cut")
		}
		got <- string(b)
	}
	e.POST("/api/templates/:group/:name/import", handler)
	e.POST("/small", handler)
	s := httptest.NewUnstartedServer(e)
	s.Config.ReadTimeout = limit
	s.Start()
	defer s.Close()
	for path, want := range map[string]string{"/api/templates/g/n/import": "ab", "/small": "cut"} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na")
		select {
		case b := <-got:
			if b != want {
				t.Errorf("%s: %q", path, b)
			}
			continue
		case <-time.After(3 * limit):
		}
		_, _ = io.WriteString(conn, "b")
		if b := <-got; b != want {
			t.Errorf("%s: %q", path, b)
		}
	}
}

func TestAnAttachmentsNameStandsInItsHeader(t *testing.T) {
	for name, want := range map[string]string{"a.zip": "a.zip", "a\"b\r\nX: y": "a_b__X: y", "ü/..": "__.."} {
		if got := attachment(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestARouteWithLargeBodiesIsOneOfTheTable(t *testing.T) {
	for route := range large {
		if _, known := demands[route]; !known {
			t.Errorf("%s is no route", route)
		}
	}
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequest(http.MethodPost, "/", nil)
	if got := limitOf(c); got != 1<<20 {
		t.Errorf("any other takes %d bytes", got)
	}
}

func TestABodyThatIsTooLargeIsRefusedBeforeItIsRead(t *testing.T) {
	e := newEngine()
	e.Use(bodies)
	e.POST("/small", func(c *gin.Context) { t.Error("it was served") })
	s := httptest.NewServer(e)
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000000\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
		t.Fatalf("%+v, %v", resp, err)
	}
	_ = resp.Body.Close()
}
