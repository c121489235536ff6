package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/exit"
	"github.com/orreryhq/orrery/cli/internal/kinds"
	"github.com/orreryhq/orrery/cli/internal/output"
	orrery "github.com/orreryhq/orrery/sdk"
	"github.com/tidwall/gjson"
)

// Row returns a value as the JSON that a Printer takes.
func Row(value any) (output.Row, error) {
	if row, ok := value.(output.Row); ok {
		return row, nil
	}
	return json.Marshal(value)
}

// defaultPageSize is that of kinds without one.
const defaultPageSize = 500

// List returns all objects of a kind. query may be nil. The rows have every field that the server
// sent, also those that this version does not know. A server that sends the same page again, which would
// never end, is an error.
func List(ctx context.Context, client *orrery.Client, kind *kinds.Kind, group string, query url.Values) ([]output.Row, error) {
	var rows, previous []output.Row
	size := kind.PageSize
	if size == 0 {
		size = defaultPageSize
	}
	for page := 1; ; page++ {
		q := url.Values{"page": {strconv.Itoa(page)}, "pageSize": {strconv.Itoa(size)}}
		for name, values := range query {
			q[name] = values
		}
		body, _, err := read(ctx, client, kind.ListPath(group), q)
		if err != nil {
			return nil, err
		}
		found := rowsOf(body, kind)
		if len(found) > 0 && slices.EqualFunc(found, previous, func(a, b output.Row) bool { return bytes.Equal(a, b) }) {
			return nil, fmt.Errorf("%s sent page %d of the %s twice, so that the list has no end", client.Address(), page-1, kind.Plural)
		}
		previous = found
		rows = append(rows, found...)
		total := gjson.GetBytes(body, "total")
		if len(found) == 0 || !total.Exists() || int64(len(rows)) >= total.Int() {
			return rows, nil
		}
	}
}

// read returns the JSON of a path, and the headers of the answer.
func read(ctx context.Context, client *orrery.Client, path string, query url.Values) ([]byte, http.Header, error) {
	response, err := client.Do(ctx, orrery.Request{Method: http.MethodGet, Path: path, Query: query})
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	var body bytes.Buffer
	if response.ContentLength > 0 {
		body.Grow(int(response.ContentLength) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(response.Body); err != nil {
		return nil, nil, fmt.Errorf("the answer of %s was cut: %w", client.Address(), err)
	}
	if !gjson.ValidBytes(body.Bytes()) {
		return nil, nil, fmt.Errorf("the answer of %s is not JSON; is that an Orrery gateway?", client.Address())
	}
	return body.Bytes(), response.Header, nil
}

// rowsOf returns the objects of a list. They share the memory of body.
func rowsOf(body []byte, kind *kinds.Kind) []output.Row {
	data := gjson.ParseBytes(body)
	if !data.IsArray() {
		data = data.Get(cmp.Or(kind.Data, "data"))
	}
	var rows []output.Row
	data.ForEach(func(_, value gjson.Result) bool {
		rows = append(rows, output.Row(body[value.Index:value.Index+len(value.Raw)]))
		return true
	})
	return rows
}

// Rows returns values as the JSON that a Printer takes.
func Rows[T any](values []T) ([]output.Row, error) {
	rows := make([]output.Row, len(values))
	for i, v := range values {
		row, err := Row(v)
		if err != nil {
			return nil, err
		}
		rows[i] = row
	}
	return rows, nil
}

// Get returns one object and its ETag. If the name does not exist, the error names similar ones.
func Get(ctx context.Context, client *orrery.Client, kind *kinds.Kind, group, name string) (output.Row, string, error) {
	if kind.ListOnly {
		row, err := search(ctx, client, kind, group, name)
		return row, "", err
	}
	body, header, err := read(ctx, client, kind.ObjectPath(group, name), nil)
	if err != nil {
		return nil, "", Suggest(ctx, client, err, kind, group, name)
	}
	return body, header.Get("ETag"), nil
}

func search(ctx context.Context, client *orrery.Client, kind *kinds.Kind, group, name string) (output.Row, error) {
	rows, err := List(ctx, client, kind, group, nil)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if gjson.GetBytes(row, kind.NameField).String() == name || kind.Title != "" && gjson.GetBytes(row, kind.Title).String() == name {
			return row, nil
		}
	}
	return nil, notFound(kind, name, namesOf(rows, kind))
}

// Names returns the names of all objects of a kind.
func Names(ctx context.Context, client *orrery.Client, kind *kinds.Kind, group string) ([]string, error) {
	rows, err := List(ctx, client, kind, group, nil)
	return namesOf(rows, kind), err
}

func namesOf(rows []output.Row, kind *kinds.Kind) []string {
	var names []string
	for _, row := range rows {
		names = append(names, gjson.GetBytes(row, kind.NameField).String())
	}
	return names
}

// Suggest adds similar names to a 404 about the object name of a kind. Other errors stay as they
// are.
func Suggest(ctx context.Context, client *orrery.Client, err error, kind *kinds.Kind, group, name string) error {
	var refusal *orrery.Error
	if !errors.As(err, &refusal) || refusal.Status != http.StatusNotFound {
		return err
	}
	names, listErr := Names(ctx, client, kind, group)
	if listErr != nil || slices.Contains(names, name) {
		return err // the second: something else about the object is missing
	}
	return exit.With(exit.NotFound, err, DidYouMean(name, names, fmt.Sprintf("orrery get %s lists them", kind.Plural)))
}

func notFound(kind *kinds.Kind, name string, names []string) error {
	err := fmt.Errorf("there is no %s %q", strings.ReplaceAll(kind.Name, "-", " "), name)
	return exit.With(exit.NotFound, err, DidYouMean(name, names, fmt.Sprintf("orrery get %s lists them", kind.Plural)))
}

// Missing returns an error if there is no object of that name, and nil if there is one or the names cannot be listed.
func Missing(ctx context.Context, client *orrery.Client, kind *kinds.Kind, name string) error {
	names, err := Names(ctx, client, kind, "")
	if err != nil || slices.Contains(names, name) {
		return nil
	}
	return notFound(kind, name, names)
}

// Delete deletes one object and returns what the server answered; nil if it answered nothing. query may be nil. If the
// name does not exist, the error names similar ones.
func Delete(ctx context.Context, client *orrery.Client, kind *kinds.Kind, name string, query url.Values) (output.Row, error) {
	var body json.RawMessage
	err := client.Call(ctx, orrery.Request{Method: http.MethodDelete, Path: kind.ObjectPath("", name), Query: query}, &body)
	if err != nil {
		return nil, Suggest(ctx, client, err, kind, "", name)
	}
	return body, nil
}

// Resolve returns the name of the object that the user calls name, which may be its title. Only kinds with titles are
// looked up.
func Resolve(ctx context.Context, client *orrery.Client, kind *kinds.Kind, name string) (string, error) {
	if kind.Title == "" {
		return name, nil
	}
	rows, err := List(ctx, client, kind, "", nil)
	if err != nil {
		return "", err
	}
	var titled []string
	for _, row := range rows {
		id := gjson.GetBytes(row, kind.NameField).String()
		switch name {
		case id:
			return id, nil
		case gjson.GetBytes(row, kind.Title).String():
			titled = append(titled, id)
		}
	}
	switch len(titled) {
	case 0:
		return "", notFound(kind, name, namesOf(rows, kind))
	case 1:
		return titled[0], nil
	}
	err = fmt.Errorf("%d %s are called %q", len(titled), kind.Plural, name)
	return "", exit.With(exit.Usage, err, "name one of "+strings.Join(titled, ", "))
}
