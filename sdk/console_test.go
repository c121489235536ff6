package orrery

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// log is the output of the instance uid-1 of the tests, whose name is lobby-1.
const log = "one\n\nthr\xffee\nfour\r\n"

// startOf returns where a request for a console begins.
func startOf(r *http.Request) int {
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	return offset
}

// linesFrom calls each with the lines of log and the offset after each.
func linesFrom(offset int, each func(line string, next int)) {
	for line := range strings.Lines(log[offset:]) {
		offset += len(line)
		each(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), offset)
	}
}

// printing streams log from any offset, and the end.
func printing(w http.ResponseWriter, r *http.Request) {
	begin(w)
	send(w, "event: connected\ndata: {\"message\":\"connected\",\"instanceId\":\"uid-1\",\"name\":\"lobby-1\"}\n\n")
	send(w, "event: waiting\ndata: {\"message\":\"the agent is away\"}\n\n: keep-alive\n\n")
	linesFrom(startOf(r), func(line string, next int) {
		send(w, fmt.Sprintf("id: %d\ndata: %s\n\n", next, base64.StdEncoding.EncodeToString([]byte(line))))
	})
	send(w, fmt.Sprintf("event: end\nid: %d-end\ndata: {\"state\":\"CRASHED\",\"reason\":\"Crashed\",\"message\":\"it crashed\",\"generation\":2,\"exitCode\":3}\n\n", len(log)))
}

// transcript reads a console to its end.
func transcript(events func(yield func(ConsoleEvent, error) bool)) (lines []string, end ConsoleEvent, err error) {
	for e, err := range events {
		if err != nil {
			return lines, end, err
		}
		switch end = e; e.Kind {
		case ConsoleOutput:
			lines = append(lines, fmt.Sprintf("%d:%s", e.Offset, e.Line))
		case ConsoleWaiting, ConsoleRefused, ConsoleSuppressed, ConsoleEnded:
		}
	}
	return lines, end, nil
}

// checkTranscript compares it with log.
func checkTranscript(lines []string, end ConsoleEvent, err error) error {
	if got, want := strings.Join(lines, " "), "4:one 5: 12:thr\xffee 18:four"; err != nil || got != want {
		return fmt.Errorf("got %q, %w; want %q", got, err, want)
	}
	if end.Kind != ConsoleEnded || end.Offset != int64(len(log)) || end.Message != "it crashed" || end.End.State != "CRASHED" ||
		end.End.Reason != "Crashed" || end.End.Generation != 2 || end.End.ExitCode == nil || *end.End.ExitCode != 3 {
		return fmt.Errorf("ended with %+v", end)
	}
	return nil
}

func TestAConsoleIsNeitherLostNorRepeatedWhereverAConnectionIsCut(t *testing.T) {
	t.Parallel()
	cutEverywhere(t, printing, func(ctx context.Context, c *Client) error {
		return checkTranscript(transcript(c.Console(ctx, "lobby-1", ConsoleOptions{})))
	})
}

func TestAConsoleStaysWithItsInstance(t *testing.T) {
	t.Parallel()
	handler, _ := script(
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		sendFrames("event: connected\ndata: {\"instanceId\":\"uid-1\"}\n\n", false),
		sendFrames("event: connected\ndata: {\"instanceId\":\"uid-1\"}\n\nid: 4\ndata: b25l\n\n", false),
		printing)
	handler, requests := recorded(handler)
	err := checkTranscript(transcript(connect(t, serve(t, handler)).Console(bounded(t), "lobby/1", ConsoleOptions{Lines: 7})))
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"/api/v1/services/lobby%2F1/console?encoding=base64&lines=7", "/api/v1/services/lobby%2F1/console?encoding=base64&lines=7",
		"/api/v1/services/uid-1/console?encoding=base64&lines=7", "/api/v1/services/uid-1/console?encoding=base64&offset=4",
	} {
		if r := <-requests; r.URL.RequestURI() != want {
			t.Errorf("requested %s, want %s", r.URL.RequestURI(), want)
		}
	}
}

func TestAConsoleBeginsWhereTheCallerWants(t *testing.T) {
	t.Parallel()
	zero := int64(0)
	for want, o := range map[string]ConsoleOptions{
		"encoding=base64": {}, "encoding=base64&lines=3": {Lines: 3}, "encoding=base64&lines=0": {Lines: -1}, "encoding=base64&offset=0": {Offset: &zero, Lines: 3},
	} {
		handler, requests := recorded(printing)
		if err := checkTranscript(transcript(connect(t, serve(t, handler)).Console(bounded(t), "uid-1", o))); err != nil {
			t.Error(err)
		}
		if r := <-requests; r.URL.RawQuery != want {
			t.Errorf("requested %s, want %s", r.URL.RawQuery, want)
		}
	}
}

func TestAConsoleReportsWhatItSkips(t *testing.T) {
	t.Parallel()
	skipped := "event: suppressed\nid: 900\ndata: {\"message\":\"suppressed 12 lines\",\"lines\":12,\"from\":4,\"to\":900}\n\n"
	handler, requests := script(
		sendFrames("id: 4\ndata: b25l\n\nid: 4\ndata: b25l\n\n"+skipped, false),
		sendFrames(skipped+"event: later\ndata: x\n\nevent: waiting\ndata: {\"message\":\"the node is away\"}\n\n"+
			"id: 5\ndata:\n\nevent: end\nid: 5-end\ndata: {\"state\":\"\",\"message\":\"the record is gone\"}\n\n", true))
	var got []string
	for e, err := range connect(t, serve(t, handler)).Console(bounded(t), "uid-1", ConsoleOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %d %d %s", e.Kind, e.Offset, e.Suppressed, e.Line+e.Message))
	}
	// The offset goes back because the instance moved to another node.
	want := "output 4 0 one, suppressed 900 12 suppressed 12 lines, waiting 900 0 the node is away, output 5 0 , end 5 0 the record is gone"
	if strings.Join(got, ", ") != want || requests.Load() != 2 {
		t.Errorf("got %s", strings.Join(got, ", "))
	}
}

func TestAConsoleThatIsNotUnderstoodEndsWithAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"id: x\ndata: b25l\n\n", "id: 4\ndata: ???\n\n", "event: end\nid: 4-end\ndata: x\n\n", "event: waiting\ndata: x\n\n",
		"event: connected\ndata: {}\n\n",
	} {
		handler, requests := script(sendFrames(text, true))
		_, _, err := transcript(connect(t, serve(t, handler)).Console(bounded(t), "uid-1", ConsoleOptions{}))
		if err == nil || errors.Is(err, context.DeadlineExceeded) || requests.Load() != 1 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// BenchmarkConsole reads lines as fast as a gateway sends them.
func BenchmarkConsole(b *testing.B) {
	line := base64.StdEncoding.EncodeToString([]byte("[12:34:56] [Server thread/INFO]: a line of a usual length"))
	server := serve(b, func(w http.ResponseWriter, _ *http.Request) {
		begin(w)
		out := bufio.NewWriterSize(w, 16<<10)
		fmt.Fprint(out, "event: connected\ndata: {\"instanceId\":\"uid-1\"}\n\n")
		for n := 1; n <= b.N; n++ {
			fmt.Fprintf(out, "id: %d\ndata: %s\n\n", n, line)
		}
		fmt.Fprintf(out, "event: end\nid: %d-end\ndata: {}\n\n", b.N)
		_ = out.Flush()
	})
	b.ReportAllocs()
	lines := 0
	for e, err := range connect(b, server).Console(b.Context(), "lobby-1", ConsoleOptions{}) {
		if err != nil {
			b.Fatal(err)
		}
		if e.Kind == ConsoleOutput {
			lines++
		}
	}
	if lines != b.N {
		b.Errorf("%d of %d lines", lines, b.N)
	}
}
