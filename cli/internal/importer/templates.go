package importer

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/cli/internal/importer/names"
	"github.com/orreryhq/orrery/cli/internal/importer/secret"
)

// dirs returns the names of the directories in a directory. It notes links that leave the source.
func (r *report) dirs(dir string) ([]string, error) {
	return r.pick(dir, func(name string, mode fs.FileMode) bool { return mode.IsDir() })
}

// jsons returns the paths of the JSON files in a directory. It notes links that leave the source.
func (r *report) jsons(dir string) ([]string, error) {
	found, err := r.pick(dir, func(name string, mode fs.FileMode) bool {
		return mode.IsRegular() && strings.EqualFold(path.Ext(name), ".json")
	})
	for n, name := range found {
		found[n] = path.Join(dir, name)
	}
	return found, err
}

func (r *report) pick(dir string, want func(name string, mode fs.FileMode) bool) ([]string, error) {
	entries, err := r.files.List(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		mode := e.Type()
		if mode&fs.ModeSymlink != 0 {
			info, err := r.files.Stat(path.Join(dir, e.Name()))
			if err != nil {
				r.refused(path.Join(dir, e.Name()))
				continue
			}
			mode = info.Mode()
		}
		if !strings.HasPrefix(e.Name(), ".") && want(e.Name(), mode) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// refused notes a symbolic link that is not followed.
func (r *report) refused(name string) {
	r.note("link "+name, "", nil, "The symbolic link leads out of the directory, or to nothing, so it was not followed. Copy its target here to import it.")
}

// template adds a directory of the source as a template. wanted is "group/name" or "name" in the
// source.
func (r *report) template(wanted, dir string) {
	parts := strings.Split(wanted, "/")
	for n, part := range parts {
		parts[n] = names.Segment(part)
	}
	name := strings.Join(parts, "/")
	if r.names.taken["template "+name] {
		r.note("template "+wanted, "name", wanted, "Another template has the name %s in Orrery, so this one was left out. Rename its directory.", name)
		return
	}
	r.names.taken["template "+name] = true
	if r.names.templates[wanted] = name; name != wanted {
		r.note("template "+wanted, "name", wanted, "The template is named %s: each part has 1 to 64 letters, digits, _ . and -.", name)
	}
	r.result.Templates = append(r.result.Templates, Template{Name: name, Dir: r.files.Abs(dir), Exclude: r.scan(name, dir)})
}

// templateOf returns the name in Orrery of a template that the source names.
func (r *report) templateOf(source string) string {
	if name, ok := r.names.templates[source]; ok {
		return name
	}
	return source
}

// templatesIn adds every directory dir/GROUP/NAME as the template GROUP/NAME.
func (r *report) templatesIn(dir string) error {
	groups, err := r.dirs(dir)
	if err != nil {
		return err
	}
	for _, group := range groups {
		names, err := r.dirs(path.Join(dir, group))
		if err != nil {
			return err
		}
		for _, name := range names {
			r.template(group+"/"+name, path.Join(dir, group, name))
		}
	}
	return nil
}

// scan returns the paths of a template that must not be uploaded. It notes them, and files with
// secrets.
func (r *report) scan(template, dir string) []string {
	var out []string
	exclude := func(file, why string) {
		out = append(out, file)
		r.note("template "+template, file, nil, "%s", why)
	}
	_ = fs.WalkDir(r.files.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		file := strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")
		if err != nil {
			exclude(file, "It cannot be read, so it is not uploaded: "+err.Error())
			return nil
		}
		if r.walked++; r.walked > maxWalked {
			r.note("templates", "", nil, "There are more than %d files. From the template %s on, links and secrets in files were not looked for.", maxWalked, template)
			return fs.SkipAll
		}
		switch mode := d.Type(); {
		case mode&fs.ModeSymlink != 0:
			if _, err := r.files.Stat(name); err != nil {
				exclude(file, "The symbolic link leads out of the directory, or to nothing, so it is not uploaded.")
			}
		case !mode.IsRegular() && !mode.IsDir():
			exclude(file, "It is not a regular file, so it is not uploaded.")
		case mode.IsRegular() && isSettings(d.Name()):
			r.scanSettings(template, file, name)
		}
		return nil
	})
	return out
}

// isSettings reports whether a file may have settings of a server.
func isSettings(name string) bool {
	return name == "forwarding.secret" || slices.Contains([]string{".properties", ".yml", ".yaml", ".toml", ".conf", ".cfg", ".ini", ".env"}, path.Ext(name))
}

// scanSettings notes the secrets in a file of a template. It reads only the beginning of a large file.
func (r *report) scanSettings(template, file, name string) {
	const most = 256 << 10
	f, err := r.files.FS().Open(name)
	if err != nil {
		return // the upload reports it
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return // the upload reports it
	}
	keys := secret.In(text)
	if path.Base(file) == "forwarding.secret" && len(text) > 0 {
		keys = []string{"all of it"}
	}
	if len(keys) > 0 {
		r.secretNote(template, file, keys)
	}
}

// maxWalked bounds the files of all templates that are looked at.
const maxWalked = 500_000

// static makes a group static. The directories are its data, in order: the first becomes that of the
// instance GROUP-1, and so on. If the group names its instances, each directory keeps its own name.
func (r *report) static(g *group, dirs []string, names ...string) {
	g.set("static", true)
	for n, dir := range dirs {
		instance := g.name + "-" + strconv.Itoa(n+1)
		if len(names) > 0 {
			instance = path.Base(dir)
			if !slices.Contains(names, instance) {
				r.note(g.object, "data "+instance, nil, "staticInstanceNames does not have this name: add it to start the instance with its data.")
			}
		}
		r.result.Static = append(r.result.Static, StaticData{Group: g.name, Instance: instance, Dir: r.files.Abs(dir)})
		if base := path.Base(dir); !strings.EqualFold(base, instance) && len(dirs) > 1 {
			r.note(g.object, "data "+base, nil, "Its data becomes that of %s: the instances of a group are numbered from 1 without gaps.", instance)
		}
	}
	if len(dirs) == 0 {
		r.note(g.object, "data", nil, "No data of this static group was found here. It may be on another machine: place it by hand before the first start.")
	}
}
