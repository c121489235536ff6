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
	// backlog is how many lines of what there is a client is shown first.
	backlog = 500
	// maxBacklog is how many it may ask for.
	maxBacklog = 100_000
	// endMark follows the offset in the id of the last event: who comes back with it
	// has seen the end.
	endMark = "-end"
)

// place is where a request wants to begin: after the id of the last event it saw, at
// ?offset, or ?lines before the end. over is true when it had seen the end. The
// header wins over the query, which a browser repeats unchanged when it reconnects.
func place(r *http.Request, lines int) (at client.Place, over bool, err error) {
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
			return at, false, &errs.Error{Kind: errs.Malformed, Field: field, Message: field + " must be a byte offset, as the ids of this stream are"}
		}
		return client.Place{Offset: n}, over, nil
	}
	if text := q.Get("lines"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return at, false, &errs.Error{Kind: errs.Malformed, Field: "lines", Message: "lines must be a whole number that is not negative"}
		}
		lines = min(n, maxBacklog)
	}
	return client.Place{Offset: -1, Lines: lines}, false, nil
}
