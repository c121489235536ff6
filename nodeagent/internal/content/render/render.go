// Package render generates the text of configuration files: it merges layers, replaces
// placeholders and applies patches.
//
// Invariants:
//   - It is pure: it has no I/O, clock or randomness.
//   - It never panics, and limits time and memory for any input: size, depth, number of values
//     (with aliases expanded) and steps of pattern matching.
//   - Its output for a known format can be parsed again.
//   - A file without changes keeps its bytes.
//
// An error has the Kind Invalid and names the file. A rule that had no effect gives a note.
package render

import (
	"path"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

const (
	// MaxText is the maximum size of a file with placeholders, in bytes.
	MaxText = 16 << 20
	// MaxStructured is the maximum size of a file that is merged or patched by structure, in bytes.
	MaxStructured = 4 << 20
	// maxDepth is the maximum nesting of values.
	maxDepth = 100
	// maxValues is the maximum number of values in a file, with aliases expanded.
	maxValues = 300_000
)

// Format is a file format with a known structure.
type Format string

const (
	FormatNone       Format = "" // text without a known structure
	FormatYAML       Format = "YAML"
	FormatJSON       Format = "JSON"
	FormatTOML       Format = "TOML"
	FormatProperties Format = "properties"
)

// FormatOf returns the format of a file by its name.
func FormatOf(name string) Format {
	switch strings.ToLower(path.Ext(name)) {
	case ".yml", ".yaml":
		return FormatYAML
	case ".json":
		return FormatJSON
	case ".toml":
		return FormatTOML
	case ".properties":
		return FormatProperties
	}
	return FormatNone
}

// invalidFile returns an error of Kind Invalid that begins with the file's name.
func invalidFile(name, format string, args ...any) error {
	return errs.Wrap("render", errs.New(errs.Invalid, name+": "+format, args...))
}
