package shell

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/orreryhq/orrery/apigateway/internal/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is what do returns at the far side of a client that reads nothing.
func served(t *testing.T, do func(*terminal) error) error {
	t.Helper()
	came := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err == nil {
			err = do(&terminal{Socket: socket.Socket{Conn: conn, Timeout: 50 * time.Millisecond}})
			_ = conn.CloseNow()
		}
		came <- err
	}))
	defer srv.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	conn, _, err := websocket.Dial(t.Context(), srv.URL, &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}}) //nolint:bodyclose // of an upgrade there is none
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow() //nolint:errcheck // the far side has
	return <-came
}

func TestAClientThatTakesNothingIsCut(t *testing.T) {
	line := strings.Repeat("x", 64<<10)
	err := served(t, func(t *terminal) error {
		for {
			if err := t.say(line); err != nil {
				return err
			}
		}
	})
	var mute *muteError
	if !errors.As(err, &mute) && !errors.Is(err, errSlow) {
		t.Errorf("ended with %v", err)
	}
}

func TestAClientThatKeepsACommandWaitingIsSlow(t *testing.T) {
	err := served(t, func(t *terminal) error {
		t.Timeout = time.Minute
		t.waited = t.Timeout
		return t.say("x")
	})
	if !errors.Is(err, errSlow) {
		t.Errorf("ended with %v", err)
	}
}
