// Package objects reads and writes objects of all kinds of the API.
package objects

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/manifest"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/tidwall/gjson"
)

// Remote reads and writes objects of all kinds with their fields as documents have them. It does not
// use the types of the SDK, so that numbers keep their precision, and the server judges values that
// these types could not hold.
type Remote struct {
	Client *orrery.Client
	// DryRun makes writes change nothing. They return what would happen.
	DryRun bool
}

// Ref names an object.
type Ref struct {
	Kind *kinds.Kind
	Name string
}

// String returns the kind and the name.
func (r Ref) String() string { return r.Kind.Name + " " + r.Name }

func (r Ref) path() string { return r.Kind.ObjectPath("", r.Name) }

func (r Ref) appliedPath() string {
	return "/api/v1/applied/" + url.PathEscape(r.Kind.Applied) + "/" + url.PathEscape(r.Name)
}

// Fields are those of an object, as JSON decodes them: numbers are json.Number.
type Fields = map[string]any

// Object is an object as a read returns it.
type Object struct {
	Fields Fields
	ETag   string
}

// Writable returns the fields of the object that can be set and have a value.
func (o *Object) Writable(kind *kinds.Kind) Fields {
	out := Fields{}
	for _, name := range kind.Writable() {
		if v := o.Fields[name]; v != nil && name != kind.NameField {
			out[name] = v
		}
	}
	return out
}

// send sends a request. It returns nil if the answer has no body.
func (r Remote) send(ctx context.Context, request orrery.Request) (*Object, error) {
	response, err := r.Client.Do(ctx, request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNoContent {
		return nil, nil
	}
	o := &Object{ETag: response.Header.Get("ETag")}
	decoder := json.NewDecoder(response.Body)
	decoder.UseNumber()
	err = decoder.Decode(&o.Fields)
	if err == nil && o.Fields == nil {
		err = errors.New("it is null")
	}
	if err != nil {
		return nil, fmt.Errorf("the answer was cut or is not an object in JSON: %w", err)
	}
	return o, nil
}

// Get returns an object, nil if it does not exist.
func (r Remote) Get(ctx context.Context, ref Ref) (*Object, error) {
	o, err := r.send(ctx, orrery.Request{Method: http.MethodGet, Path: ref.path()})
	if errors.Is(err, orrery.ErrNotFound) {
		return nil, nil
	}
	return o, err
}

// Create creates an object. The error is a conflict if it exists.
func (r Remote) Create(ctx context.Context, ref Ref, values Fields) (*Object, error) {
	if ref.Kind.Joins {
		err := fmt.Errorf("there is no %s; it joins by itself when its agent runs", ref)
		return nil, exit.With(exit.NotFound, err, "orrery get "+ref.Kind.Plural+" lists those that have joined")
	}
	if ref.Kind.Post {
		body := Fields{ref.Kind.NameField: ref.Name}
		for field, value := range values {
			body[field] = value
		}
		return r.send(ctx, orrery.Request{Method: http.MethodPost, Path: ref.Kind.ListPath(""), Body: body, Query: r.asking()})
	}
	o, err := r.send(ctx, orrery.Request{
		Method: http.MethodPut, Path: ref.path(), Body: values, Query: r.asking(),
		Header: http.Header{"If-None-Match": {"*"}},
	})
	var refusal *orrery.Error
	if errors.As(err, &refusal) && errors.Is(err, orrery.ErrPreconditionFailed) {
		exists := *refusal
		exists.Status, exists.Message = http.StatusConflict, ref.String()+" exists already"
		return nil, &exists
	}
	return o, err
}

// Update changes an object by a merge patch. The error is ErrPreconditionFailed if live is not the
// object any more.
func (r Remote) Update(ctx context.Context, ref Ref, live *Object, patch Fields) (*Object, error) {
	request := orrery.Request{Method: http.MethodPatch, Path: ref.path(), Body: patch, Query: r.asking()}
	if !ref.Kind.Patch {
		request.Method, request.Body = http.MethodPut, manifest.ApplyPatch(live.Writable(ref.Kind), patch)
	}
	if live.ETag != "" {
		request.Header = http.Header{"If-Match": {live.ETag}}
	}
	return r.send(ctx, request)
}

// Delete deletes an object.
func (r Remote) Delete(ctx context.Context, ref Ref) (*Object, error) {
	return r.send(ctx, orrery.Request{Method: http.MethodDelete, Path: ref.path(), Query: r.asking()})
}

func (r Remote) asking() url.Values {
	if !r.DryRun {
		return nil
	}
	return url.Values{"dryRun": {"true"}}
}

// Applied returns the fields that were applied last; nil if nothing was, or if the server does not store that.
func (r Remote) Applied(ctx context.Context, ref Ref) (Fields, error) {
	if ref.Kind.Applied == "" {
		return nil, nil
	}
	o, err := r.send(ctx, orrery.Request{Method: http.MethodGet, Path: ref.appliedPath()})
	if errors.Is(err, orrery.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	document, _ := o.Fields["document"].(Fields) // always an object
	return document, nil
}

// Remember stores the fields that were applied, if the server does so for the kind.
func (r Remote) Remember(ctx context.Context, ref Ref, document Fields) error {
	if ref.Kind.Applied == "" {
		return nil
	}
	return r.Client.Call(ctx, orrery.Request{Method: http.MethodPut, Path: ref.appliedPath(), Body: Fields{"document": document}}, nil)
}

// Remembered returns the objects of a kind that were applied: their names, and who applied them last.
func (r Remote) Remembered(ctx context.Context, kind *kinds.Kind) (map[string]Writer, error) {
	list := &kinds.Kind{Path: "/api/v1/applied", NameField: "name"}
	rows, err := app.List(ctx, r.Client, list, "", url.Values{"kind": {kind.Applied}})
	if err != nil {
		return nil, err
	}
	applied := map[string]Writer{}
	for _, row := range rows {
		entry := gjson.ParseBytes(row)
		applied[entry.Get(list.NameField).String()] = Writer{By: entry.Get("appliedBy").String(), At: entry.Get("appliedAt").Time()}
	}
	return applied, nil
}

// Writer is who changed a field of an object last.
type Writer struct {
	By     string    `json:"by,omitempty"`
	Action string    `json:"action,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// WriterOf returns who changed a field last. Its history tells; kinds without one show who wrote
// the object.
func (r Remote) WriterOf(ctx context.Context, ref Ref, live *Object, field string) Writer {
	if ref.Kind.HistoryName == "" {
		return writerOfObject(live)
	}
	var history json.RawMessage
	if err := r.Client.Call(ctx, orrery.Request{Method: http.MethodGet, Path: ref.Kind.HistoryPath(ref.Name)}, &history); err != nil {
		return writerOfObject(live) // a caller may see the object and not its history
	}
	top := manifest.TopField(field)
	var found Writer
	gjson.GetBytes(history, "data").ForEach(func(_, entry gjson.Result) bool {
		for _, change := range entry.Get("diff.#.field").Array() {
			if change.String() == top {
				found = Writer{By: entry.Get("by").String(), Action: entry.Get("action").String(), At: entry.Get("at").Time()}
				return false // the newest is first
			}
		}
		return true
	})
	return found
}

func writerOfObject(live *Object) Writer {
	by, _ := live.Fields["updatedBy"].(string)
	text, _ := live.Fields["updatedAt"].(string)
	at, _ := time.Parse(time.RFC3339, text) // without a time none is shown
	return Writer{By: by, At: at}
}

// Existing returns an object that must exist. The error suggests similar names.
func (r Remote) Existing(ctx context.Context, ref Ref) (*Object, error) {
	live, err := r.send(ctx, orrery.Request{Method: http.MethodGet, Path: ref.path()})
	return live, app.Suggest(ctx, r.Client, err, ref.Kind, "", ref.Name)
}

// WithoutDefaults returns the fields of a group that differ from their defaults. The server knows
// them: the dry run of a creation with these fields lists what differs. If it fails, every field
// stays.
func (r Remote) WithoutDefaults(ctx context.Context, kind *kinds.Kind, values Fields) Fields {
	if kind.Name != "group" {
		return values
	}
	changes, ok := r.differing(ctx, kind, values)
	if !ok {
		return values
	}
	out := maps.Clone(values)
	maps.DeleteFunc(out, func(field string, _ any) bool { return changes[field] == nil })
	for _, pair := range samePairs {
		for _, field := range pair {
			shorter := maps.Clone(out)
			delete(shorter, field)
			if same, ok := r.differing(ctx, kind, shorter); ok && manifest.Equal(same, changes) {
				out = shorter
				break
			}
		}
	}
	return out
}

// samePairs are fields of a group that say the same: one of them is enough in a document. The first
// is left out if the second says everything.
var samePairs = [][]string{{"templateInstallationConfig", "templates"}, {"cpuReservation", "cpu"}}

// differing returns the fields that a group with these values would have apart from defaults. It reports
// false if the server does not answer the dry run of a creation.
func (r Remote) differing(ctx context.Context, kind *kinds.Kind, values Fields) (Fields, bool) {
	name := "export-" + strings.ToLower(rand.Text()[:8]) // a name that no group has
	r.DryRun = true
	answer, err := r.Create(ctx, Ref{kind, name}, values)
	if err != nil || answer == nil {
		return nil, false
	}
	diff, ok := answer.Fields["diff"].([]any)
	out := Fields{}
	for _, change := range diff {
		if change, isObject := change.(Fields); isObject {
			name, _ := change["field"].(string) // every change names its field
			out[name] = change["to"]
		}
	}
	return out, ok
}

// Encode returns the JSON of a value that was decoded from JSON.
func Encode(value any) json.RawMessage {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // only values that are no JSON fail
	}
	return json.RawMessage(strings.TrimSpace(b.String()))
}

// Changes returns the fields that two versions of an object differ in. Objects are compared
// field by field.
func Changes(before, after Fields) []orrery.FieldChange {
	return appendChanges(nil, "", before, after)
}

func appendChanges(out []orrery.FieldChange, prefix string, before, after Fields) []orrery.FieldChange {
	names := maps.Clone(before)
	if names == nil {
		names = Fields{}
	}
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		from, to := before[name], after[name]
		fromObject, ok := from.(Fields)
		toObject, toOK := to.(Fields)
		switch {
		case manifest.Equal(from, to):
		case (ok || from == nil) && (toOK || to == nil):
			out = appendChanges(out, prefix+name+".", fromObject, toObject)
		default:
			out = append(out, orrery.FieldChange{Field: prefix + name, From: Encode(from), To: Encode(to)})
		}
	}
	return out
}

// Flattened returns changes with those of objects split into their fields.
func Flattened(changes []orrery.FieldChange) []orrery.FieldChange {
	var out []orrery.FieldChange
	for _, c := range changes {
		from, to := decodeValue(c.From), decodeValue(c.To)
		out = appendChanges(out, "", Fields{c.Field: from}, Fields{c.Field: to})
	}
	return out
}

func decodeValue(raw json.RawMessage) any {
	decoder := json.NewDecoder(strings.NewReader(string(raw)))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil // an absent value
	}
	return v
}
