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
	"github.com/orreryhq/orrery/nodeagent/internal/instance/console"
)

const (
	defaultLines = 100
	defaultChunk = 64 << 10
	// maxReaders bounds concurrent reads of logs, because each uses memory and a search also a
	// core.
	maxReaders = 2
	// turnTimeout bounds the wait for a turn. It is shorter than the callers' timeouts, so that
	// they learn the cause.
	turnTimeout = 5 * time.Second
	// answerTimeout bounds the transmission of an answer.
	answerTimeout = 10 * time.Second
	// answerBuffer is the size of the buffer of an answer.
	answerBuffer = 64 << 10
)

// reader serves an instance's output: a page of lines, or with ?offset a chunk of bytes. It
// sends a page line by line while reading it.
type reader struct {
	all   Instances
	turns chan struct{}
	// searches limits searches to one less than turns, so that they never block all other
	// reads.
	searches chan struct{}
}

func newReader(all Instances) reader {
	return reader{all, make(chan struct{}, maxReaders), make(chan struct{}, maxReaders-1)}
}

func (r reader) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if err := r.serve(w, req); err != nil {
		encodeError(w, err)
	}
}

// serve answers the request. It returns an error only if it has sent nothing.
func (r reader) serve(w http.ResponseWriter, req *http.Request) error {
	ctx, q := req.Context(), req.URL.Query()
	if _, err := r.all.Instance(instanceID(req)); err != nil {
		return err
	}
	path := r.all.LogPath(instanceID(req))
	if q.Has("offset") {
		return r.chunk(ctx, w, path, q)
	}
	query, err := decodeQuery(q)
	if err != nil {
		return err
	}
	if q.Get("grep") != "" {
		if err := acquire(ctx, r.searches); err != nil {
			return err
		}
		defer release(r.searches)
	}
	if err := acquire(ctx, r.turns); err != nil {
		return err
	}
	defer release(r.turns)
	page, err := r.all.Logs().Find(ctx, path, query)
	if err != nil {
		return err
	}
	defer page.Close()
	answer(w)
	_ = writePage(w, page) // on an error the caller is gone or gets an incomplete answer
	return nil
}

// chunk sends the bytes from an offset on.
func (r reader) chunk(ctx context.Context, w http.ResponseWriter, path string, q url.Values) error {
	offset, err := number(q.Get("offset"), "offset", 0)
	if err != nil {
		return err
	}
	limit, err := number(q.Get("maxBytes"), "maxBytes", defaultChunk)
	if err != nil {
		return err
	}
	if err := acquire(ctx, r.turns); err != nil {
		return err
	}
	defer release(r.turns)
	data, next, err := console.Read(path, offset, int(min(limit, console.MaxRead)))
	if err != nil {
		return err
	}
	answer(w)
	return encode(w, client.Chunk{Data: data, Next: next})
}

// acquire waits for a turn. Exhausted if that takes too long.
func acquire(ctx context.Context, turns chan struct{}) error {
	late := time.NewTimer(turnTimeout)
	defer late.Stop()
	select {
	case turns <- struct{}{}:
		return nil
	case <-late.C:
		return errs.New(errs.Exhausted, "the node's agent is busy with other reads of logs or files: retry in a moment, or request less")
	case <-ctx.Done():
		return errs.Wrap("api.acquire", ctx.Err())
	}
}

func release(turns chan struct{}) { <-turns }

// answer begins an answer and limits its duration, because others wait for their turn.
func answer(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
}

// writePage sends a page as a client.Log, with one line in memory at a time.
func writePage(w http.ResponseWriter, page *console.Page) error {
	head, err := json.Marshal(client.Log{Lines: []client.Line{}, More: page.More, Before: page.Before, Total: page.Total})
	if err != nil {
		return errs.WrapAs(errs.Internal, "api.writePage", err)
	}
	const empty = `{"lines":[`
	out := bufio.NewWriterSize(w, answerBuffer)
	_, _ = out.WriteString(empty) // Flush returns the error
	comma := ""
	for l, err := range page.Lines() {
		if err != nil {
			return err
		}
		b, err := json.Marshal(l)
		if err != nil {
			return errs.WrapAs(errs.Internal, "api.writePage", err)
		}
		_, _ = out.WriteString(comma)
		if _, err := out.Write(b); err != nil {
			return errs.WrapAs(errs.Unavailable, "api.writePage", err)
		}
		comma = ","
	}
	_, _ = out.Write(head[len(empty):])
	return errs.WrapAs(errs.Unavailable, "api.writePage", out.Flush())
}

// decodeQuery parses the query for a page of a log.
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

// number parses a query parameter that is a non-negative integer.
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
