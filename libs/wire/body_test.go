package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

type resources struct {
	MemoryMiB int `json:"memoryMb"`
}

type named struct {
	Name string `json:"name"`
}

type group struct {
	named
	Ports     []uint16          `json:"ports"`
	Static    bool              `json:"static"`
	Weight    float64           `json:"weight"`
	Env       map[string]string `json:"env"`
	Resources resources         `json:"resources"`
	Digest    digest            `json:"digest"`
	Nodes     []*named          `json:"nodes"`
	hidden    int
}

type digest string

func (d *digest) UnmarshalJSON(b []byte) error {
	if string(b) == `"bad"` {
		return errs.Field("digest", "is not a digest")
	}
	return json.Unmarshal(b, (*string)(d))
}

func TestDecodeJSONNamesWhatIsWrong(t *testing.T) {
	cases := []struct{ name, body, field, message string }{
		{"nothing", " \n", "", "the body is empty: send a JSON object"},
		{"bad syntax", "{\n \"name\": }", "", "the body is not valid JSON at line 2, column 10: invalid character '}' looking for beginning of value"},
		{"an end too early", `{"name":"a"`, "", "the body is not valid JSON: it ends too early"},
		{"a list where an object belongs", `[{"name":"a"}]`, "", "the body must be an object, not a list"},
		{"a string where an object belongs", `"a"`, "", "the body must be an object, not a string"},
		{"null where an object belongs", `null`, "", "the body must be an object, not null"},
		{"more levels than are read", `{"env":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", "", "the body is nested deeper than 100 levels"},
		{"an unknown field", `{"nmae":"a"}`, "nmae", "nmae is not a known field: did you mean name?"},
		{"the beginning of a field", `{"resources":{"mem":1}}`, "resources.mem", "resources.mem is not a known field: did you mean memoryMb?"},
		{"an unknown field like no other", `{"cpus":1}`, "cpus", "cpus is not a known field: known fields are name, ports, static, weight, env, resources, digest, nodes"},
		{"an unknown field of great length", `{"` + strings.Repeat("é", 1000) + `":1}`, strings.Repeat("é", 100), strings.Repeat("é", 100) + " is not a known field: known fields are name, ports, static, weight, env, resources, digest, nodes"},
		{"an unknown field within", `{"resources":{"cpus":1}}`, "resources.cpus", "resources.cpus is not a known field: known fields are memoryMb"},
		{"an unknown field within a list", `{"nodes":[{"name":"a"},{"name":"b","cpus":1}]}`, "nodes[1].cpus", "nodes[1].cpus is not a known field: known fields are name"},
		{"an unknown field whose name another object knows", `{"env":{"cpus":"1"},"resources":{"memoryMb":1,"cpus":1}}`, "resources.cpus", "resources.cpus is not a known field: known fields are memoryMb"},
		{"a key given twice", `{"name":"a","name":"b"}`, "name", "name is given twice"},
		{"a field in other letters", `{"Name":"a"}`, "Name", "Name is not a known field: did you mean name?"},
		{"a field in letters that look alike", `{"\u017ftatic":true}`, "ſtatic", "ſtatic is not a known field: did you mean static?"},
		{"a field within in other letters", `{"resources":{"memoryMB":1}}`, "resources.memoryMB", "resources.memoryMB is not a known field: did you mean memoryMb?"},
		{"a field within a list in other letters", `{"nodes":[{"name":"a"},{"NAME":"b"}]}`, "nodes[1].NAME", "nodes[1].NAME is not a known field: did you mean name?"},
		{"a key of a map given twice", `{"env":{"A":"1","B":"2","A":"3"}}`, "env.A", "env.A is given twice"},
		{"a key within a list given twice", `{"nodes":[{},{"name":"a","name":"a"}]}`, "nodes[1].name", "nodes[1].name is given twice"},
		{"a number for a string", `{"name":1}`, "name", "name must be a string, not a number"},
		{"a string for a number", `{"resources":{"memoryMb":"1"}}`, "resources.memoryMb", "resources.memoryMb must be a whole number, not a string"},
		{"a fraction for a whole number", `{"resources":{"memoryMb":1.5}}`, "resources.memoryMb", "resources.memoryMb must be a whole number, not number 1.5"},
		{"a number out of range", `{"ports":[70000]}`, "ports", "ports must be a whole number that is not negative, not number 70000"},
		{"an object for a list", `{"ports":{}}`, "ports", "ports must be a list, not an object"},
		{"a string for a bool", `{"static":"yes"}`, "static", "static must be true or false, not a string"},
		{"a list for a map", `{"env":[]}`, "env", "env must be an object, not a list"},
		{"two values", `{"name":"a"}{"name":"b"}`, "", "the body holds more than one JSON value: send exactly one"},
		{"garbage behind", `{"name":"a"}x`, "", "the body holds more than one JSON value: send exactly one"},
		{"bytes that are no text", "{\"name\":\"\xff\"}", "", "the body is not valid UTF-8"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := wire.DecodeJSON(strings.NewReader(c.body), 0, new(group))
			if !errs.Is(err, errs.Malformed) {
				t.Fatalf("got %v (%v), want Malformed", err, errs.KindOf(err))
			}
			if errs.FieldOf(err) != c.field || errs.MessageOf(err) != c.message {
				t.Errorf("got  %q %q\nwant %q %q", errs.FieldOf(err), errs.MessageOf(err), c.field, c.message)
			}
		})
	}
}

func TestDecodeJSONKeepsTheKindOfATypesOwnError(t *testing.T) {
	err := wire.DecodeJSON(strings.NewReader(`{"digest":"bad"}`), 0, new(group))
	if !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "digest" {
		t.Errorf("got %v, %v", errs.KindOf(err), err)
	}
}

func TestDecodeJSONStopsAtTheLimit(t *testing.T) {
	body := `{"name":"abc"}`
	if err := wire.DecodeJSON(strings.NewReader(body), int64(len(body)), new(group)); err != nil {
		t.Errorf("a body of exactly the limit: %v", err)
	}
	if err := wire.DecodeJSON(strings.NewReader(body), int64(len(body))-1, new(group)); !errs.Is(err, errs.TooLarge) {
		t.Errorf("a body past the limit: %v", err)
	}
	guarded := http.MaxBytesReader(httptest.NewRecorder(), io.NopCloser(strings.NewReader(body)), 4)
	if err := wire.DecodeJSON(guarded, 0, new(group)); !errs.Is(err, errs.TooLarge) {
		t.Errorf("a body past the server's limit: %v", err)
	}
	broken := iotest.ErrReader(errors.New("reset by peer"))
	if err := wire.DecodeJSON(broken, 0, new(group)); !errs.Is(err, errs.Malformed) {
		t.Errorf("a broken body: %v", err)
	}
}

func TestDecodeJSONFillsTheTarget(t *testing.T) {
	var g group
	body := ` {"name":"lobby","ports":[25565],"env":{"A":"b"},"resources":{"memoryMb":512}} `
	if err := wire.DecodeJSON(strings.NewReader(body), 0, &g); err != nil {
		t.Fatal(err)
	}
	if g.Name != "lobby" || !slices.Equal(g.Ports, []uint16{25565}) || g.Resources.MemoryMiB != 512 {
		t.Errorf("got %+v", g)
	}
}

func TestLenientNamesWhatItIgnored(t *testing.T) {
	var g group
	body := `{"NAME":"lobby","zeta":1,"alpha":{"x":[]},"hidden":3,"resources":{"cpus":1}}`
	ignored, err := wire.DecodeJSONLenient(strings.NewReader(body), 0, &g)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"alpha", "hidden", "zeta"}, ignored); diff != "" {
		t.Error(diff)
	}
	if g.Name != "lobby" || g.hidden != 0 {
		t.Errorf("got %+v", g)
	}
	if _, err := wire.DecodeJSONLenient(strings.NewReader(`{"name":"a","Name":"b"}`), 0, &g); errs.MessageOf(err) != "Name is given twice" {
		t.Errorf("a field is taken twice in other letters: %v", err)
	}
	if _, err := wire.DecodeJSONLenient(strings.NewReader(`{"name":1}`), 0, &g); !errs.Is(err, errs.Malformed) {
		t.Errorf("a wrong type is forgiven: %v", err)
	}
}

func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"name":"a","ports":[1]}`, `[`, `null`, `{"a":1}{`, `{"digest":"bad"}`, "\xff", `{"static":1e999}`,
		strings.Repeat("[", 20000), `{"resources":{"memoryMb":9223372036854775808}}`, `{"name":"a"} 1`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		const limit = 1 << 16
		var g group
		err := wire.DecodeJSON(bytes.NewReader(body), limit, &g)
		switch kind := errs.KindOf(err); {
		case err == nil:
			if !json.Valid(body) {
				t.Errorf("accepted what is no JSON: %q", body)
			}
			if _, err := wire.DecodeJSONLenient(bytes.NewReader(body), limit, &g); err != nil {
				t.Errorf("strict accepts and lenient refuses: %v", err)
			}
		case kind != errs.Malformed && kind != errs.TooLarge && kind != errs.Invalid:
			t.Errorf("bad input is %v: %v", kind, err)
		case errs.MessageOf(err) == errs.MessageOf(nil):
			t.Errorf("no message for %q: %v", body, err)
		}
	})
}
