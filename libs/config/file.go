package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/viper"

	"github.com/orreryhq/orrery/libs/errs"
)

// file adds the values of a YAML, JSON or TOML file.
func (l *layers) file(path string) []error {
	content, err := readFile(path)
	if err != nil {
		return []error{err}
	}
	f := fileLayer{layers: l, source: "file " + path, seen: map[string]bool{}}
	f.section("", content)
	return f.problems
}

// readFile decodes a file with viper's codecs, which keep the case of keys.
func readFile(path string) (map[string]any, error) {
	format := strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), ".")
	decoder, err := viper.NewCodecRegistry().Decoder(format)
	if err != nil || !slices.Contains([]string{"yaml", "yml", "json", "toml"}, format) {
		return nil, errs.New(errs.Invalid, "the configuration file %s must end in .yaml, .yml, .json or .toml", path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, errs.New(errs.Invalid, "the configuration file cannot be read: %v", err)
	}
	content := map[string]any{}
	if err := decoder.Decode(b, content); err != nil {
		return nil, errs.New(errs.Invalid, "the configuration file %s is not valid %s: %v", path, strings.ToUpper(format), err)
	}
	return content, nil
}

// fileLayer walks a decoded file according to the schema.
type fileLayer struct {
	*layers
	source   string
	seen     map[string]bool
	problems []error
}

func (f *fileLayer) complain(key, format string, args ...any) {
	f.problems = append(f.problems, problem(key, "%s (%s)", fmt.Sprintf(format, args...), f.source))
}

func (f *fileLayer) section(prefix string, content map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(content)) {
		key, raw := prefix+name, content[name]
		if s, ok := f.schema.find(key); ok {
			f.setting(s, raw)
			continue
		}
		if !f.schema.isSection(key) {
			f.complain(key, "is not a known key%s", didYouMean(key, f.schema.keys(), ""))
			continue
		}
		switch inner := raw.(type) {
		case map[string]any:
			f.section(key+".", inner)
		case nil: // a section whose keys are all commented out
		default:
			f.complain(key, "must be a section with keys, not %s", describe(raw))
		}
	}
}

func (f *fileLayer) setting(s setting, raw any) {
	switch value, ok := s.kind.convert(raw); {
	case raw == nil: // "key:" without a value: not set
	case f.seen[s.key]:
		f.complain(s.key, "is in the file twice")
	case !ok && s.secret:
		f.complain(s.key, "must be %s; quote it", s.kind.wants())
	case !ok:
		f.complain(s.key, "must be %s, not %s%s", s.kind.wants(), describe(raw), quoteHint(s.kind, raw))
	default:
		f.seen[s.key] = true
		f.put(s.key, value, f.source)
	}
}

// quoteHint suggests quotes for a string that the file's format reads as another type.
func quoteHint(k kind, raw any) string {
	_, isMap := raw.(map[string]any)
	_, isList := raw.([]any)
	if (k == text && !isMap && !isList) || (k == table && isMap) || (k == list && isList) {
		return ": put it in quotes"
	}
	return ""
}

// describe formats a decoded value for an error.
func describe(raw any) string {
	switch raw := raw.(type) {
	case string:
		return fmt.Sprintf("%q", raw)
	case map[string]any:
		return fmt.Sprintf("the section %v", raw)
	case []any:
		return fmt.Sprintf("the list %v", raw)
	}
	return fmt.Sprint(raw)
}
