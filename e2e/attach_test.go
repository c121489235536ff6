package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/orreryhq/orrery/e2e/cluster"
)

// dial opens a console's WebSocket with a ticket.
func dial(t *testing.T, c cluster.Cluster, admin *cluster.Client, ref, path string) *websocket.Conn {
	t.Helper()
	var ticket struct{ Ticket string }
	admin.Do("POST", "/api/v1/services/"+ref+"/console/ticket", nil).OK(200, &ticket)
	url := "ws" + strings.TrimPrefix(c.API(), "http") + path + "?ticket=" + ticket.Ticket
	conn, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

type attachMessage struct {
	Type, Line, Message string
	Data                []byte
	Offset              int64
	End                 struct{ State string }
}

func TestAnAttachedConsoleTakesLinesVerbatimAndShowsThem(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, map[string]any{"name": "talk", "memoryMb": 16, "shutdownGraceSeconds": 1, "command": `printf 'hi\n\377\n'; cat`})
	admin.Do("POST", "/api/v1/groups/talk/start", nil).OK(200)
	admin.AwaitState("talk-1", "RUNNING")
	conn := dial(t, c, admin, "talk-1", "/api/v1/instances/talk-1/attach")
	ctx := cluster.Bounded(t)
	next := func(kind string) attachMessage {
		for {
			_, b, err := conn.Read(ctx)
			if err != nil {
				t.Fatalf("no %s: %v", kind, err)
			}
			var m attachMessage
			if err := json.Unmarshal(b, &m); err != nil {
				t.Fatal(err)
			}
			if m.Type == kind {
				return m
			}
		}
	}
	if m := next("output"); m.Line != "hi" || m.Offset != 3 {
		t.Errorf("%+v", m)
	}
	if m := next("output"); string(m.Data) != "\xff" || m.Offset != 5 {
		t.Errorf("what is no text came as %+v", m)
	}
	for _, line := range []string{`say "hi" 'there' $HOME \n ; rm -rf ^A %PORT% Enter C-c`, "", "ümläut ☃", "tab\there"} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(line)); err != nil {
			t.Fatal(err)
		}
		if m := next("output"); m.Line != line {
			t.Errorf("%q came back as %q", line, m.Line)
		}
	}
	for what, line := range map[string]string{"a control character": "a\x01b", "two lines": "a\nb", "a line of 1 MiB": strings.Repeat("x", 1<<20)} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(line)); err != nil {
			t.Fatal(err)
		}
		if m := next("error"); !strings.Contains(m.Message, "the line must") {
			t.Errorf("%s: %+v", what, m)
		}
	}
	admin.Do("POST", "/api/v1/services/talk-1/force-stop", nil).OK(200)
	if m := next("end"); m.End.State != "STOPPED" {
		t.Errorf("%+v", m)
	}
	if _, _, err := conn.Read(ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("closed with %v", err)
	}
}

func TestALiveLogShowsEachLineOnceAndClosesWithTheReason(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	createGroup(t, admin, map[string]any{"name": "talk", "memoryMb": 16, "shutdownGraceSeconds": 1, "command": `seq 1 1500; read go; seq 1501 4000; read go`})
	admin.Do("POST", "/api/v1/groups/talk/start", nil).OK(200)
	i := admin.AwaitState("talk-1", "RUNNING")
	conn := dial(t, c, admin, "talk-1", "/api/instances/"+i.UID+"/live-log")
	ctx := cluster.Bounded(t)
	var got []string
	read := func(last string) {
		for len(got) == 0 || got[len(got)-1] != last {
			_, b, err := conn.Read(ctx)
			if err != nil {
				t.Fatalf("after %d lines: %v", len(got), err)
			}
			got = append(got, string(b))
		}
	}
	read("1500")
	admin.Do("POST", "/api/instances/"+i.UID+"/execute", map[string]string{"command": "go"}).OK(200)
	read("4000")
	if len(got) < 2500 || len(got) > 4000 || got[len(got)-2500] != "1501" {
		t.Errorf("%d lines from %s", len(got), got[0])
	}
	admin.Do("POST", "/api/v1/services/talk-1/force-stop", nil).OK(200)
	_, _, err := conn.Read(ctx)
	var end websocket.CloseError
	if !errors.As(err, &end) || end.Code != websocket.StatusNormalClosure || !strings.Contains(end.Reason, "STOPPED") {
		t.Errorf("closed with %v", err)
	}
}

func TestALiveLogWantsAKeyAndAnInstance(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	admin := cluster.Login(t, c)
	url := "ws" + strings.TrimPrefix(c.API(), "http") + "/api/instances/abcdef/live-log"
	_, resp, err := websocket.Dial(t.Context(), url, nil)
	if err == nil || resp == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: %v, %v", resp, err)
	}
	header := http.Header{"Authorization": {"Bearer " + admin.Token()}}
	conn, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow() //nolint:errcheck // it is closed already
	ctx, cancel := context.WithCancel(cluster.Bounded(t))
	defer cancel()
	_, _, err = conn.Read(ctx)
	var end websocket.CloseError
	if !errors.As(err, &end) || end.Code != websocket.StatusUnsupportedData || end.Reason != "Instance not found" {
		t.Errorf("an unknown instance: %v", err)
	}
}
