package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unsafe"

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

const (
	// defaultPageSize is that of kinds without one.
	defaultPageSize = 500
	// rowRoom is the room in bytes for one row, before a page is read. Most rows are shorter.
	rowRoom = 1 << 10
)

// List returns all objects of a kind. query may be nil. The rows have every field that the server
// sent, also those that this version does not know.
func List(ctx context.Context, client *orrery.Client, kind *kinds.Kind, group string, query url.Values) ([]output.Row, error) {
	return Collect(Each(ctx, client, kind, group, query))
}

// Collect returns copies of the rows of a sequence, or its error.
func Collect(sequence iter.Seq2[output.Row, error]) ([]output.Row, error) {
	var rows []output.Row
	for row, err := range sequence {
		if err != nil {
			return nil, err
		}
		rows = append(rows, bytes.Clone(row))
	}
	return rows, nil
}

// Each is the sequence of the rows that List returns. It reads all pages into the same memory, so that a row is valid until
// the next one is asked for. An error ends the sequence. A server that sends the same page again, which would never end,
// is an error.
func Each(ctx context.Context, client *orrery.Client, kind *kinds.Kind, group string, query url.Values) iter.Seq2[output.Row, error] {
	return func(yield func(output.Row, error) bool) {
		size := cmp.Or(kind.PageSize, defaultPageSize)
		var body bytes.Buffer
		body.Grow(size * rowRoom)
		var sum maphash.Hash // of the rows of a page
		for page, seen := 1, 0; ; page++ {
			q := url.Values{"page": {strconv.Itoa(page)}, "pageSize": {strconv.Itoa(size)}}
			maps.Copy(q, query)
			if _, err := read(ctx, client, &body, kind.ListPath(group), q); err != nil {
				yield(nil, err)
				return
			}
			rows := rowsOf(body.Bytes(), kind)
			previous := sum.Sum64()
			sum.Reset()
			for _, row := range rows {
				_, _ = sum.Write(row)
			}
			if len(rows) > 0 && page > 1 && sum.Sum64() == previous {
				yield(nil, fmt.Errorf("%s sent page %d of the %s twice, so that the list has no end", client.Address(), page-1, kind.Plural))
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
			seen += len(rows)
			total := gjson.Get(view(body.Bytes()), "total")
			if len(rows) == 0 || !total.Exists() || int64(seen) >= total.Int() {
				return
			}
		}
	}
}

// read reads the JSON of a path into body and returns the headers of the answer.
func read(ctx context.Context, client *orrery.Client, body *bytes.Buffer, path string, query url.Values) (http.Header, error) {
	response, err := client.Do(ctx, orrery.Request{Method: http.MethodGet, Path: path, Query: query})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body.Reset()
	if response.ContentLength > 0 {
		body.Grow(int(response.ContentLength) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(response.Body); err != nil {
		return nil, fmt.Errorf("the answer of %s was cut: %w", client.Address(), err)
	}
	if !gjson.ValidBytes(body.Bytes()) {
		return nil, fmt.Errorf("the answer of %s is not JSON; is that an Orrery gateway?", client.Address())
	}
	return response.Header, nil
}

// rowsOf returns the objects of a list. They share the memory of body.
func rowsOf(body []byte, kind *kinds.Kind) []output.Row {
	data := gjson.Parse(view(body))
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

// view returns b as a string without a copy: gjson copies what it is given as bytes. The string must not be used after b
// has changed.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

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
	var body bytes.Buffer
	header, err := read(ctx, client, &body, kind.ObjectPath(group, name), nil)
	if err != nil {
		return nil, "", Suggest(ctx, client, err, kind, group, name)
	}
	return body.Bytes(), header.Get("ETag"), nil
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
	var names []string
	for row, err := range Each(ctx, client, kind, group, nil) {
		if err != nil {
			return nil, err
		}
		names = append(names, gjson.GetBytes(row, kind.NameField).String())
	}
	return names, nil
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
