package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/orreryhq/orrery/libs/await"
)

func TestASignOfLifeIsNotWaitedForOnceTheConsoleEnds(t *testing.T) {
	s := &Streams{cfg: Config{WriteTimeout: time.Hour}}
	ended := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow() //nolint:errcheck // of a test
		showing, end := context.WithCancel(context.WithoutCancel(r.Context()))
		out := s.newSink(showing, conn)
		end()
		ended <- out.alive()
	}))
	t.Cleanup(srv.Close)
	conn, _, err := websocket.Dial(t.Context(), srv.URL, nil) //nolint:bodyclose // of an upgrade there is none
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow() //nolint:errcheck // of a test, which reads nothing and so answers nothing
	select {
	case err := <-ended:
		if err == nil {
			t.Error("who reads nothing has answered")
		}
	case <-time.After(await.Patience):
		t.Error("it is waited for all the same")
	}
}
