package resource

import (
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// FileChange is a file that differs between two template versions.
type FileChange struct {
	Path    string             `json:"path"`
	Change  content.ChangeKind `json:"change"`
	OldHash string             `json:"oldHash"`
	NewHash string             `json:"newHash"`
	OldSize int64              `json:"oldSize"`
	NewSize int64              `json:"newSize"`
}

// FileChangesOf converts changes for an answer. The result is never nil.
func FileChangesOf(changes []content.FileChange) []FileChange {
	out := make([]FileChange, 0, len(changes))
	for _, c := range changes {
		f := FileChange{Path: c.Path, Change: c.Change}
		if c.Old != nil {
			f.OldHash, f.OldSize = c.Old.SHA256, c.Old.Size
		}
		if c.New != nil {
			f.NewHash, f.NewSize = c.New.SHA256, c.New.Size
		}
		out = append(out, f)
	}
	return out
}
