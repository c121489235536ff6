package orrery

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
)

// Patch is the body of a PATCH: a field that it names is set, null deletes a key of a map or resets
// the field, and other fields keep their values.
type Patch map[string]any

// object sends a request and returns the JSON object of the answer. It is the zero value if the
// answer has no body.
func object[T any](ctx context.Context, c *Client, request Request) (*T, error) {
	into := new(T)
	if err := c.Call(ctx, request, into); err != nil {
		return nil, err
	}
	return into, nil
}

// value sends a request and returns the JSON list, map or value of the answer.
func value[T any](ctx context.Context, c *Client, request Request) (T, error) {
	var into T
	err := c.Call(ctx, request, &into)
	return into, err
}

// given returns body, or nil without a type if it is nil, so that no body is sent.
func given[T any](body *T) any {
	if body == nil {
		return nil
	}
	return body
}

// filled returns the parameters, or none if params is nil.
func filled[T any](params *T) T {
	if params == nil {
		return *new(T)
	}
	return *params
}

// with adds the fields of params, a pointer to a struct, that are not zero. Their tags name a query
// parameter or a header.
func (r Request) with(params any) Request {
	fields := reflect.ValueOf(params).Elem()
	if !fields.IsValid() {
		return r
	}
	for field, v := range fields.Fields() {
		if v.IsZero() {
			continue
		}
		text := fmt.Sprint(reflect.Indirect(v).Interface())
		if name, ok := field.Tag.Lookup("header"); ok {
			if r.Header == nil {
				r.Header = http.Header{}
			}
			r.Header.Set(name, text)
			continue
		}
		r = r.asking(field.Tag.Get("query"), text)
	}
	return r
}

// asking adds a query parameter.
func (r Request) asking(name, text string) Request {
	query := url.Values{}
	maps.Copy(query, r.Query)
	query.Set(name, text)
	r.Query = query
	return r
}

// dryRun asks for a dry run.
func (r Request) dryRun() Request { return r.asking("dryRun", "true") }

// at asks for the state at a revision or time.
func (r Request) at(moment string) Request { return r.asking("at", moment) }

// accepting asks for an answer that is not JSON.
func (r Request) accepting(media string) Request {
	r.Header = r.Header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Accept", media)
	return r
}
