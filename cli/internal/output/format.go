// Package output prints objects of the API as tables and in the formats for programs.
package output

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/tidwall/gjson"
	"go.yaml.in/yaml/v4"
)

// Formats lists what -o accepts, for help and completion.
var Formats = []string{"table", "wide", "json", "yaml", "name", "csv", "jsonpath="}

// Format is how objects are printed.
type Format struct {
	// Name is one of Formats, without "=".
	Name     string
	template []part
}

// ParseFormat parses the value of -o. The empty value is table.
func ParseFormat(value string) (Format, error) {
	switch value {
	case "":
		return Format{Name: "table"}, nil
	case "table", "wide", "json", "yaml", "name", "csv":
		return Format{Name: value}, nil
	}
	text, ok := strings.CutPrefix(value, "jsonpath=")
	if !ok {
		return Format{}, fmt.Errorf("-o %s is not known; the formats are table, wide, json, yaml, name, csv and jsonpath=TEMPLATE", value)
	}
	template, err := parseTemplate(text)
	if err != nil {
		return Format{}, fmt.Errorf("-o jsonpath: %w; an example is jsonpath='{.items[*].id}'", err)
	}
	return Format{Name: "jsonpath", template: template}, nil
}

// ForPeople reports whether the format is a table.
func (f Format) ForPeople() bool { return f.Name == "table" || f.Name == "wide" }

// Row is one object as the API returned it.
type Row = json.RawMessage

// Column is a column of a table.
type Column struct {
	// Header is the heading, in capitals.
	Header string
	// Path is the path of the field in gjson's syntax.
	Path string
	// Text returns the text of a cell. If it is nil the field itself is shown.
	Text func(field gjson.Result) string
	// Wide columns are shown with -o wide only.
	Wide bool
	// State columns are coloured by the state they show.
	State bool
}

// Printer prints objects.
type Printer struct {
	Out    io.Writer
	Format Format
	Style  Style
	// Width is the number of columns of the terminal; 0 if the output is not a terminal.
	Width int
	// NoHeaders omits the headings of tables.
	NoHeaders bool
}

// List prints rows. name is the path of the field that -o name prints.
func (p Printer) List(columns []Column, name string, rows []Row) error {
	return p.Each(columns, name, Sequence(rows))
}

// Sequence returns the sequence of some rows, which has no error.
func Sequence(rows []Row) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for _, row := range rows {
			if !yield(row, nil) {
				return
			}
		}
	}
}

// Each prints the rows of a sequence like List. It keeps of a row only what it prints. An error in the sequence is returned,
// and nothing is printed then.
func (p Printer) Each(columns []Column, name string, rows iter.Seq2[Row, error]) error {
	switch p.Format.Name {
	case "json", "yaml", "jsonpath":
		all, err := array(rows)
		if err != nil {
			return err
		}
		switch p.Format.Name {
		case "json":
			return p.json(all)
		case "yaml":
			return p.yaml(all)
		}
		return p.jsonpath([]byte(`{"items":` + string(all) + `}`))
	case "name":
		return p.names(name, rows)
	case "csv":
		return p.csv(columns, rows)
	}
	return p.table(columns, rows)
}

// Object prints a single row: an object in the formats for programs, otherwise a table of one line. Without
// columns -o csv has those fields that are not objects or lists.
func (p Printer) Object(columns []Column, name string, row Row) error {
	switch p.Format.Name {
	case "json":
		return p.json(row)
	case "yaml":
		return p.yaml(row)
	case "jsonpath":
		return p.jsonpath(row)
	}
	return p.List(columns, name, []Row{row})
}

func array(rows iter.Seq2[Row, error]) ([]byte, error) {
	b := bytes.NewBufferString("[")
	for row, err := range rows {
		if err != nil {
			return nil, err
		}
		if b.Len() > len("[") {
			b.WriteByte(',')
		}
		b.Write(row)
	}
	b.WriteByte(']')
	return b.Bytes(), nil
}

func (p Printer) json(value []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, value, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := p.Out.Write(b.Bytes())
	return err
}

// yaml keeps the order of the fields, because JSON is YAML.
func (p Printer) yaml(value []byte) error {
	var node yaml.Node
	if err := yaml.Unmarshal(value, &node); err != nil {
		return err
	}
	blockStyle(&node)
	encoder := yaml.NewEncoder(p.Out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&node); err != nil {
		return err
	}
	return encoder.Close()
}

// blockStyle removes the braces and the quotes that need not be there.
func blockStyle(node *yaml.Node) {
	node.Style &^= yaml.FlowStyle
	if node.Kind == yaml.ScalarNode && node.Tag == "!!str" {
		node.Style = 0 // the encoder quotes what would be another type
		if strings.Contains(node.Value, "\n") {
			node.Style = yaml.LiteralStyle
		}
	}
	if len(node.Content) == 0 && node.Kind != yaml.ScalarNode {
		node.Style = yaml.FlowStyle // [] and {}
	}
	for _, child := range node.Content {
		blockStyle(child)
	}
}

func (p Printer) names(name string, rows iter.Seq2[Row, error]) error {
	var b bytes.Buffer
	for row, err := range rows {
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, gjson.GetBytes(row, name).String())
	}
	_, err := p.Out.Write(b.Bytes())
	return err
}

func (p Printer) csv(columns []Column, rows iter.Seq2[Row, error]) error {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	var record []string
	heading := func() {
		record = headers(columns)
		if !p.NoHeaders {
			_ = w.Write(record) // a buffer takes all
		}
	}
	if columns != nil {
		heading()
	}
	for row, err := range rows {
		if err != nil {
			return err
		}
		if columns == nil {
			columns = fieldsOf(row)
			heading()
		}
		for i, c := range columns {
			record[i] = plain(gjson.GetBytes(row, c.Path))
		}
		_ = w.Write(record)
	}
	w.Flush()
	_, err := p.Out.Write(b.Bytes())
	return err
}
