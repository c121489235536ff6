package console

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// backlog is the default number of existing lines that are sent first.
	backlog = 500
	// maxBacklog is the largest number a client may request.
	maxBacklog = 100_000
	// endMark follows the offset in the ID of the last event. A client that sends it has received
	// the end.
	endMark = "-end"
)

// startOf returns the position that a request starts from: after the last received ID, at ?offset,
// or ?lines before the end. over is true if the client has received the end. The header wins over
// the query, which a browser repeats unchanged when it reconnects.
func startOf(r *http.Request, lines int) (at client.Place, over bool, err error) {
	q := r.URL.Query()
	id := cmp.Or(r.Header.Get("Last-Event-ID"), q.Get("lastEventId"))
	field := "Last-Event-ID"
	if id == "" {
		id, field = q.Get("offset"), "offset"
	}
	if id != "" {
		number, over := strings.CutSuffix(id, endMark)
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 0 {
			return at, false, &errs.Error{Kind: errs.Malformed, Field: field, Message: field + " must be a byte offset, like the IDs of this stream"}
		}
		return client.Place{Offset: n}, over, nil
	}
	if text := q.Get("lines"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return at, false, &errs.Error{Kind: errs.Malformed, Field: "lines", Message: "lines must be a whole number and not negative"}
		}
		lines = min(n, maxBacklog)
	}
	return client.Place{Offset: -1, Lines: lines}, false, nil
}
