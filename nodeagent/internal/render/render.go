// Package render makes the text of configuration files: layers merged into one,
// placeholders replaced, values patched.
//
// Invariants:
//   - It is pure: no files, no clock, no randomness. The same inputs give the same
//     bytes.
//   - It never panics and takes bounded time and memory, whatever a file holds: size,
//     depth, number of values and steps of a pattern are limited, and aliases are
//     expanded against the same limits.
//   - What it returns for a format it knows can be read as that format again.
//   - A file nothing is to be changed in keeps its bytes.
//
// What cannot be done as declared is an error of Kind Invalid whose message names the
// file; what was merely of no effect is a note.
package render

import (
	"path"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// The limits.
const (
	// MaxText is the largest file placeholders are replaced in.
	MaxText = 16 << 20
	// MaxStructured is the largest file that is merged or patched by its structure.
	MaxStructured = 4 << 20
	// maxDepth is how deep values may lie in each other.
	maxDepth = 100
	// maxValues is how many values a file may hold, its aliases expanded.
	maxValues = 300_000
)

// Format is how a file's structure is written.
type Format string

// The formats.
const (
	FormatNone       Format = "" // text without a structure known here
	FormatYAML       Format = "YAML"
	FormatJSON       Format = "JSON"
	FormatTOML       Format = "TOML"
	FormatProperties Format = "properties"
)

// FormatOf tells the format by a file's name.
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

// refuse words why a file cannot be handled.
func refuse(name, format string, args ...any) error {
	return errs.Wrap("render", errs.New(errs.Invalid, name+": "+format, args...))
}
