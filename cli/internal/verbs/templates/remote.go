package templates

import (
	"context"
	"io/fs"
	"strconv"

	"github.com/orreryhq/orrery/cli/internal/verbs/templates/filetree"
	orrery "github.com/orreryhq/orrery/sdk"
)

// filesPerPage is how many entries of a directory are read at once.
const filesPerPage = 5000

// remoteTree returns the content of a version of a template.
func remoteTree(ctx context.Context, client *orrery.Client, name, version string) (filetree.Tree, error) {
	found, pending := filetree.Tree{}, []string{""}
	for len(pending) > 0 {
		dir := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		for page := 1; ; page++ {
			entries, err := client.ListTemplateFiles(ctx, name, &orrery.ListTemplateFilesParams{Path: dir, Version: version, Page: page, PageSize: filesPerPage})
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				found[e.Path] = remoteEntry(e)
				if e.IsDirectory {
					pending = append(pending, e.Path)
				}
			}
			if len(entries) < filesPerPage {
				break
			}
		}
	}
	return found, nil
}

func remoteEntry(e orrery.TemplateFile) filetree.Entry {
	switch {
	case e.IsDirectory:
		return filetree.Entry{Kind: filetree.Directory}
	case e.Link != "":
		return filetree.Entry{Kind: filetree.Link, Target: e.Link}
	}
	mode, _ := strconv.ParseUint(e.Mode, 8, 32) // an unknown mode differs from every other
	return filetree.Entry{Kind: filetree.File, Size: e.Size, Mode: fs.FileMode(mode), SHA256: e.SHA256}
}
