package git

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"
	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
)

// group reads a declared group from groups/<name>.yaml, .yml or .json. One unreadable file
// prevents the whole repository from being applied, because half of a change may be wrong.
func (w *walk) group(full, name string, e object.TreeEntry) error {
	if !declares(name, e) {
		return nil
	}
	group := fleet.GroupName(strings.TrimSuffix(name, path.Ext(name)))
	if err := group.Validate(); err != nil {
		return errs.New(errs.Invalid, "%s: %s", full, errs.MessageOf(err))
	}
	if slices.ContainsFunc(w.groups, func(g compose.DeclaredGroup) bool { return g.Group == group }) {
		return errs.New(errs.Invalid, "%s declares the group %s a second time: keep one file", full, group)
	}
	if len(w.groups) >= compose.MaxDeclaredGroups {
		return errs.New(errs.TooLarge, "more than %d groups are declared: make several sources of them", compose.MaxDeclaredGroups)
	}
	var fields map[string]any
	if err := w.declared(full, e, &fields); err != nil {
		return err
	}
	spec, err := json.Marshal(fields)
	if err != nil || fields == nil {
		return errs.New(errs.Invalid, "%s cannot be read: it must be fields and their values, as of a group in /api/v1", full)
	}
	w.groups = append(w.groups, compose.DeclaredGroup{Group: group, Declaration: compose.Declaration{Spec: spec, File: full}})
	return nil
}

// catalog is the content of a file catalog.yaml, .yml or .json.
type catalog struct {
	Platforms map[string]struct {
		Recommended string           `yaml:"recommended"`
		Versions    []map[string]any `yaml:"versions"`
	} `yaml:"platforms"`
}

// entries reads the declared entries of the catalog. As with groups, an error prevents the
// whole repository from being applied.
func (w *walk) entries(full string, e object.TreeEntry) error {
	if !declares(full, e) {
		return nil
	}
	if w.catalog != nil {
		return errs.New(errs.Invalid, "%s declares the catalog a second time, after %s: keep one file", full, w.catalog[0].File)
	}
	var said catalog
	if err := w.declared(full, e, &said); err != nil {
		return err
	}
	w.catalog = []compose.DeclaredCatalog{}
	for _, platform := range slices.Sorted(maps.Keys(said.Platforms)) {
		one := said.Platforms[platform]
		if err := w.entry(full, compose.DeclaredCatalog{Platform: platform}, map[string]any{"recommended": one.Recommended}); err != nil {
			return err
		}
		for _, fields := range one.Versions {
			version, ok := fields["version"].(string)
			if !ok || version == "" {
				return errs.New(errs.Invalid, "%s: each version of %s must have a version, in quotes: %v is none", full, platform, fields["version"])
			}
			delete(fields, "version")
			if err := w.entry(full, compose.DeclaredCatalog{Platform: platform, Version: version}, fields); err != nil {
				return err
			}
		}
	}
	if len(w.catalog) == 0 {
		return errs.New(errs.Invalid, "%s declares no platform: add one, or remove the file", full)
	}
	return nil
}

// entry adds one declared entry of the catalog.
func (w *walk) entry(full string, d compose.DeclaredCatalog, fields map[string]any) (err error) {
	if problems := d.Validate(); len(problems) > 0 {
		return errs.New(errs.Invalid, "%s: %s", full, errs.MessageOf(problems[0]))
	}
	if slices.ContainsFunc(w.catalog, func(other compose.DeclaredCatalog) bool { return other.Name() == d.Name() }) {
		return errs.New(errs.Invalid, "%s declares %s a second time", full, d.Name())
	}
	if len(w.catalog) >= compose.MaxDeclaredCatalog {
		return errs.New(errs.TooLarge, "more than %d platforms and versions are declared: make several sources of them", compose.MaxDeclaredCatalog)
	}
	d.File = full
	if d.Spec, err = json.Marshal(fields); err != nil {
		return errs.New(errs.Invalid, "%s cannot be read: %s must be fields and their values, as in /api/v1/catalog", full, d.Name())
	}
	w.catalog = append(w.catalog, d)
	return nil
}

// declares reports whether a file may hold declarations.
func declares(name string, e object.TreeEntry) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) && e.Mode.IsFile()
}

// declared decodes a file of declarations into a value.
func (w *walk) declared(full string, e object.TreeEntry, into any) error {
	blob, err := object.GetBlob(w.objects, e.Hash)
	if err != nil {
		return broken(err)
	}
	if blob.Size > compose.MaxDeclaredBytes {
		return errs.New(errs.TooLarge, "%s is larger than %d KiB", full, compose.MaxDeclaredBytes>>10)
	}
	r, err := blob.Reader()
	if err != nil {
		return broken(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return broken(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text)) // JSON is valid YAML
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return errs.New(errs.Invalid, "%s cannot be read: %s", full, inOneLine(err))
	}
	return nil
}

// inOneLine returns the message of a YAML error in one line.
func inOneLine(err error) string {
	var several *yaml.TypeError
	if errors.As(err, &several) {
		return strings.Join(several.Errors, "; ")
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
