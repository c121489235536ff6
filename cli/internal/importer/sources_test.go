package importer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/orreryhq/orrery/cli/internal/importer/names"
)

// tree writes files below a new directory. A name that ends with / is a directory.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestBadInput(t *testing.T) {
	huge := `{"name":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, c := range []struct {
		name   string
		system func(string) (*Result, error)
		files  map[string]string
		want   string
	}{
		{"universe: nothing found", Universe, map[string]string{"a.txt": ""}, "want configuration/*.json or templates/GROUP/NAME"},
		{"prexorcloud: nothing found", PrexorCloud, map[string]string{"a.txt": ""}, "want groups.json"},
		{"cloudnet: nothing found", CloudNet, map[string]string{"a.txt": ""}, "want local/tasks/*.json or local/templates/PREFIX/NAME"},
		{"pterodactyl: nothing found", Pterodactyl, map[string]string{"a.txt": ""}, "want a JSON file with what GET /api/application/servers"},
		{"the file, line and column of broken JSON", Universe, map[string]string{"configuration/a.json": "{\n  \"name\": \"a\",\n  oops\n}"}, "configuration/a.json:3:3: invalid character 'o'"},
		{"JSON that ends too early", CloudNet, map[string]string{"local/tasks/a.json": "{\n \"name\": "}, "local/tasks/a.json:2:10: the file ends"},
		{"an empty file", Universe, map[string]string{"configuration/a.json": ""}, "configuration/a.json:1:1: the file ends"},
		{"text after the JSON", Universe, map[string]string{"configuration/a.json": "{}\n{}"}, "configuration/a.json:1:3: there is more text"},
		{"a list in place of an object", Universe, map[string]string{"configuration/a.json": "[]"}, "configuration/a.json:1:1: want a JSON object"},
		{"the file and line of broken YAML", PrexorCloud, map[string]string{"config/controller.yml": "a: 1\nb: [\n"}, "config/controller.yml: yaml: line "},
		{"a huge file", Universe, map[string]string{"configuration/a.json": huge}, "it has more than 1048576 bytes"},
		{"a task without a name", CloudNet, map[string]string{"local/tasks/a.json": "{}"}, "want an object with a name"},
		{"a record without a name", PrexorCloud, map[string]string{"groups.json": `[{"platform":"PAPER"}]`}, "lacks name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.system(tree(t, c.files))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestTheArgumentMustBeADirectory(t *testing.T) {
	file := filepath.Join(tree(t, map[string]string{"a": ""}), "a")
	for _, system := range []func(string) (*Result, error){Universe, PrexorCloud, CloudNet, Pterodactyl} {
		if _, err := system(file); err == nil || !strings.Contains(err.Error(), "is not a directory") {
			t.Errorf("got %v for a file", err)
		}
		if _, err := system(file + "-missing"); err == nil {
			t.Error("no error for a directory that does not exist")
		}
	}
}

// find returns the note of an object and field.
func find(r *Result, object, field string) (Note, bool) {
	n := slices.IndexFunc(r.Notes, func(n Note) bool { return n.Object == object && n.Field == field })
	if n < 0 {
		return Note{}, false
	}
	return r.Notes[n], true
}

func TestLinksOutOfTheDirectoryAreRefused(t *testing.T) {
	outside := tree(t, map[string]string{"secret/server.properties": "rcon.password=hunter2", "config.json": `{"name":"outside"}`})
	dir := tree(t, map[string]string{
		"configuration/a.json": `{"name":"a"}`, "templates/games/lobby/inside.txt": "x", "static/": "",
	})
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link(filepath.Join(outside, "secret"), "templates/games/stolen")
	link(filepath.Join(outside, "secret"), "templates/games/lobby/world")
	link("inside.txt", "templates/games/lobby/alias.txt")
	link("../../../../../etc", "templates/games/lobby/etc")
	link(filepath.Join(outside, "config.json"), "configuration/b.json")
	link(filepath.Join(outside, "secret"), "static/a")
	if err := syscall.Mkfifo(filepath.Join(dir, "templates/games/lobby/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Universe(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Templates) != 1 || !slices.Equal(r.Templates[0].Exclude, []string{"etc", "pipe", "world"}) {
		t.Errorf("got the templates %+v, want games/lobby without etc, pipe and world", r.Templates)
	}
	if len(r.Documents) != 1 {
		t.Errorf("got %d documents, want only a", len(r.Documents))
	}
	for _, object := range []string{"link templates/games/stolen", "link configuration/b.json"} {
		if _, ok := find(r, object, ""); !ok {
			t.Errorf("no note says that %s was refused", object)
		}
	}
}

func TestStaticDataBehindALinkIsNotTaken(t *testing.T) {
	outside := t.TempDir()
	dir := tree(t, map[string]string{"configuration/a.json": `{"name":"a","static":true}`, "static/": ""})
	if err := os.Symlink(outside, filepath.Join(dir, "static/a")); err != nil {
		t.Fatal(err)
	}
	r, err := Universe(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Static) != 0 {
		t.Errorf("got the data %+v", r.Static)
	}
	if _, ok := find(r, "configuration a", "data"); !ok {
		t.Error("no note says that the data is missing")
	}
}

func TestANameThatIsAPathReachesNothing(t *testing.T) {
	outer := tree(t, map[string]string{"outside/world/": "", "in/configuration/a.json": `{"name":"../../outside","static":true}`, "in/static/": ""})
	r, err := Universe(filepath.Join(outer, "in"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Static) != 0 || r.Documents[0].Name != "outside" {
		t.Errorf("got %+v and the group %s", r.Static, r.Documents[0].Name)
	}
}

func TestManyTemplates(t *testing.T) {
	dir := t.TempDir()
	const count = 10_000
	for n := range count {
		if err := os.MkdirAll(filepath.Join(dir, "templates/games", fmt.Sprintf("t%05d", n)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Universe(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Templates) != count || r.Templates[count-1].Name != "games/t09999" {
		t.Errorf("got %d templates", len(r.Templates))
	}
}

func TestNamesAreMadeValidAndUnique(t *testing.T) {
	r := newReport(nil)
	for _, c := range [][2]string{
		{"lobby", "lobby"},
		{"Lobby", "lobby-2"},
		{"lobby", "lobby-3"},
		{"My Server!", "my-server"},
		{"-x-", "x"},
		{"Ünïcode", "n-code"},
		{"!!!", "group"},
		{"", "group-2"},
		{strings.Repeat("a", 40), strings.Repeat("a", 32)},
		{strings.Repeat("a", 33), strings.Repeat("a", 30) + "-2"},
	} {
		name := r.groupName("object "+c[0]+c[1], c[0])
		if name != c[1] {
			t.Errorf("%q became %q, want %q", c[0], name, c[1])
		}
		if _, ok := find(&r.result, "object "+c[0]+c[1], "name"); ok != (c[0] != c[1]) {
			t.Errorf("a note of %q: %v", c[0], ok)
		}
	}
	if got := r.groupOf("My Server!"); got != "my-server" {
		t.Errorf("My Server! is referred to as %s", got)
	}
}

func TestReferencesFollowRenamedGroups(t *testing.T) {
	dir := tree(t, map[string]string{"groups.json": `[
		{"name":"Child","parent":"Base","dependsOn":["Data.Base"]}, {"name":"Base"}, {"name":"Data.Base"},
		{"name":"a","dependsOn":["b"]}, {"name":"b","dependsOn":["a"]}]`})
	r, err := PrexorCloud(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range r.Documents {
		names = append(names, d.Name)
	}
	if want := []string{"b", "a", "base", "data-base", "child"}; !slices.Equal(names, want) {
		t.Errorf("got the order %v, want %v", names, want)
	}
	child := r.Documents[len(r.Documents)-1].Fields
	if child["parent"] != "base" || fmt.Sprint(child["dependsOn"]) != "[data-base]" {
		t.Errorf("got %v", child)
	}
	if _, ok := find(r, "group b", "dependsOn"); !ok {
		t.Error("no note of the circle")
	}
}

func TestPrexorCloudReadsRecordsOfTheDatabase(t *testing.T) {
	dir := tree(t, map[string]string{"groups.json": `{"_id":"lobby","memoryMb":512}` + "\n" + `{"_id":"proxy","platform":"VELOCITY"}` + "\n"})
	r, err := PrexorCloud(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Documents) != 2 || r.Documents[1].Fields["platform"] != "VELOCITY" {
		t.Errorf("got %+v", r.Documents)
	}
}

func TestFieldsOfAWrongTypeAreNoted(t *testing.T) {
	dir := tree(t, map[string]string{"configuration/a.json": `{"name":"a","ramMB":"much","cpu":1.5,"static":"yes","nodes":"all","availablePorts":7,
		"templateInstallationConfig":{"allOf":[3]},"environmentVariables":["x"],"instanceGroups":[{"a":1}]}`})
	r, err := Universe(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"ramMB", "cpu", "static", "nodes", "availablePorts", "templateInstallationConfig.allOf", "environmentVariables", "instanceGroups"} {
		if _, ok := find(r, "configuration a", field); !ok {
			t.Errorf("no note of %s", field)
		}
	}
	if r.Documents[0].Fields["memoryMb"].(fmt.Stringer).String() != "2048" {
		t.Errorf("memoryMb is %v, want the default of Universe", r.Documents[0].Fields["memoryMb"])
	}
}

// FuzzFiles feeds any text to every importer of a directory, as each of its files.
func FuzzFiles(f *testing.F) {
	for _, name := range []string{"universe/configuration/Lobby.json", "cloudnet/local/tasks/Lobby.json", "prexorcloud/groups.json", "prexorcloud/config/controller.yml", "pterodactyl/servers.json", "pterodactyl/eggs/egg-paper.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := tree(t, map[string]string{
			"configuration/a.json": string(text), "extensions/docker/config.json": string(text), "local/tasks/a.json": string(text), "local/groups/a.json": string(text),
			"groups.json": string(text), "networks.json": string(text), "servers/a.json": string(text), "eggs/a.json": string(text),
			"configuration/docker.json": `{"name":"docker","runtime":"docker"}`,
		})
		controller := tree(t, map[string]string{"config/controller.yml": string(text)})
		for _, system := range []func(string) (*Result, error){Universe, PrexorCloud, CloudNet, Pterodactyl} {
			for _, d := range []string{dir, controller} {
				r, err := system(d)
				if err != nil {
					continue
				}
				for _, document := range r.Documents {
					if document.Kind == "Group" && !names.IsGroup(document.Name) {
						t.Errorf("%q is not the name of a group", document.Name)
					}
				}
			}
		}
	})
}

func TestCloudNetTakesTheDirectoryLocalAndOldFiles(t *testing.T) {
	dir := tree(t, map[string]string{
		"tasks.json":                `{"tasks":[{"name":"Lobby","processConfiguration":{"environment":"MINECRAFT_SERVER","maxHeapMemorySize":512},"startPort":44955,"templates":[{"prefix":"Lobby","name":"default","storage":"local"}]}]}`,
		"groups.json":               `{"groups":[{"name":"Global","targetEnvironments":["MINECRAFT_SERVER"],"jvmOptions":["-Da=b"]}]}`,
		"templates/Lobby/default/x": "",
	})
	r, err := CloudNet(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Documents) != 1 || !strings.Contains(fmt.Sprint(r.Documents[0].Fields["command"]), "-Da=b -jar server.jar nogui") {
		t.Errorf("got %+v", r.Documents)
	}
	if len(r.Templates) != 1 || r.Templates[0].Name != "Lobby/default" {
		t.Errorf("got %+v", r.Templates)
	}
}

func TestSystemsAreComplete(t *testing.T) {
	names := []string{}
	for _, s := range Systems() {
		if s.Summary == "" || s.Argument == "" || s.Import == nil {
			t.Errorf("%s lacks a summary, an argument or a function", s.Name)
		}
		names = append(names, s.Name)
	}
	if !slices.IsSorted(names) || len(names) != 6 {
		t.Errorf("got %v", names)
	}
}
