// Package examples contains material for trying Orrery: a small server, templates and
// groups. It embeds the demo's template, so that a single binary can contain it.
package examples

import (
	"embed"
	"io/fs"
)

// DemoTemplateName is the name, "<group>/<name>", of DemoTemplate in a template directory.
// groups/lobby.json refers to it.
const DemoTemplateName = "demo/arena"

//go:embed templates/demo/arena
var embedded embed.FS

// DemoTemplate returns the files of the arena server's template, with placeholders. Name
// server.properties in the group's fileModifications.
func DemoTemplate() fs.FS {
	// Sub fails only for a malformed path, and this one is a constant.
	tree, _ := fs.Sub(embedded, "templates/"+DemoTemplateName)
	return tree
}
