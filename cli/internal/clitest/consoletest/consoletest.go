// Package consoletest has a gateway with instances that print, and runs commands against it.
package consoletest

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/settings"
	"github.com/spf13/cobra"
)

// Gateway has instances with output, and speaks the part of the API that shows it.
type Gateway struct {
	*httptest.Server
	mu sync.Mutex
	// instances are the JSON objects by uid, in the order of order. output has their lines.
	instances map[string]string
	order     []string
	output    map[string]string
	// ending has the data of the end event of those that have ended.
	ending map[string]string
	// cut closes consoles after this many lines, once.
	cut int
	// Typed gets what was typed. Events are streamed.
	Typed  chan string
	Events chan string
	// changed is closed when output is added.
	changed chan struct{}
}

// New returns a Gateway without instances.
func New(t *testing.T) *Gateway {
	t.Helper()
	g := &Gateway{
		instances: map[string]string{}, output: map[string]string{}, ending: map[string]string{},
		Typed: make(chan string, 16), Events: make(chan string), changed: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/instances", g.list)
	mux.HandleFunc("GET /api/v1/groups", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[{"name":"lobby","labels":{"mode":"hub"}},{"name":"duel","labels":{"mode":"duels"}}],"total":2}`)
	})
	mux.HandleFunc("GET /api/v1/groups/{name}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, `{"name":%q}`, r.PathValue("name")) })
	mux.HandleFunc("GET /api/v1/instances/{id}", g.get)
	mux.HandleFunc("GET /api/v1/services/{id}/console", g.console)
	mux.HandleFunc("GET /api/v1/services/{id}/console/history", g.history)
	mux.HandleFunc("GET /api/v1/services/{id}/console/output", g.raw)
	mux.HandleFunc("GET /api/v1/services/{id}/attach", g.attach)
	mux.HandleFunc("GET /api/v1/events/stream", g.stream)
	mux.HandleFunc("GET /api/v1/auth/me", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"username":"u","permissions":["instances.console"]}`)
	})
	const record = `{"seq":1,"ts":1767366245000,"level":"WARN","logger":"a/b","thread":"gateway-1","message":"disk is full","throwable":"no space","mdc":{"path":"/data"}}`
	mux.HandleFunc("GET /api/v1/system/logs", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"records":[`+record+`],"missingReasons":{"gateway-2":"it does not answer"}}`)
	})
	mux.HandleFunc("GET /api/v1/nodes/node-1/logs/stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: connected\ndata: {}\n\nid: 1\nevent: log\ndata: "+record+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	t.Cleanup(g.CloseClientConnections)
	return g
}

// Add adds an instance, or changes it. Without an end it runs.
func (g *Gateway) Add(uid, name, group, output, end string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	state := "RUNNING"
	if end != "" {
		state = "CRASHED"
	}
	if g.instances[uid] == "" {
		g.order = append(g.order, uid)
	}
	g.instances[uid] = fmt.Sprintf(`{"id":%q,"uid":%q,"group":%q,"node":"node-1","state":%q,"generation":1,"createdAt":"2026-01-02T15:04:0%dZ"}`, name, uid, group, state, len(g.order))
	g.output[uid], g.ending[uid] = output, end
	close(g.changed)
	g.changed = make(chan struct{})
}

// Print adds lines to the output of an instance.
func (g *Gateway) Print(uid, lines string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.output[uid] += lines
	close(g.changed)
	g.changed = make(chan struct{})
}

// Cut closes the next console after that many lines.
func (g *Gateway) Cut(lines int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = lines
}

func (g *Gateway) list(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var found []string
	for _, uid := range g.order {
		if group := r.URL.Query().Get("group"); group == "" || strings.Contains(g.instances[uid], fmt.Sprintf(`"group":%q`, group)) {
			found = append(found, g.instances[uid])
		}
	}
	fmt.Fprintf(w, `{"data":[%s],"total":%d}`, strings.Join(found, ","), len(found))
}

// uid returns the newest instance of a uid or name.
func (g *Gateway) uid(r *http.Request) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := ""
	for _, uid := range g.order {
		if uid == r.PathValue("id") || strings.Contains(g.instances[uid], fmt.Sprintf(`"id":%q`, r.PathValue("id"))) {
			found = uid
		}
	}
	return found
}

func (g *Gateway) get(w http.ResponseWriter, r *http.Request) {
	uid := g.uid(r)
	g.mu.Lock()
	defer g.mu.Unlock()
	if uid == "" {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"error":{"code":"NOT_FOUND","message":"there is no such instance","status":404}}`)
		return
	}
	fmt.Fprint(w, g.instances[uid])
}

// next waits for output after an offset. It returns the end once there is no more.
func (g *Gateway) next(r *http.Request, uid string, offset int) (output, end string) {
	for {
		g.mu.Lock()
		output, end = g.output[uid], g.ending[uid]
		changed := g.changed
		g.mu.Unlock()
		if offset < len(output) || end != "" {
			return output[min(offset, len(output)):], end
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return "", "gone"
		}
	}
}

// start returns the offset that a request begins at.
func (g *Gateway) start(r *http.Request, uid string) int {
	if at := r.URL.Query().Get("offset"); at != "" {
		offset, _ := strconv.Atoi(at)
		return offset
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	lines := slices.Collect(strings.Lines(g.output[uid]))
	count, err := strconv.Atoi(r.URL.Query().Get("lines"))
	if err != nil {
		count = 500
	}
	return len(g.output[uid]) - len(strings.Join(lines[max(len(lines)-count, 0):], ""))
}

func (g *Gateway) console(w http.ResponseWriter, r *http.Request) {
	uid := g.uid(r)
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "event: connected\ndata: {\"instanceId\":%q}\n\n", uid)
	offset := g.start(r, uid)
	for {
		_ = http.NewResponseController(w).Flush()
		output, end := g.next(r, uid, offset)
		for line := range strings.Lines(output) {
			offset += len(line)
			fmt.Fprintf(w, "id: %d\ndata: %s\n\n", offset, base64.StdEncoding.EncodeToString([]byte(strings.TrimRight(line, "\r\n"))))
			g.mu.Lock()
			g.cut--
			cut := g.cut == 0
			g.mu.Unlock()
			if cut {
				return
			}
		}
		if end != "" {
			fmt.Fprintf(w, "event: suppressed\nid: %d\ndata: {\"lines\":1234,\"message\":\"suppressed\"}\n\n", offset+1)
			fmt.Fprintf(w, "event: end\nid: %d-end\ndata: %s\n\n", offset+1, end)
			return
		}
	}
}

func (g *Gateway) history(w http.ResponseWriter, r *http.Request) {
	q, uid := r.URL.Query(), g.uid(r)
	g.mu.Lock()
	defer g.mu.Unlock()
	limit, _ := strconv.Atoi(q.Get("limit"))
	before, err := strconv.Atoi(q.Get("before"))
	if err != nil {
		before = len(g.output[uid])
	}
	var lines []string
	at := 0
	for line := range strings.Lines(g.output[uid][:before]) {
		text := strings.TrimRight(line, "\r\n")
		if regexp.MustCompile(q.Get("grep")).MatchString(text) {
			lines = append(lines, fmt.Sprintf(`{"ts":"2026-01-02T15:04:05Z","line":%q,"offset":%d}`, text, at))
		}
		at += len(line)
	}
	first := max(len(lines)-limit, 0)
	lines = lines[first:]
	start := 0
	if len(lines) > 0 {
		_, tail, _ := strings.Cut(lines[0], `"offset":`)
		start, _ = strconv.Atoi(strings.TrimSuffix(tail, "}"))
	}
	fmt.Fprintf(w, `{"lines":[%s],"truncated":%t,"before":%d}`, strings.Join(lines, ","), first > 0, start)
}

// raw sends the output in parts of ten bytes.
func (g *Gateway) raw(w http.ResponseWriter, r *http.Request) {
	uid := g.uid(r)
	g.mu.Lock()
	defer g.mu.Unlock()
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	end := min(offset+10, len(g.output[uid]))
	w.Header().Set("Orrery-Next-Offset", strconv.Itoa(end))
	fmt.Fprint(w, g.output[uid][offset:end])
}

func (g *Gateway) attach(w http.ResponseWriter, r *http.Request) {
	uid := g.uid(r)
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	ctx := r.Context()
	send := func(format string, args ...any) {
		_ = conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, format, args...))
	}
	send(`{"type":"connected","instanceId":%q}`, uid)
	go func() {
		for {
			_, line, err := conn.Read(ctx)
			if err != nil {
				return
			}
			g.Typed <- string(line)
			g.Print(uid, "you typed "+string(line)+"\n")
		}
	}()
	offset := g.start(r, uid)
	for {
		output, end := g.next(r, uid, offset)
		for line := range strings.Lines(output) {
			offset += len(line)
			send(`{"type":"output","line":%q,"offset":%d}`, strings.TrimRight(line, "\r\n"), offset)
		}
		if end != "" {
			send(`{"type":"end","offset":%d,"end":%s}`, offset, end)
			return
		}
	}
}

func (g *Gateway) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "event: connected\ndata: {\"latestSequence\":9,\"clusterId\":\"c\"}\n\n")
	for n := 10; ; n++ {
		_ = http.NewResponseController(w).Flush()
		select {
		case data := <-g.Events:
			fmt.Fprintf(w, "event: message\nid: %d\ndata: %s\n\n", n, data)
		case <-r.Context().Done():
			return
		}
	}
}

// Output is a buffer that a test may read while a command writes.
type Output struct {
	mu      sync.Mutex
	buffer  bytes.Buffer
	changed chan struct{}
}

func newOutput() *Output { return &Output{changed: make(chan struct{}, 1)} }

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
	return o.buffer.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

// patience is how long a command may take on a loaded machine.
const patience = 2 * time.Minute

// WaitFor waits until the output has a text.
func (o *Output) WaitFor(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(patience)
	for !strings.Contains(o.String(), text) {
		select {
		case <-o.changed:
		case <-deadline:
			t.Fatalf("no %q in:\n%s", text, o)
		}
	}
}

// Commands returns the commands that a test runs.
type Commands func(a *app.App) []*cobra.Command

// Running is a command that runs.
type Running struct {
	Out, Err *Output
	Stop     context.CancelFunc
	Result   chan error
}

// Launch runs a command with a standard input that is not a terminal.
func (g *Gateway) Launch(t *testing.T, commands Commands, in string, args ...string) *Running {
	t.Helper()
	r := &Running{Out: newOutput(), Err: newOutput(), Result: make(chan error, 1)}
	env := map[string]string{"ORRERY_SERVER": g.URL, "ORRERY_TOKEN": "token"}
	a := &app.App{In: strings.NewReader(in), Out: r.Out, Err: r.Err, Env: func(name string) string { return env[name] }, Settings: settings.New(t.TempDir()+"/config.yaml", nil)}
	root := &cobra.Command{Use: "orrery", SilenceErrors: true, SilenceUsage: true}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.With(exit.Usage, err, "") })
	root.PersistentFlags().StringVarP(&a.Flags.Output, "output", "o", "", "")
	root.AddCommand(commands(a)...)
	root.SetArgs(args)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r.Stop = cancel
	go func() { r.Result <- root.ExecuteContext(ctx) }()
	return r
}

// Run runs a command to its end.
func (g *Gateway) Run(t *testing.T, commands Commands, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	r := g.Launch(t, commands, "", args...)
	err = <-r.Result
	return r.Out.String(), r.Err.String(), err
}
