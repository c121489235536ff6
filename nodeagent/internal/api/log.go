package api

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/console"
)

const (
	defaultLines = 100
	defaultChunk = 64 << 10
	// maxReaders is how many calls read logs at a time: each costs memory and, while it
	// searches, a core that servers could use.
	maxReaders = 2
	// patience is how long others wait for their turn: less than their callers do, who
	// then learn why.
	patience = 5 * time.Second
	// answerTimeout bounds how long an answer may take to be read.
	answerTimeout = 10 * time.Second
	// answerBuffer is how much of an answer is held before it is sent.
	answerBuffer = 64 << 10
)

// reader serves what an instance printed: a page of lines, or with ?offset a piece of
// bytes. A page is sent as it is read, a line at a time.
type reader struct {
	all   Instances
	turns chan struct{}
	// searches has room for one call less than turns: whoever only reads on does not wait
	// for those who search.
	searches chan struct{}
}

func newReader(all Instances) reader {
	return reader{all, make(chan struct{}, maxReaders), make(chan struct{}, maxReaders-1)}
}

func (r reader) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if err := r.serve(w, req); err != nil {
		encodeError(req.Context(), err, w)
	}
}

// serve answers, or returns why nothing was answered.
func (r reader) serve(w http.ResponseWriter, req *http.Request) error {
	ctx, q := req.Context(), req.URL.Query()
	if _, err := r.all.Instance(instanceID(req)); err != nil {
		return err
	}
	path := r.all.LogPath(instanceID(req))
	if q.Has("offset") {
		return r.piece(ctx, w, path, q)
	}
	query, err := decodeQuery(q)
	if err != nil {
		return err
	}
	if q.Get("grep") != "" {
		if err := turn(ctx, r.searches); err != nil {
			return err
		}
		defer done(r.searches)
	}
	if err := turn(ctx, r.turns); err != nil {
		return err
	}
	defer done(r.turns)
	page, err := r.all.Logs().Find(ctx, path, query)
	if err != nil {
		return err
	}
	defer page.Close()
	answer(w)
	_ = writePage(w, page) // whoever reads has gone, or reads an answer that breaks off
	return nil
}

// piece answers with the bytes from an offset on.
func (r reader) piece(ctx context.Context, w http.ResponseWriter, path string, q url.Values) error {
	offset, err := number(q.Get("offset"), "offset", 0)
	if err != nil {
		return err
	}
	limit, err := number(q.Get("maxBytes"), "maxBytes", defaultChunk)
	if err != nil {
		return err
	}
	if err := turn(ctx, r.turns); err != nil {
		return err
	}
	defer done(r.turns)
	data, next, err := console.Read(path, offset, int(min(limit, console.MaxRead)))
	if err != nil {
		return err
	}
	answer(w)
	return encode(ctx, w, client.Chunk{Data: data, Next: next})
}

// turn waits until there is room for one more. Exhausted when that takes too long.
func turn(ctx context.Context, turns chan struct{}) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case turns <- struct{}{}:
		return nil
	case <-late.C:
		return errs.New(errs.Exhausted, "the node's agent is busy with other reads of logs or files, as for searches: retry in a moment, or ask for less")
	case <-ctx.Done():
		return errs.Wrap("api.turn", ctx.Err())
	}
}

func done(turns chan struct{}) { <-turns }

// answer begins an answer, which may not be stuck for long: others wait for their turn.
func answer(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
}

// writePage sends a page as a client.Log, holding one line at a time.
func writePage(w http.ResponseWriter, page *console.Page) error {
	head, err := json.Marshal(client.Log{Lines: []client.Line{}, More: page.More, Before: page.Before, Total: page.Total})
	if err != nil {
		return errs.As(errs.Internal, "api.writePage", err)
	}
	const empty = `{"lines":[`
	out := bufio.NewWriterSize(w, answerBuffer)
	_, _ = out.WriteString(empty) // whatever fails is told by Flush
	comma := ""
	for l, err := range page.Lines() {
		if err != nil {
			return err
		}
		b, err := json.Marshal(client.Line{Offset: l.Offset, Text: l.Text, At: l.At})
		if err != nil {
			return errs.As(errs.Internal, "api.writePage", err)
		}
		_, _ = out.WriteString(comma)
		if _, err := out.Write(b); err != nil {
			return errs.As(errs.Unavailable, "api.writePage", err)
		}
		comma = ","
	}
	_, _ = out.Write(head[len(empty):])
	return errs.As(errs.Unavailable, "api.writePage", out.Flush())
}

// decodeQuery reads which page of a log is wanted.
func decodeQuery(q url.Values) (out console.Query, err error) {
	lines, err := number(q.Get("lines"), "lines", defaultLines)
	if err != nil {
		return out, err
	}
	out.Lines = int(min(lines, console.MaxLines))
	out.Count = q.Get("count") == "true"
	if out.Before, err = number(q.Get("before"), "before", 0); err != nil {
		return out, err
	}
	for field, into := range map[string]*time.Time{"since": &out.Since, "until": &out.Until} {
		if text := q.Get(field); text != "" {
			if *into, err = time.Parse(time.RFC3339Nano, text); err != nil {
				return out, errs.Field(field, "must be a time like 2030-01-31T12:00:00Z, is %q", text)
			}
		}
	}
	if out.Match, err = console.Compile(q.Get("grep")); err != nil {
		return out, errs.Field("grep", "%s", errs.MessageOf(err))
	}
	return out, nil
}

// number reads a query parameter that is a whole number, not negative.
func number(text, field string, missing int64) (int64, error) {
	if text == "" {
		return missing, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, errs.Field(field, "must be a whole number that is not negative, is %q", text)
	}
	return n, nil
}
