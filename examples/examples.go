// Package examples holds what a newcomer tries Orrery with: a small server, templates
// and groups. The template of the demonstration is embedded, so that a single binary
// can bring it along. It decides nothing and writes nothing.
package examples

import (
	"embed"
	"io/fs"
)

// DemoTemplateName is the "<group>/<name>" under which DemoTemplate belongs into a
// directory of templates; groups/lobby.json asks for it by that name.
const DemoTemplateName = "demo/arena"

//go:embed templates/demo/arena
var embedded embed.FS

// DemoTemplate is the file tree of the template for the arena server: the files of one
// instance, with placeholders. server.properties belongs into fileModifications.
func DemoTemplate() fs.FS {
	// Sub fails for a malformed path only, and this one is a constant.
	tree, _ := fs.Sub(embedded, "templates/"+DemoTemplateName)
	return tree
}
