// Package output prints objects of the API as tables and in the formats for programs.
package output

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
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
	switch p.Format.Name {
	case "json":
		return p.json(array(rows))
	case "yaml":
		return p.yaml(array(rows))
	case "jsonpath":
		return p.jsonpath([]byte(`{"items":` + string(array(rows)) + `}`))
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

func array(rows []Row) []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, row := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(row)
	}
	b.WriteByte(']')
	return b.Bytes()
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

func (p Printer) names(name string, rows []Row) error {
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintln(&b, gjson.GetBytes(row, name).String())
	}
	_, err := io.WriteString(p.Out, b.String())
	return err
}

func (p Printer) csv(columns []Column, rows []Row) error {
	if columns == nil && len(rows) > 0 {
		columns = fieldsOf(rows[0])
	}
	w := csv.NewWriter(p.Out)
	var record []string
	for _, c := range columns {
		record = append(record, c.Header)
	}
	if !p.NoHeaders {
		_ = w.Write(record) // Error below returns it
	}
	for _, row := range rows {
		for i, c := range columns {
			record[i] = plain(gjson.GetBytes(row, c.Path))
		}
		_ = w.Write(record)
	}
	w.Flush()
	return w.Error()
}
