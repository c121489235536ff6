// Package groupfields holds the fields of a group that both dialects of the API have under the same
// names.
package groupfields

import (
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
)

// Files are the fields that say how the files of an instance are made from its templates. A nil
// field was not given; a read sets every field.
type Files struct {
	// AutoLayers puts the templates base, base-<platform> and the group's own below the others.
	AutoLayers *bool `json:"autoLayers,omitempty"`
	// MergeFiles are globs of the files that are merged layer by layer. An empty list merges none.
	MergeFiles *[]string `json:"mergeFiles,omitempty"`
	// ConfigRules are patches. They are applied after configPatches.
	ConfigRules *[]configfile.ConfigPatch `json:"configRules,omitempty"`
}

// Apply sets the given fields in a spec.
func (f Files) Apply(s *fleet.GroupSpec) {
	if f.AutoLayers != nil {
		s.AutoLayers = *f.AutoLayers
	}
	if f.MergeFiles != nil {
		s.MergeFiles = append([]string(nil), *f.MergeFiles...)
	}
	if f.ConfigRules != nil {
		s.ConfigRules = append([]configfile.ConfigPatch(nil), *f.ConfigRules...)
		for i, r := range s.ConfigRules {
			s.ConfigRules[i].Op = configfile.PatchOp(strings.ToUpper(string(r.Op)))
		}
	}
}

// FilesOf returns all of these fields of a spec.
func FilesOf(s fleet.GroupSpec) Files {
	return Files{
		AutoLayers:  &s.AutoLayers,
		MergeFiles:  new(append([]string{}, s.MergeFiles...)),
		ConfigRules: new(append([]configfile.ConfigPatch{}, s.ConfigRules...)),
	}
}
