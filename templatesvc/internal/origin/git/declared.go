package git

import (
	"encoding/json"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"
	"go.yaml.in/yaml/v3"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// group reads a declared group from groups/<name>.yaml, .yml or .json. One that
// cannot be read keeps all of the repository from being applied: half of what somebody
// wrote is not what he wants.
func (w *walk) group(full, name string, e object.TreeEntry) error {
	ending := path.Ext(name)
	if !slices.Contains([]string{".yaml", ".yml", ".json"}, ending) || !e.Mode.IsFile() {
		return nil
	}
	group := fleet.GroupName(strings.TrimSuffix(name, ending))
	if err := group.Validate(); err != nil {
		return errs.New(errs.Invalid, "%s: %s", full, errs.MessageOf(err))
	}
	if slices.ContainsFunc(w.groups, func(g fleet.DeclaredGroup) bool { return g.Group == group }) {
		return errs.New(errs.Invalid, "%s declares the group %s a second time: keep one file", full, group)
	}
	if len(w.groups) >= fleet.MaxDeclaredGroups {
		return errs.New(errs.TooLarge, "more than %d groups are declared: make several sources of them", fleet.MaxDeclaredGroups)
	}
	blob, err := object.GetBlob(w.objects, e.Hash)
	if err != nil {
		return broken(err)
	}
	if blob.Size > fleet.MaxDeclaredBytes {
		return errs.New(errs.TooLarge, "%s is larger than %d KiB", full, fleet.MaxDeclaredBytes>>10)
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
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil { // JSON is YAML too
		return errs.New(errs.Invalid, "%s cannot be read: %v", full, err)
	}
	spec, err := json.Marshal(fields)
	if err != nil || fields == nil {
		return errs.New(errs.Invalid, "%s cannot be read: it must be fields and their values, as of a group in /api/v1", full)
	}
	w.groups = append(w.groups, fleet.DeclaredGroup{Group: group, Declaration: fleet.Declaration{Spec: spec, File: full}})
	return nil
}
