// Package source reads the files of the systems that are imported. It bounds what it reads, follows no
// symbolic link out of a directory, and names the place of an error in a file.
package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/lazyregexp"
	"go.yaml.in/yaml/v4"
)

const (
	// MaxConfig bounds one configuration file.
	MaxConfig = 1 << 20
	// maxNames bounds the entries that are read of one directory.
	maxNames = 100_000
)

// Dir is a directory that is read. A symbolic link that leaves it is not followed.
type Dir struct {
	root *os.Root
	// Path is absolute.
	Path string
}

// Open opens a directory.
func Open(dir string) (*Dir, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("import from a directory: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("import from a directory: %w", err)
	}
	return &Dir{root: root, Path: dir}, nil
}

// Close closes the directory.
func (d *Dir) Close() { _ = d.root.Close() } // it was only read

// FS returns the files of the directory.
func (d *Dir) FS() fs.FS { return d.root.FS() }

// Stat returns what a name is, and follows a symbolic link that does not leave the directory.
func (d *Dir) Stat(name string) (fs.FileInfo, error) { return d.root.Stat(name) }

// Abs returns the absolute path of a file.
func (d *Dir) Abs(name string) string { return filepath.Join(d.Path, filepath.FromSlash(name)) }

// IsDir reports whether a directory exists.
func (d *Dir) IsDir(name string) bool {
	info, err := d.root.Stat(name)
	return err == nil && info.IsDir()
}

// Exists reports whether a regular file exists.
func (d *Dir) Exists(name string) bool {
	info, err := d.root.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// Read returns the text of a configuration file.
func (d *Dir) Read(name string) ([]byte, error) {
	file, err := d.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.Abs(name), err)
	}
	defer file.Close()
	return ReadConfig(file, d.Abs(name))
}

// ReadConfig reads an opened configuration file, if it is a regular file of at most MaxConfig bytes.
func ReadConfig(file *os.File, name string) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: it is not a regular file", name)
	}
	text, err := io.ReadAll(io.LimitReader(file, MaxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > MaxConfig {
		return nil, fmt.Errorf("read %s: it has more than %d bytes; split it into smaller files", name, MaxConfig)
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), nil
}

// List returns the names in a directory, sorted. A missing directory has no names.
func (d *Dir) List(dir string) ([]fs.DirEntry, error) {
	file, err := d.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.Abs(dir), err)
	}
	defer file.Close()
	entries, err := file.ReadDir(maxNames + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", d.Abs(dir), err)
	}
	if len(entries) > maxNames {
		return nil, fmt.Errorf("read %s: it has more than %d entries", d.Abs(dir), maxNames)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// DecodeJSON decodes a JSON text. Numbers are json.Number. An error names line and column.
func DecodeJSON(name string, text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var out any
	err := decoder.Decode(&out)
	offset := decoder.InputOffset()
	if err == nil {
		if _, more := decoder.Token(); more == io.EOF {
			return out, nil
		}
		err = errors.New("there is more text after the JSON value")
	}
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		offset = max(0, syntax.Offset-1)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		offset, err = int64(len(text)), errors.New("the file ends in the middle of a JSON value")
	}
	line, column := position(text, offset)
	return nil, fmt.Errorf("%s:%d:%d: %w", name, line, column, err)
}

// position returns the line and column of an offset, from 1.
func position(text []byte, offset int64) (line, column int) {
	before := text[:min(int(offset), len(text))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

// JSON reads a JSON file.
func (d *Dir) JSON(name string) (any, error) {
	text, err := d.Read(name)
	if err != nil {
		return nil, err
	}
	return DecodeJSON(d.Abs(name), text)
}

// JSONObject reads a JSON file that has an object.
func (d *Dir) JSONObject(name string) (map[string]any, error) {
	value, err := d.JSON(name)
	if err != nil {
		return nil, err
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s:1:1: want a JSON object", d.Abs(name))
	}
	return fields, nil
}

// YAMLObject reads a YAML file that has an object. An error names the line.
func (d *Dir) YAMLObject(name string) (map[string]any, error) {
	text, err := d.Read(name)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := yaml.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", d.Abs(name), err)
	}
	return plain(out).(map[string]any), nil
}

// plain returns a value of YAML with the types of JSON.
func plain(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = plain(item)
		}
	case map[any]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[fmt.Sprint(key)] = plain(item)
		}
		return out
	case []any:
		for n, item := range v {
			v[n] = plain(item)
		}
	}
	return value
}

// ReadFile reads a configuration file anywhere.
func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadConfig(f, name)
}

// DecodeAll decodes the records of a JSON file: a list, a page of the API, one record, or one record a
// line.
func DecodeAll(name string, text []byte) ([]any, error) {
	if lines := bytes.Split(bytes.TrimSpace(text), []byte("\n")); len(lines) > 1 && json.Valid(lines[0]) && json.Valid(lines[1]) {
		var out []any
		for n, line := range lines {
			value, err := DecodeJSON(fmt.Sprintf("%s: record %d", name, n+1), line)
			if err != nil {
				return nil, err
			}
			out = append(out, value)
		}
		return out, nil
	}
	value, err := DecodeJSON(name, text)
	if err != nil {
		return nil, err
	}
	if page, ok := value.(map[string]any); ok && page["data"] != nil {
		value = page["data"]
	}
	if list, ok := value.([]any); ok {
		return list, nil
	}
	return []any{value}, nil
}

var numbered = lazyregexp.New(`^(.*?)(\d+)$`)

// ByNumber compares names like survival-2 and survival-10.
func ByNumber(a, b string) int {
	x, y := numbered().FindStringSubmatch(a), numbered().FindStringSubmatch(b)
	if x == nil || y == nil || x[1] != y[1] {
		return strings.Compare(a, b)
	}
	m, _ := strconv.Atoi(x[2])
	n, _ := strconv.Atoi(y[2])
	return m - n
}
