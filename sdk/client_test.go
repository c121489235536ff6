package orrery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// exchange is a request that a gateway got.
type exchange struct {
	method, target, body string
	header               http.Header
}

// gateway is a server that answers each request with the next of its answers, and with the last one
// from then on.
type gateway struct {
	*httptest.Server
	mu      sync.Mutex
	got     []exchange
	answers []http.HandlerFunc
}

func newGateway(t *testing.T, answers ...http.HandlerFunc) *gateway {
	g := &gateway{answers: answers}
	g.Server = httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(g.Close)
	return g
}

func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a body that ends early is compared as it is
	g.mu.Lock()
	answer := g.answers[min(len(g.got), len(g.answers)-1)]
	g.got = append(g.got, exchange{r.Method, r.URL.RequestURI(), string(body), r.Header})
	g.mu.Unlock()
	answer(w, r)
}

// requests returns what the gateway got.
func (g *gateway) requests() []exchange {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.got)
}

// client returns a client of the addresses.
func client(t *testing.T, addresses ...string) *Client {
	t.Helper()
	c, err := New(Config{Addresses: addresses, Credentials: StaticToken("token")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// answer returns a JSON answer. The headers are names and values in turn.
func answer(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for pair := range slices.Chunk(headers, 2) {
			w.Header().Set(pair[0], pair[1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// lose ends the connection without an answer.
func lose(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

const refusal = `{"error": {"code": "NOT_FOUND", "message": "There is no group x.", "status": 404}}`

// closedAddress returns the URL of a port on which nobody listens.
func closedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return "http://" + listener.Addr().String()
}

func TestNewRefusesAddresses(t *testing.T) {
	for _, addresses := range [][]string{nil, {""}, {"localhost:8080"}, {"ftp://host"}, {"http://"}, {"http://host", "%"}} {
		if _, err := New(Config{Addresses: addresses}); err == nil {
			t.Errorf("New accepts the addresses %q", addresses)
		}
	}
}

func TestRepetition(t *testing.T) {
	ok := answer(200, `{"name": "lobby"}`)
	busy := answer(503, `{}`, "Retry-After", "1")
	underWay := answer(409, `{"error": {"code": "UNDER_WAY"}}`)
	get := func(c *Client) error { _, err := c.GetGroup(t.Context(), "lobby"); return err }
	create := func(c *Client) error { _, err := c.CreateGroup(t.Context(), &GroupFields{}); return err }
	replace := func(c *Client) error { _, err := c.ReplaceGroup(t.Context(), "lobby", &GroupFields{}, nil); return err }
	remove := func(c *Client) error { return c.DeleteGroup(t.Context(), "lobby", nil) }
	for name, c := range map[string]struct {
		call    func(*Client) error
		answers []http.HandlerFunc
		sent    int
		want    error
	}{
		"GET after 503":               {get, []http.HandlerFunc{busy, ok}, 2, nil},
		"GET after a lost answer":     {get, []http.HandlerFunc{lose, ok}, 2, nil},
		"GET until the last attempt":  {get, []http.HandlerFunc{answer(502, "")}, defaultAttempts, ErrUnavailable},
		"POST after a lost answer":    {create, []http.HandlerFunc{lose, ok}, 2, nil},
		"PUT after a lost answer":     {replace, []http.HandlerFunc{lose, ok}, 2, nil},
		"POST while it is answered":   {create, []http.HandlerFunc{lose, underWay, ok}, 3, nil},
		"PUT while it is answered":    {replace, append(slices.Repeat([]http.HandlerFunc{underWay}, defaultAttempts), ok), defaultAttempts + 1, nil},
		"PUT after 502":               {replace, []http.HandlerFunc{answer(502, ""), ok}, 2, nil},
		"PUT after 429":               {replace, []http.HandlerFunc{answer(429, "{}"), ok}, 2, nil},
		"DELETE after a lost answer":  {remove, []http.HandlerFunc{lose, ok}, 2, nil},
		"a refusal":                   {get, []http.HandlerFunc{answer(404, refusal), ok}, 1, ErrNotFound},
		"a pause that is too long":    {get, []http.HandlerFunc{answer(503, "{}", "Retry-After", "3600"), ok}, 1, ErrUnavailable},
		"a conflict of the condition": {replace, []http.HandlerFunc{answer(412, "{}")}, 1, ErrPreconditionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, c.answers...)
			err := c.call(client(t, g.URL))
			if !errors.Is(err, c.want) {
				t.Errorf("the call returns %v, want %v", err, c.want)
			}
			got := g.requests()
			if len(got) != c.sent {
				t.Fatalf("the gateway got %d requests, want %d", len(got), c.sent)
			}
			for _, r := range got {
				if r.body != got[0].body || r.header.Get("Idempotency-Key") != got[0].header.Get("Idempotency-Key") {
					t.Errorf("the repeated request differs: %+v, first %+v", r, got[0])
				}
				if (r.method != http.MethodGet) != (r.header.Get("Idempotency-Key") != "") {
					t.Errorf("%s has the idempotency key %q", r.method, r.header.Get("Idempotency-Key"))
				}
			}
		})
	}
}

func TestARequestUnderWayIsSentMoreOften(t *testing.T) {
	underWay, other := &Error{Status: http.StatusConflict, Code: codeUnderWay}, &Error{Status: http.StatusServiceUnavailable}
	for _, c := range []struct {
		attempts int
		failure  error
		want     int
	}{{4, underWay, 4 + underWayAttempts}, {4, other, 4}, {1, underWay, 1}} {
		if got := most(c.attempts, c.failure); got != c.want {
			t.Errorf("after %v a request is sent %d times, want %d", c.failure, got, c.want)
		}
	}
}

func TestAGivenIdempotencyKeyStays(t *testing.T) {
	g := newGateway(t, answer(201, "{}"))
	request := Request{Method: http.MethodPost, Path: "/api/v1/groups", Header: http.Header{"Idempotency-Key": {"mine"}}}
	if err := client(t, g.URL).Call(t.Context(), request, nil); err != nil {
		t.Fatal(err)
	}
	if got := g.requests()[0].header.Get("Idempotency-Key"); got != "mine" {
		t.Errorf("the idempotency key is %q, want mine", got)
	}
}

func TestRefusedConnectionMovesToTheNextGateway(t *testing.T) {
	g := newGateway(t, answer(200, `{"name": "lobby"}`))
	c := client(t, closedAddress(t), g.URL+"/")
	for range 2 {
		if _, err := c.ReplaceGroup(t.Context(), "lobby", &GroupFields{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if c.Address() != g.URL {
		t.Errorf("the client uses %s, want %s", c.Address(), g.URL)
	}
}

func TestUnreachableNamesTheAddress(t *testing.T) {
	address := closedAddress(t)
	c, err := New(Config{Addresses: []string{address}, MaxAttempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.GetGroup(t.Context(), "lobby")
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || unreachable.Address != address || !strings.HasPrefix(err.Error(), "cannot reach "+address+": dial") {
		t.Errorf("GetGroup returns %v, want an error that names %s", err, address)
	}
}

func TestAnEndedContextIsReturned(t *testing.T) {
	g := newGateway(t, answer(503, "{}"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client(t, g.URL).GetGroup(ctx, "lobby"); !errors.Is(err, context.Canceled) {
		t.Errorf("GetGroup returns %v, want %v", err, context.Canceled)
	}
}

// renewal is Credentials that have another token after the first one is rejected.
type renewal struct {
	mu    sync.Mutex
	asked []string
}

func (r *renewal) Token(_ context.Context, rejected string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, rejected)
	return fmt.Sprint("token ", len(r.asked)), nil
}

func TestRejectedTokenIsRenewedOnce(t *testing.T) {
	rejected := answer(401, `{"error": {"code": "UNAUTHORIZED", "message": "The token has expired"}}`)
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		want    error
	}{
		"accepted then": {[]http.HandlerFunc{rejected, answer(200, "{}")}, nil},
		"never":         {[]http.HandlerFunc{rejected}, ErrUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			g, credentials := newGateway(t, c.answers...), &renewal{}
			client, err := New(Config{Addresses: []string{g.URL}, Credentials: credentials})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.GetGroup(t.Context(), "lobby"); !errors.Is(err, c.want) {
				t.Errorf("GetGroup returns %v, want %v", err, c.want)
			}
			if want := []string{"", "token 1"}; !slices.Equal(credentials.asked, want) {
				t.Errorf("the credentials were asked for tokens after %q, want %q", credentials.asked, want)
			}
			var tokens []string
			for _, r := range g.requests() {
				tokens = append(tokens, r.header.Get("Authorization"))
			}
			if want := []string{"Bearer token 1", "Bearer token 2"}; !slices.Equal(tokens, want) {
				t.Errorf("the requests had %q, want %q", tokens, want)
			}
		})
	}
}

func TestCutAnswerSaysWhatWasAsked(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"cut":       answer(200, `{"name": "lob`, "Content-Length", "100"),
		"not JSON":  answer(200, "<html>"),
		"other":     answer(200, `["a"]`),
		"no answer": answer(200, ""),
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, handler)
			_, err := client(t, g.URL).GetGroup(t.Context(), "lobby")
			if !errors.Is(err, ErrAnswer) || !strings.HasPrefix(err.Error(), "reading groups/lobby: the answer was cut or is not JSON: ") {
				t.Errorf("GetGroup returns %v, want an error that says what was asked", err)
			}
		})
	}
}

func TestALostAnswerIsAConflictOfItsOwnKind(t *testing.T) {
	for code, want := range map[string]bool{"ALREADY_DONE": true, "OUTCOME_UNKNOWN": true, "SHOWN_ONCE": false, "CONFLICT": false} {
		err := &Error{Status: 409, Code: code}
		if got := errors.Is(err, ErrAnswerLost); got != want || !errors.Is(err, ErrConflict) {
			t.Errorf("%s is a lost answer: %v, want %v", code, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for status, want := range map[int]error{
		400: ErrInvalid, 401: ErrUnauthenticated, 403: ErrDenied, 404: ErrNotFound, 409: ErrConflict, 412: ErrPreconditionFailed,
		413: ErrInvalid, 422: ErrInvalid, 429: ErrUnavailable, 500: nil, 503: ErrUnavailable,
	} {
		err := error(&Error{Status: status})
		for _, sentinel := range []error{ErrInvalid, ErrUnauthenticated, ErrDenied, ErrNotFound, ErrConflict, ErrPreconditionFailed, ErrUnavailable, ErrUnreachable} {
			if errors.Is(err, sentinel) != (sentinel == want) {
				t.Errorf("status %d: errors.Is(err, %q) is %v", status, sentinel, sentinel != want)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    Error
		text    string
	}{
		"of a gateway": {
			answer(404, refusal, "X-Request-Id", "r1", "Retry-After", "2"),
			Error{Status: 404, Code: "NOT_FOUND", Message: "There is no group x", Method: "GET", Path: "/api/v1/groups/x", RequestID: "r1", RetryAfter: 2 * time.Second},
			"There is no group x",
		},
		"of a proxy": {
			answer(400, "<html><body>Bad request</body></html>", "Content-Type", "text/html"),
			Error{Status: 400, Method: "GET", Path: "/api/v1/groups/x"},
			"reading groups/x: the server answered 400 Bad Request",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, c.handler)
			_, err := client(t, g.URL).GetGroup(t.Context(), "x")
			var got *Error
			if !errors.As(err, &got) || *got != c.want || err.Error() != c.text {
				t.Errorf("GetGroup returns %#v, %q; want %#v, %q", got, err, c.want, c.text)
			}
		})
	}
}

func TestETag(t *testing.T) {
	g := newGateway(t, answer(200, `{"name": "lobby"}`, "ETag", `"7"`))
	c := client(t, g.URL)
	group, err := c.GetGroup(t.Context(), "lobby")
	if err != nil || group.ETag != `"7"` || group.Name != "lobby" {
		t.Fatalf("GetGroup = %+v, %v; want lobby with the ETag \"7\"", group, err)
	}
	if err := c.DeleteGroup(t.Context(), "lobby", &DeleteGroupParams{IfMatch: group.ETag}); err != nil {
		t.Fatal(err)
	}
	if got := g.requests()[1].header.Get("If-Match"); got != group.ETag {
		t.Errorf("the deletion is for the version %q, want %q", got, group.ETag)
	}
}

func TestWhatIsSent(t *testing.T) {
	g := newGateway(t, answer(200, "{}"))
	c, ctx := client(t, g.URL), t.Context()
	for _, test := range []struct {
		call         func() error
		method, path string
		body         string
	}{
		{func() error { _, err := c.GetGroup(ctx, "a/b ü"); return err }, "GET", "/api/v1/groups/a%2Fb%20%C3%BC", ""},
		{func() error { _, err := c.UpdateGroup(ctx, "a", Patch{"env": nil}, nil); return err }, "PATCH", "/api/v1/groups/a", `{"env":null}`},
		{func() error { _, err := c.StartGroup(ctx, "a", nil, nil); return err }, "POST", "/api/v1/groups/a/start", ""},
		{func() error { _, err := c.DeleteGroupDryRun(ctx, "a", nil); return err }, "DELETE", "/api/v1/groups/a?dryRun=true", ""},
		{func() error { _, err := c.ListGroupHistoryAt(ctx, "a", "12"); return err }, "GET", "/api/v1/history/group/a?at=12", ""},
		{func() error {
			_, err := c.ListInstances(ctx, &ListInstancesParams{Group: "a&b", All: true, PageSize: 5})
			return err
		}, "GET", "/api/v1/services?all=true&group=a%26b&pageSize=5", ""},
		{func() error {
			_, err := c.DrainNodeDryRun(ctx, "n", nil, &DrainNodeParams{Shutdown: new(false)})
			return err
		}, "POST", "/api/v1/nodes/n/drain?dryRun=true&shutdown=false", ""},
		{
			func() error {
				_, err := c.CreateGroup(ctx, &GroupFields{Name: new("a"), MinInstances: new(int64(0)), Nodes: []string{}})
				return err
			}, "POST", "/api/v1/groups", `{"name":"a","minInstances":0,"nodes":[]}`,
		},
	} {
		if err := test.call(); err != nil {
			t.Fatalf("%s %s: %v", test.method, test.path, err)
		}
		got := g.requests()
		last := got[len(got)-1]
		if last.method != test.method || last.target != test.path || last.body != test.body {
			t.Errorf("the client sent %s %s %s, want %s %s %s", last.method, last.target, last.body, test.method, test.path, test.body)
		}
		if last.header.Get("User-Agent") != "orrery-sdk" || last.header.Get("Accept") != "application/json" {
			t.Errorf("%s %s has the headers %v", last.method, last.target, last.header)
		}
	}
}

// pages answers with the pages of a list of groups with names from 1 to total.
func pages(size, total int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var number int
		fmt.Sscan(r.URL.Query().Get("page"), &number)
		page := Page[Group]{Data: []Group{}, Page: number, PageSize: size, Total: total}
		for i := (number-1)*size + 1; i <= min(number*size, total); i++ {
			page.Data = append(page.Data, Group{Name: fmt.Sprint(i)})
		}
		json.NewEncoder(w).Encode(page)
	}
}

func TestIterator(t *testing.T) {
	refused := answer(403, "{}")
	for name, c := range map[string]struct {
		answers []http.HandlerFunc
		stop    string
		names   string
		sent    int
		want    error
	}{
		"three pages":         {[]http.HandlerFunc{pages(2, 5)}, "", "1 2 3 4 5", 3, nil},
		"no element":          {[]http.HandlerFunc{pages(2, 0)}, "", "", 1, nil},
		"a list that shrinks": {[]http.HandlerFunc{pages(2, 5), answer(200, `{"data": [], "page": 2, "pageSize": 2, "total": 5}`)}, "", "1 2", 2, nil},
		"a page refused":      {[]http.HandlerFunc{pages(2, 5), refused}, "", "1 2", 2, ErrDenied},
		"the caller stops":    {[]http.HandlerFunc{pages(2, 5)}, "3", "1 2 3", 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, c.answers...)
			var names []string
			var failure error
			for group, err := range client(t, g.URL).AllGroups(t.Context(), nil) {
				if err != nil {
					failure = err
					break
				}
				if names = append(names, group.Name); group.Name == c.stop {
					break
				}
			}
			if got := strings.Join(names, " "); got != c.names || !errors.Is(failure, c.want) {
				t.Errorf("AllGroups = %q, %v; want %q, %v", got, failure, c.names, c.want)
			}
			if got := len(g.requests()); got != c.sent {
				t.Errorf("AllGroups read %d pages, want %d", got, c.sent)
			}
		})
	}
}

func TestIteratorKeepsTheFilter(t *testing.T) {
	g := newGateway(t, pages(2, 4))
	params := &ListInstancesParams{Group: "lobby", Page: 9}
	for _, err := range client(t, g.URL).AllInstances(t.Context(), params) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range g.requests() {
		if want := fmt.Sprintf("/api/v1/services?group=lobby&page=%d&pageSize=1000", i+1); r.target != want {
			t.Errorf("request %d is for %s, want %s", i+1, r.target, want)
		}
	}
	if params.Page != 9 {
		t.Errorf("AllInstances changed the parameters of the caller: %+v", params)
	}
}

func TestFormIsSentAgainFromTheStart(t *testing.T) {
	var fields map[string][]string
	var files []string
	g := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fields == nil {
			fields = map[string][]string{}
			io.CopyN(io.Discard, r.Body, 10)
			answer(503, "{}")(w, r)
			return
		}
		if err := r.ParseMultipartForm(1 << 20); err != nil {
			t.Error(err)
		}
		fields = r.MultipartForm.Value
		for _, header := range r.MultipartForm.File["file"] {
			content, err := header.Open()
			if err != nil {
				t.Error(err)
				continue
			}
			body, err := io.ReadAll(content)
			files = append(files, fmt.Sprint(header.Filename, ": ", string(body), " ", err))
		}
		answer(200, `{"status": "uploaded"}`)(w, r)
	}))
	t.Cleanup(g.Close)
	open := func(text string) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	}
	form := &Form{
		Fields: []FormField{{"message", "new files"}},
		Files:  []FormFile{{"file", "a.txt", open("first")}, {"file", "b.txt", open("second")}},
	}
	result, err := client(t, g.URL).UploadTemplateFiles(t.Context(), "base", form, nil)
	if err != nil || result.Status != "uploaded" {
		t.Fatalf("UploadTemplateFiles = %+v, %v", result, err)
	}
	if got := fields["message"]; !slices.Equal(got, []string{"new files"}) {
		t.Errorf("the field message is %q", got)
	}
	if want := []string{"a.txt: first <nil>", "b.txt: second <nil>"}; !slices.Equal(files, want) {
		t.Errorf("the files are %q, want %q", files, want)
	}
}

func TestFormReportsAFileThatCannotBeRead(t *testing.T) {
	g := newGateway(t, answer(200, "{}"))
	missing := errors.New("it is gone")
	form := &Form{Files: []FormFile{{"file", "a.txt", func() (io.ReadCloser, error) { return nil, missing }}}}
	_, err := client(t, g.URL).UploadTemplateFiles(t.Context(), "base", form, nil)
	if !errors.Is(err, missing) || errors.Is(err, ErrUnreachable) {
		t.Errorf("UploadTemplateFiles returns %v, want %v", err, missing)
	}
	content := &Content{Type: "application/zip", Open: form.Files[0].Open}
	if err := client(t, g.URL).Call(t.Context(), Request{Method: http.MethodPut, Path: "/", Body: content}, nil); !errors.Is(err, missing) {
		t.Errorf("Call returns %v, want %v", err, missing)
	}
}

func TestDownload(t *testing.T) {
	g := newGateway(t, answer(200, "bytes", "Content-Type", "application/gzip", "Content-Disposition", `attachment; filename="base.tar.gz"`), answer(404, refusal))
	c := client(t, g.URL)
	got, err := c.ExportTemplate(t.Context(), "base", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil || string(body) != "bytes" || got.Type != "application/gzip" || got.Name != "base.tar.gz" || got.Size != 5 {
		t.Errorf("ExportTemplate = %q of %+v, %v", body, got, err)
	}
	if accepted := g.requests()[0].header.Get("Accept"); accepted != "*/*" {
		t.Errorf("the request accepts %q, want */*", accepted)
	}
	if _, err := c.ExportTemplate(t.Context(), "base", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("ExportTemplate returns %v, want %v", err, ErrNotFound)
	}
}

func TestAnswersThatAreNotObjects(t *testing.T) {
	g := newGateway(t, answer(200, `[{"hash": "a"}, {"hash": "b"}]`), answer(403, "{}"))
	c := client(t, g.URL)
	versions, err := c.ListTemplateVersions(t.Context(), "base", nil)
	if err != nil || len(versions) != 2 || versions[1].Hash != "b" {
		t.Errorf("ListTemplateVersions = %+v, %v; want a and b", versions, err)
	}
	if _, err := c.ListTemplateVersions(t.Context(), "base", nil); !errors.Is(err, ErrDenied) {
		t.Errorf("ListTemplateVersions returns %v, want %v", err, ErrDenied)
	}
}
