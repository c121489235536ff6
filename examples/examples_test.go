package examples

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func TestDemoTemplateHoldsItsFiles(t *testing.T) {
	tree := DemoTemplate()
	if err := fstest.TestFS(tree, "server.properties", "README.txt"); err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(tree, "server.properties")
	if err != nil {
		t.Fatal(err)
	}
	for _, placeholder := range []string{"server-port=%PORT%", "motd=%INSTANCE_NAME%", "max-players=%MAX_PLAYERS%"} {
		if !strings.Contains(string(text), placeholder) {
			t.Errorf("server.properties lacks %s", placeholder)
		}
	}
}

// TestGroupsNameTemplatesThatExist reads the example groups.
func TestGroupsNameTemplatesThatExist(t *testing.T) {
	files, err := filepath.Glob("groups/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no groups: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var group struct {
			Name              string   `json:"name"`
			Templates         []string `json:"templates"`
			FileModifications []string `json:"fileModifications"`
		}
		if err := json.Unmarshal(data, &group); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if want := strings.TrimSuffix(filepath.Base(file), ".json"); group.Name != want {
			t.Errorf("%s declares %q", file, group.Name)
		}
		for _, template := range group.Templates {
			for _, name := range group.FileModifications {
				if _, err := os.Stat(filepath.Join("templates", template, name)); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		}
	}
}
