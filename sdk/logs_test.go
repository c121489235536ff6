package orrery

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// record is a frame of a log.
func record(seq int) string {
	return fmt.Sprintf("id: %d\nevent: log\ndata: {\"seq\":%[1]d,\"ts\":1767366245500,\"level\":\"WARN\",\"logger\":\"a/b\",\"thread\":\"gateway-1\",\"message\":\"m\",\"throwable\":\"e\",\"mdc\":{\"k\":\"v\"}}\n\n", seq)
}

const gap = "event: gap\ndata: {\"message\":\"records are missing\"}\n\n"

// writing streams the records 1 to 4.
func writing(w http.ResponseWriter, r *http.Request) {
	begin(w)
	send(w, "event: connected\ndata: {\"message\":\"connected\",\"replica\":\"gateway-1\"}\n\n")
	after := 0
	_, _ = fmt.Sscan(r.Header.Get("Last-Event-ID"), &after)
	for seq := after + 1; seq <= 4; seq++ {
		send(w, ": keep-alive\n\n"+record(seq))
	}
	hold(r)
}

// records reads a log up to a record. A gap is 0.
func records(log func(yield func(LogEvent, error) bool), last int64) (string, error) {
	var all []string
	for e, err := range log {
		if err != nil {
			return strings.Join(all, " "), err
		}
		if all = append(all, fmt.Sprint(e.Seq)); e.Seq == last {
			break
		}
	}
	return strings.Join(all, " "), nil
}

func TestALogIsNeitherLostNorRepeatedWhereverAConnectionIsCut(t *testing.T) {
	t.Parallel()
	cutEverywhere(t, writing, func(ctx context.Context, c *Client) error {
		got, err := records(c.SystemLogs(ctx, LogsOptions{}), 4)
		if err != nil || got != "1 2 3 4" {
			return fmt.Errorf("got %s, %w", got, err)
		}
		return nil
	})
}

func TestARecordHasItsFields(t *testing.T) {
	t.Parallel()
	handler, requests := recorded(sendFrames(record(3), true))
	for e, err := range connect(t, serve(t, handler)).NodeLogs(bounded(t), "node/1", LogsOptions{Level: "WARN", Logger: "a", Tail: -1}) {
		if err != nil || e.Gap || e.Seq != 3 || !e.Time.Equal(time.UnixMilli(1767366245500)) || e.Level != "WARN" || e.Logger != "a/b" ||
			e.Process != "gateway-1" || e.Message != "m" || e.Error != "e" || e.Attributes["k"] != "v" {
			t.Errorf("%+v, %v", e, err)
		}
		break
	}
	if r := <-requests; r.URL.RequestURI() != "/api/v1/nodes/node%2F1/logs/stream?level=WARN&logger=a&tail=0" {
		t.Errorf("requested %s", r.URL.RequestURI())
	}
}

func TestAfterAGapRecordsOfAClockThatIsBehindAreNotDropped(t *testing.T) {
	t.Parallel()
	handler, _ := script(sendFrames(record(50)+record(50)+gap, false), sendFrames(gap+record(7)+record(8), true))
	handler, requests := recorded(handler)
	got, err := records(connect(t, serve(t, handler)).SystemLogs(bounded(t), LogsOptions{Tail: 9}), 8)
	if err != nil || got != "50 0 0 7 8" {
		t.Errorf("got %s, %v", got, err)
	}
	if r := <-requests; r.URL.RequestURI() != "/api/v1/system/logs/stream?tail=9" {
		t.Errorf("requested %s", r.URL.RequestURI())
	}
	if r := <-requests; r.Header.Get("Last-Event-ID") != "50" {
		t.Errorf("resumed after %q", r.Header.Get("Last-Event-ID"))
	}
}
