// Package dashboard holds the files of the web page that operators use. A gateway serves them. The
// page has no build step: the browser runs the files as they are here.
package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed web
var web embed.FS

// File is one file of the page.
type File struct {
	// Name is the path of the file among the others, such as "core/dom.js".
	Name string
	// MediaType is the value of the header Content-Type.
	MediaType string
	Content   []byte
}

// Index is the name of the file that a browser opens first. It names the others below Prefix.
const (
	Index  = "index.html"
	Prefix = "/ui/"
)

// Files returns all files of the page, and a version that is another one when any of them differs.
// The index names the other files below Prefix and the version, so a browser may keep them for ever.
func Files() (files []File, version string, err error) {
	sum := sha256.New()
	err = fs.WalkDir(web, "web", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := web.ReadFile(path)
		fmt.Fprintln(sum, path, len(content))
		sum.Write(content)
		files = append(files, File{Name: strings.TrimPrefix(path, "web/"), MediaType: mediaType(path), Content: content})
		return err
	})
	version = hex.EncodeToString(sum.Sum(nil)[:8])
	for i, f := range files {
		if f.Name == Index {
			files[i].Content = bytes.ReplaceAll(f.Content, []byte(Prefix), []byte(Prefix+version+"/"))
		}
	}
	return files, version, err
}

// mediaType does not ask the host's table of types, which may lack these.
func mediaType(name string) string {
	switch name[strings.LastIndexByte(name, '.')+1:] {
	case "html":
		return "text/html; charset=utf-8"
	case "js":
		return "text/javascript; charset=utf-8"
	case "css":
		return "text/css; charset=utf-8"
	case "svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}
