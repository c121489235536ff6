package live

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	orrery "github.com/orreryhq/orrery/sdk"
)

const (
	// pageLines is how many lines a request for stored lines asks for at most. A page is in memory at once.
	pageLines = 1000
	// maxLine is the longest line that is printed as one, in bytes, like in the SDK.
	maxLine = 64 << 10
	// nextOffset is the header with the offset after a part of the output.
	nextOffset = "Orrery-Next-Offset"
)

// storedPage is a page of stored lines.
type storedPage struct {
	Lines []struct {
		TS     time.Time `json:"ts"`
		Line   string    `json:"line"`
		Offset int64     `json:"offset"`
	} `json:"lines"`
	// Truncated says that there may be older lines, before the offset Before.
	Truncated bool  `json:"truncated"`
	Before    int64 `json:"before"`
}

// printStored prints the lines before an offset that the flags select; 0 means up to the end.
func printStored(ctx context.Context, client *orrery.Client, o logsOptions, uid string, before int64, out *named) error {
	if o.lines == 0 {
		return nil
	}
	if o.lines < 0 && o.from.IsZero() && o.to.IsZero() && !o.timestamps && before == 0 {
		return printOutput(ctx, client, uid, out)
	}
	// The server returns the newest page first. Of the others only the positions are kept, and they are read again
	// when it is their turn to be printed, so that a long log does not fill the memory.
	newest, err := readPage(ctx, client, o, uid, before, o.lines)
	if err != nil {
		return err
	}
	older, err := olderPages(ctx, client, o, uid, newest)
	if err != nil {
		return err
	}
	for i := len(older) - 1; i >= 0; i-- {
		page, err := readPage(ctx, client, o, uid, older[i].before, older[i].lines)
		if err != nil {
			return err
		}
		if err := page.print(out); err != nil {
			return err
		}
	}
	return newest.print(out)
}

// pageAt is the position of a page: its end, and how many lines it has.
type pageAt struct {
	before int64
	lines  int
}

// olderPages returns the positions of the pages before the newest one, newest first.
func olderPages(ctx context.Context, client *orrery.Client, o logsOptions, uid string, page *storedPage) ([]pageAt, error) {
	var pages []pageAt
	left := o.lines - len(page.Lines)
	for page.Truncated && page.Before > 0 && (o.lines < 0 || left > 0) {
		at := pageAt{before: page.Before}
		var err error
		if page, err = readPage(ctx, client, o, uid, at.before, max(left, -1)); err != nil {
			return nil, err
		}
		if page.Before >= at.before {
			return nil, errors.New("the server returns the same stored lines again and again")
		}
		left -= len(page.Lines)
		if at.lines = len(page.Lines); at.lines > 0 {
			pages = append(pages, at)
		}
	}
	return pages, nil
}

// readPage returns the last lines before an offset; -1 lines are as many as a page has.
func readPage(ctx context.Context, client *orrery.Client, o logsOptions, uid string, before int64, lines int) (*storedPage, error) {
	if lines < 0 {
		lines = pageLines
	}
	query := url.Values{"limit": {strconv.Itoa(min(lines, pageLines))}}
	if before > 0 {
		query.Set("before", strconv.FormatInt(before, 10))
	}
	if o.grep != "" {
		query.Set("grep", o.grep)
	}
	for name, at := range map[string]time.Time{"since": o.from, "until": o.to} {
		if !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	page := &storedPage{}
	request := orrery.Request{Method: http.MethodGet, Path: "/api/v1/services/" + url.PathEscape(uid) + "/console/history", Query: query}
	return page, client.Call(ctx, request, page)
}

func (page *storedPage) print(out *named) error {
	for _, line := range page.Lines {
		if err := out.print(line.TS, line.Line); err != nil {
			return err
		}
	}
	return nil
}

// printOutput prints the whole output from its beginning.
func printOutput(ctx context.Context, client *orrery.Client, uid string, out *named) error {
	in := bufio.NewReaderSize(&outputReader{ctx: ctx, client: client, uid: uid}, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			if err := out.print(time.Time{}, string(bytes.TrimRight(line, "\r\n"))); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// outputReader reads the output of an instance up to the end that it has now.
type outputReader struct {
	ctx    context.Context
	client *orrery.Client
	uid    string
	offset int64
	// part is the current part and next the offset after it.
	part io.ReadCloser
	next int64
}

// Read reads from the current part, and requests the next one after its end.
func (r *outputReader) Read(p []byte) (int, error) {
	for {
		if r.part == nil {
			if err := r.request(); err != nil {
				return 0, err
			}
		}
		n, err := r.part.Read(p)
		if errors.Is(err, io.EOF) {
			r.part.Close()
			r.part, err = nil, nil
			if r.next == r.offset && n == 0 {
				return 0, io.EOF
			}
			r.offset = r.next
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (r *outputReader) request() error {
	part, err := r.client.GetConsoleOutput(r.ctx, r.uid, &orrery.GetConsoleOutputParams{Offset: int(r.offset)})
	if err != nil {
		return err
	}
	if r.next, err = strconv.ParseInt(part.Header.Get(nextOffset), 10, 64); err != nil || r.next < r.offset {
		part.Body.Close()
		return fmt.Errorf("the output of %s has no position to continue at", r.uid)
	}
	r.part = part.Body
	return nil
}
