package apigateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/wire"
)

// reply is a response; body is its decoded JSON.
type reply struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	raw    string
	body   any
}

// read sets the body, which may be JSON.
func (r *reply) read(raw []byte) {
	r.raw = string(raw)
	if len(raw) > 0 {
		_ = json.Unmarshal(raw, &r.body)
	}
}

// want checks the status. An error must have the error format of the path's API.
func (r *reply) want(status int) *reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: %d, want %d: %.600s", r.what, r.status, status, r.raw)
	}
	if status >= 400 {
		r.enveloped()
	}
	return r
}

func (r *reply) enveloped() {
	r.t.Helper()
	path := strings.SplitN(strings.SplitN(r.what, " ", 2)[1], "?", 2)[0]
	if server.DialectOf(path) == wire.Universe {
		if text, ok := r.field("error").(string); !ok || text == "" {
			r.t.Errorf("%s: not the older envelope: %s", r.what, r.raw)
		}
		return
	}
	e, _ := r.field("error").(map[string]any)
	if e["code"] == nil || e["code"] == "" || e["message"] == nil || e["message"] == "" || e["status"] != float64(r.status) {
		r.t.Errorf("%s: not the envelope of %d: %s", r.what, r.status, r.raw)
	}
	if r.header.Get("X-Request-Id") == "" {
		r.t.Errorf("%s: no X-Request-Id", r.what)
	}
}

// naming checks that the response contains a text.
func (r *reply) naming(text string) *reply {
	r.t.Helper()
	if !strings.Contains(r.raw, text) {
		r.t.Errorf("%s: %q is not named in %s", r.what, text, r.raw)
	}
	return r
}

// field returns the part of the body at a dotted path. List items are numbers.
func (r *reply) field(path string) any {
	at := r.body
	for part := range strings.SplitSeq(path, ".") {
		switch in := at.(type) {
		case map[string]any:
			at = in[part]
		case []any:
			n, err := strconv.Atoi(part)
			if err != nil || n >= len(in) {
				return nil
			}
			at = in[n]
		default:
			return nil
		}
	}
	return at
}

// is checks the value of a field. Numbers are float64.
func (r *reply) is(path string, want any) *reply {
	r.t.Helper()
	got, _ := json.Marshal(r.field(path))
	wanted, _ := json.Marshal(want)
	if string(got) != string(wanted) {
		r.t.Errorf("%s: %s = %s, want %s", r.what, path, got, wanted)
	}
	return r
}

func (r *reply) data() []any {
	list, _ := r.field("data").([]any)
	return list
}
