package declaring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/orreryhq/orrery/cli/internal/app"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/manifest"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/tidwall/gjson"
)

// remote reads and writes objects of all kinds with their fields as documents have them. It does not
// use the types of the SDK, so that numbers keep their precision, and the server judges values that
// these types could not hold.
type remote struct{ client *orrery.Client }

// fields are those of an object, as JSON decodes them: numbers are json.Number.
type fields = map[string]any

// object is an object as a read returns it.
type object struct {
	fields fields
	etag   string
}

// writable returns the fields of the object that can be set and have a value.
func (o *object) writable(kind *kinds.Kind) fields {
	out := fields{}
	for _, name := range kind.Writable() {
		if v := o.fields[name]; v != nil && name != kind.NameField {
			out[name] = v
		}
	}
	return out
}

// send sends a request. It returns nil if the answer has no body.
func (r remote) send(ctx context.Context, request orrery.Request) (*object, error) {
	response, err := r.client.Do(ctx, request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNoContent {
		return nil, nil
	}
	o := &object{etag: response.Header.Get("ETag")}
	decoder := json.NewDecoder(response.Body)
	decoder.UseNumber()
	err = decoder.Decode(&o.fields)
	if err == nil && o.fields == nil {
		err = errors.New("it is null")
	}
	if err != nil {
		return nil, fmt.Errorf("the answer was cut or is not an object in JSON: %w", err)
	}
	return o, nil
}

// get returns an object, nil if it does not exist.
func (r remote) get(ctx context.Context, kind *kinds.Kind, name string) (*object, error) {
	o, err := r.send(ctx, orrery.Request{Method: http.MethodGet, Path: kind.ObjectPath("", name)})
	if errors.Is(err, orrery.ErrNotFound) {
		return nil, nil
	}
	return o, err
}

// create creates an object. The error is a conflict if it exists.
func (r remote) create(ctx context.Context, kind *kinds.Kind, name string, values fields, dryRun bool) (*object, error) {
	if kind.Post {
		body := fields{kind.NameField: name}
		for field, value := range values {
			body[field] = value
		}
		return r.send(ctx, orrery.Request{Method: http.MethodPost, Path: kind.ListPath(""), Body: body, Query: asking(dryRun)})
	}
	o, err := r.send(ctx, orrery.Request{
		Method: http.MethodPut, Path: kind.ObjectPath("", name), Body: values, Query: asking(dryRun),
		Header: http.Header{"If-None-Match": {"*"}},
	})
	var refusal *orrery.Error
	if errors.As(err, &refusal) && errors.Is(err, orrery.ErrPreconditionFailed) {
		exists := *refusal
		exists.Status, exists.Message = http.StatusConflict, fmt.Sprintf("%s %s exists already", kind.Name, name)
		return nil, &exists
	}
	return o, err
}

// update changes an object by a merge patch. The error is ErrPreconditionFailed if live is not the
// object any more.
func (r remote) update(ctx context.Context, kind *kinds.Kind, name string, live *object, patch fields, dryRun bool) (*object, error) {
	request := orrery.Request{Method: http.MethodPatch, Path: kind.ObjectPath("", name), Body: patch, Query: asking(dryRun)}
	if !kind.Patch {
		request.Method, request.Body = http.MethodPut, manifest.ApplyPatch(live.writable(kind), patch)
	}
	if live.etag != "" {
		request.Header = http.Header{"If-Match": {live.etag}}
	}
	return r.send(ctx, request)
}

// delete deletes an object.
func (r remote) delete(ctx context.Context, kind *kinds.Kind, name string, dryRun bool) (*object, error) {
	return r.send(ctx, orrery.Request{Method: http.MethodDelete, Path: kind.ObjectPath("", name), Query: asking(dryRun)})
}

func asking(dryRun bool) url.Values {
	if !dryRun {
		return nil
	}
	return url.Values{"dryRun": {"true"}}
}

func appliedPath(kind *kinds.Kind, name string) string {
	return "/api/v1/applied/" + url.PathEscape(kind.Applied) + "/" + url.PathEscape(name)
}

// applied returns the fields that were applied last; nil if nothing was.
func (r remote) applied(ctx context.Context, kind *kinds.Kind, name string) (fields, error) {
	o, err := r.send(ctx, orrery.Request{Method: http.MethodGet, Path: appliedPath(kind, name)})
	if errors.Is(err, orrery.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	document, _ := o.fields["document"].(fields) // always an object
	return document, nil
}

// remember stores the fields that were applied.
func (r remote) remember(ctx context.Context, kind *kinds.Kind, name string, document fields) error {
	return r.client.Call(ctx, orrery.Request{Method: http.MethodPut, Path: appliedPath(kind, name), Body: fields{"document": document}}, nil)
}

// remembered returns the names of the objects of a kind that were applied.
func (r remote) remembered(ctx context.Context, kind *kinds.Kind) ([]string, error) {
	list := &kinds.Kind{Path: "/api/v1/applied", NameField: "name"}
	rows, err := app.List(ctx, r.client, list, "", url.Values{"kind": {kind.Applied}})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, row := range rows {
		names = append(names, gjson.GetBytes(row, list.NameField).String())
	}
	return names, nil
}

// writer is who changed a field of an object last.
type writer struct {
	By     string    `json:"by,omitempty"`
	Action string    `json:"action,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// writerOf returns who changed a field last. Its history tells; kinds without one show who wrote
// the object.
func (r remote) writerOf(ctx context.Context, kind *kinds.Kind, name string, live *object, field string) writer {
	if kind.HistoryName == "" {
		return writerOfObject(live)
	}
	var history json.RawMessage
	path := "/api/v1/history/" + url.PathEscape(kind.HistoryName) + "/" + url.PathEscape(name)
	if err := r.client.Call(ctx, orrery.Request{Method: http.MethodGet, Path: path}, &history); err != nil {
		return writerOfObject(live) // a caller may see the object and not its history
	}
	top := manifest.TopField(field)
	var found writer
	gjson.GetBytes(history, "data").ForEach(func(_, entry gjson.Result) bool {
		for _, change := range entry.Get("diff.#.field").Array() {
			if change.String() == top {
				found = writer{By: entry.Get("by").String(), Action: entry.Get("action").String(), At: entry.Get("at").Time()}
				return false // the newest is first
			}
		}
		return true
	})
	return found
}

func writerOfObject(live *object) writer {
	by, _ := live.fields["updatedBy"].(string)
	text, _ := live.fields["updatedAt"].(string)
	at, _ := time.Parse(time.RFC3339, text) // without a time none is shown
	return writer{By: by, At: at}
}
