package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// fixture is a repository in memory: the modules of the layout and the given files.
func fixture(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for _, module := range append([]string{"libs", "standalone", "e2e", "sdk", "cli", "e2e/workloads"}, services...) {
		fsys[module+"/go.mod"] = &fstest.MapFile{Data: []byte("module " + modulePrefix + module)}
	}
	for name, source := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(source)}
	}
	return fsys
}

// source is a commented package that imports paths.
func source(name string, paths ...string) string {
	var b strings.Builder
	b.WriteString("// Package " + name + " is a fixture.\npackage " + name + "\n")
	for _, p := range paths {
		b.WriteString("import _ \"" + p + "\"\n")
	}
	return b.String()
}

// body is a commented package p whose declarations are given.
func body(imports, decls string) string {
	out := "// Package p is a fixture.\npackage p\n"
	if imports != "" {
		out += "import \"" + imports + "\"\n"
	}
	return out + decls + "\n"
}

type example struct {
	name string
	file string
	src  string
	// broken is the rule the file breaks, "" when it breaks none.
	broken string
}

var examples = []example{
	{"fleet may import errs and std", "libs/fleet/a.go", source("fleet", "strings", modulePrefix+"libs/errs"), ""},
	{"fleet may not import another lib", "libs/fleet/a.go", source("fleet", modulePrefix+"libs/wirelike"), "fleet-is-the-bottom,pure-imports"},
	{"fleet tests may import foreign helpers", "libs/fleet/a_test.go", source("fleet", "pgregory.net/rapid", "os"), ""},
	{"libs may not import a client", "libs/store/a.go", source("store", modulePrefix+"nodeagent/client"), "libs-know-no-service"},

	{"the client imports foreign modules", "sdk/a.go", source("orrery", "net/http", "github.com/coder/websocket"), ""},
	{"the client may not import libs", "sdk/a.go", source("orrery", modulePrefix+"libs/errs"), "sdk-stands-alone"},
	{"the client's tests may not either", "sdk/a_test.go", source("orrery", modulePrefix+"libs/await"), "sdk-stands-alone"},
	{"the command line may import the client", "cli/a.go", source("main", modulePrefix+"sdk", modulePrefix+"cli/internal/table"), ""},
	{"the command line may not import libs", "cli/internal/table/a.go", source("table", modulePrefix+"libs/wire"), "cli-speaks-http"},
	{"others may import the client", "e2e/a.go", source("e2e", modulePrefix+"sdk"), ""},

	{"store may import etcd's client", "libs/store/a.go", source("store", "go.etcd.io/etcd/client/v3"), ""},
	{"a package of store may import etcd's client", "libs/store/view/a.go", source("view", "go.etcd.io/etcd/client/v3"), ""},
	{"a name that merely starts like store may not", "libs/storeroom/a.go", source("storeroom", "go.etcd.io/etcd/client/v3"), "etcd-client"},
	{"a service may not import etcd's client", "enforcer/a.go", source("enforcer", "go.etcd.io/etcd/client/v3"), "etcd-client"},
	{"a service's test may not import etcd's client", "enforcer/a_test.go", source("enforcer", "go.etcd.io/etcd/client/v3"), "etcd-client"},
	{"the stack's tests may import etcd's client", "standalone/stack/a_test.go", source("stack", "go.etcd.io/etcd/client/v3"), ""},
	{"the stack itself may not", "standalone/stack/a.go", source("stack", "go.etcd.io/etcd/client/v3"), "etcd-client"},
	{"the stack embeds etcd", "standalone/stack/a.go", source("stack", "go.etcd.io/etcd/server/v3/embed"), ""},
	{"storetest embeds etcd", "libs/store/storetest/a.go", source("storetest", "go.etcd.io/etcd/server/v3/embed"), ""},
	{"a service may not embed etcd", "apigateway/a_test.go", source("apigateway", "go.etcd.io/etcd/server/v3/embed"), "etcd-server"},
	{"config may import viper", "libs/config/a.go", source("config", "github.com/spf13/viper"), ""},
	{"nobody else imports viper", "scheduler/a.go", source("scheduler", "github.com/spf13/viper"), "viper"},
	{"the gateway may import gin", "apigateway/internal/api/a.go", source("rest", "github.com/gin-gonic/gin"), ""},
	{"what a gateway is measured beside is gin", "e2e/bench/hello/a.go", source("main", "github.com/gin-gonic/gin"), ""},
	{"nobody else of e2e imports gin", "e2e/bench/a.go", source("main", "github.com/gin-gonic/gin"), "gin"},
	{"nobody else imports gin", "templatesvc/a.go", source("templatesvc", "github.com/gin-gonic/gin"), "gin"},
	{"the docker runtime may import the engine's client", "nodeagent/internal/runtime/docker/a.go", source("docker", "github.com/moby/moby/client"), ""},
	{"nobody else imports the engine's client", "nodeagent/a.go", source("nodeagent", "github.com/moby/moby/client"), "container-engine"},
	{"templatesvc may import the S3 client", "templatesvc/internal/sources/bucket/a.go", source("bucket", "github.com/minio/minio-go/v7"), ""},
	{"nobody else imports the S3 client", "nodeagent/a.go", source("nodeagent", "github.com/minio/minio-go/v7"), "s3"},
	{"the source of repositories may import go-git", "templatesvc/internal/sources/git/a.go", source("git", "github.com/go-git/go-git/v5/plumbing"), ""},
	{"nobody else imports go-git", "templatesvc/internal/sources/directory/a.go", source("source", "github.com/go-git/go-git/v5/plumbing"), "git"},

	{"a service may import another's client", "apigateway/a.go", source("apigateway", modulePrefix+"nodeagent/client"), ""},
	{"a service may import its own packages", "nodeagent/a.go", source("nodeagent", modulePrefix+"nodeagent/internal/node/journal"), ""},
	{"a service may not import another's root", "apigateway/a.go", source("apigateway", modulePrefix+"scheduler"), "services-meet-in-etcd"},
	{"a service may not import another's internals", "apigateway/a.go", source("apigateway", modulePrefix+"scheduler/internal/place"), "services-meet-in-etcd"},
	{"the command line may not import a root", "cli/a.go", source("cli", modulePrefix+"apigateway"), "cli-speaks-http,services-meet-in-etcd"},
	{"standalone may import the roots", "standalone/a.go", source("standalone", modulePrefix+"apigateway"), ""},
	{"e2e may import the roots", "e2e/a_test.go", source("e2e", modulePrefix+"apigateway"), ""},
	{"a test may run another service", "apigateway/a_test.go", source("apigateway", modulePrefix+"scheduler"), ""},
	{"a test may not look inside it", "apigateway/a_test.go", source("apigateway", modulePrefix+"scheduler/internal/place"), "services-meet-in-etcd"},

	{"a pure package may compute with values of net", "libs/fleet/a.go", source("fleet", "net/netip", "net/url", "time"), ""},
	{"a pure package may import fleet", "scheduler/internal/place/a.go", source("place", modulePrefix+"libs/fleet"), ""},
	{"a pure package may not import the network", "libs/fleet/a.go", source("fleet", "net/http"), "pure-imports"},
	{"a pure package may not import a context", "enforcer/internal/plan/a.go", source("plan", "context"), "pure-imports"},
	{"a pure package may not import a logger", "scheduler/internal/place/a.go", source("place", "log/slog"), "pure-imports"},
	{"a pure package may not import the store", "enforcer/internal/plan/a.go", source("plan", modulePrefix+"libs/store"), "pure-imports"},
	{"a pure package may not read the clock", "libs/fleet/a.go", body("time", "func f() time.Time { return time.Now() }"), "pure-time"},
	{"a renamed import hides no clock", "libs/fleet/a.go", "// Package p is a fixture.\npackage p\nimport t \"time\"\nvar _ = t.Since\n", "pure-time"},
	{"a pure package's test may read the clock", "libs/fleet/a_test.go", body("time", "func f() time.Time { return time.Now() }"), ""},
	{"durations are values", "libs/fleet/a.go", body("time", "const grace = 3 * time.Second"), ""},

	{"a vague package name", "libs/helper/a.go", source("helper"), "package-names"},
	{"a vague folder name", "libs/util/a.go", source("strutil"), "package-names"},
	{"a vague name of a test package", "libs/types/a_test.go", source("types_test"), "package-names"},

	{"a service shows its client", "nodeagent/client/a.go", source("client"), ""},
	{"a service has commands", "nodeagent/cmd/nodeagent/a.go", source("main"), ""},
	{"a service hides the rest", "nodeagent/journal/a.go", source("journal"), "exported-packages"},
	{"internal may lie deeper", "nodeagent/client/internal/retry/a.go", source("retry"), ""},
	{"libs shows everything", "libs/telemetry/a.go", source("telemetry"), ""},

	{"a package of the largest size", "libs/wire/a.go", source("wire") + strings.Repeat("\n", maxLines-3), ""},
	{"a package of more lines", "libs/wire/a.go", source("wire") + strings.Repeat("\n", maxLines), "package-size"},
	{"a long benchmark", "e2e/bench/a.go", source("main") + strings.Repeat("\n", maxLines), ""},
	{"a long generated file", "sdk/a.go", "// Code generated by x. DO NOT EDIT.\n\n" + source("orrery") + strings.Repeat("\n", maxLines), ""},
	{"long tests", "libs/wire/a_test.go", source("wire") + strings.Repeat("\n", maxLines), ""},

	{"a package without a comment", "libs/wire/a.go", "package wire\n", "package-comment"},
	{"a detached comment is none", "libs/wire/a.go", "// Package wire is here.\n\npackage wire\n", "package-comment"},
	{"tests alone need no comment", "e2e/a_test.go", "package e2e\n", ""},
	{"init hides work", "libs/wire/a.go", body("", "func init() {}"), "no-init"},
	{"a method may be called init", "libs/wire/a.go", body("", "type t struct{}\nfunc (t) init() {}"), ""},

	{"a table is no state", "libs/wire/a.go", body("", "var table = map[string]int{\"a\": 1}"), ""},
	{"an error is no state", "libs/wire/a.go", body("errors", "var errGone = errors.New(\"gone\")"), ""},
	{"a compiled pattern is no state", "libs/wire/a.go", body("regexp", "var name = regexp.MustCompile(`a`)"), ""},
	{"a pattern that is compiled when it is first used is no state", "cli/a.go", body("lazyregexp", "var name = lazyregexp.New(`a`)"), ""},
	{"a pointer to a table entry is no state", "libs/wire/a.go", body("", "type e struct{}\nvar gone = &e{}"), ""},
	{"an interface assertion is no state", "libs/wire/a.go", body("fmt", "type t struct{ fmt.Stringer }\nvar _ fmt.Stringer = t{}"), ""},
	{"an embedded file is no state", "libs/wire/a.go", body("embed", "//go:embed x.html\nvar page embed.FS"), ""},
	{"bytes are no state", "libs/wire/a.go", body("", "var magic = []byte(\"x\")"), ""},
	{"the version is stamped", "libs/telemetry/a.go", "// Package telemetry is a fixture.\npackage telemetry\nvar version string\n", ""},
	{"the version of the command line is stamped", "cli/internal/app/a.go", "// Package app is a fixture.\npackage app\nvar version string\n", ""},
	{"a command has no version of its own", "cli/a.go", "// Command main is a fixture.\npackage main\nvar version string\n", "no-globals"},
	{"a counter is state", "libs/wire/a.go", body("", "var count int"), "no-globals"},
	{"a lock is state", "libs/wire/a.go", body("sync", "var mu sync.Mutex"), "no-globals"},
	{"a lock's literal is state", "libs/wire/a.go", body("sync", "var mu = sync.Mutex{}"), "no-globals"},
	{"a client is state", "libs/wire/a.go", body("net/http", "var c = &http.Client{}"), "no-globals"},
	{"a made-up clock is state", "libs/wire/a.go", body("time", "var now = time.Now"), "no-globals"},
	{"several names from one call are state", "libs/wire/a.go", body("", "var a, b = f()\nfunc f() (int, int) { return 1, 2 }"), "no-globals"},
	{"a test may have flags", "libs/wire/a_test.go", body("flag", "var update = flag.Bool(\"update\", false, \"\")"), ""},
	{"the default logger is global", "libs/wire/a.go", body("log/slog", "func f() { slog.Info(\"x\") }"), "no-global-services"},
	{"a logger that was passed in is not", "libs/wire/a.go", body("log/slog", "func f(l *slog.Logger) { l.Info(\"x\") }"), ""},

	{"a test may not sleep", "libs/wire/a_test.go", body("time", "func f() { time.Sleep(1) }"), "no-sleep-in-tests"},
	{"code may sleep", "libs/wire/a.go", body("time", "func f() { time.Sleep(1) }"), ""},
	{"a document may not name a test that is gone", "docs/a.md", "It holds (`TestGone`).\n", "documents-name-tests"},
	{"a document may not name a benchmark that is gone", "docs/a/b.md", "BenchmarkGone measures it.\n", "documents-name-tests"},
	{"words that begin like the name of a test are none", "docs/a.md", "Tests, Testcontainers and latestTestA name none.\n", ""},
	{"the changelog tells of the past", "CHANGELOG.md", "TestGone is gone.\n", ""},
	{"testdata is no package", "libs/wire/testdata/a.go", "package util\nfunc init() {}\n", ""},
	{"hidden folders are no package", "libs/.cache/a.go", "package util\nfunc init() {}\n", ""},
	{"files outside every module are no package", "scripts/a.go", "package util\nfunc init() {}\n", ""},
}

func TestRules(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			tree, err := load(fixture(map[string]string{e.file: e.src}))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, b := range check(tree, rules()) {
				names = append(names, b.rule.name)
				for _, f := range b.findings {
					if f.path != e.file || f.line < 1 || f.what == "" {
						t.Errorf("finding %v does not point into %s", f, e.file)
					}
				}
			}
			if got := strings.Join(names, ","); got != e.broken {
				t.Errorf("broken rules = %q, want %q", got, e.broken)
			}
		})
	}
}

func TestEveryRuleHasAnExampleThatBreaksIt(t *testing.T) {
	var broken []string
	for _, e := range examples {
		broken = append(broken, strings.Split(e.broken, ",")...)
	}
	for _, r := range rules() {
		if r.survey == nil && !slices.Contains(broken, r.name) {
			t.Errorf("no example breaks %s", r.name)
		}
		if !strings.HasSuffix(r.sentence, ".") {
			t.Errorf("the sentence of %s is no sentence: %q", r.name, r.sentence)
		}
	}
}

func TestADocumentNamesATestThatAPackageHas(t *testing.T) {
	tree, err := load(fixture(map[string]string{
		"ARCHITECTURE.md":     "`TestHere` and `FuzzThere` exist.\nTestCode and TestOfType are no tests.\n`e2e` TestHere, `inner` FuzzThere, `cli` FuzzThere\n`cli` TestHere\n",
		"e2e/a_test.go":       "package e2e\nfunc TestHere() {}\ntype x struct{}\nfunc (x) TestOfType() {}\n",
		"libs/fleet/a.go":     body("", "func TestCode() {}"),
		"cli/inner/b_test.go": "package inner_test\nfunc FuzzThere() {}\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, b := range check(tree, rules()) {
		for _, f := range b.findings {
			all = append(all, f.String())
		}
	}
	want := []string{"ARCHITECTURE.md:2: names TestCode, which no package has", "ARCHITECTURE.md:2: names TestOfType, which no package has", "ARCHITECTURE.md:4: names TestHere of cli, which e2e has"}
	if !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
}

func TestAnInternalFolderListsAtMost14Entries(t *testing.T) {
	files := map[string]string{}
	for i := range maxEntries {
		files[fmt.Sprintf("scheduler/internal/p%d/inner/a.go", i)] = source("inner")
	}
	for _, want := range []int{0, 1} {
		tree, err := load(fixture(files))
		if err != nil {
			t.Fatal(err)
		}
		if broken := check(tree, rules()); len(broken) != want || want == 1 && broken[0].rule.name != "internal-entries" {
			t.Errorf("%d entries break %v", len(files), broken)
		}
		files["scheduler/internal/more/a.go"] = source("more")
	}
}

func TestModulesThatDoNotExistYetBreakNothing(t *testing.T) {
	tree, err := load(fixture(nil))
	if err != nil {
		t.Fatal(err)
	}
	if broken := check(tree, rules()); len(broken) > 0 {
		t.Errorf("an empty repository breaks %v", broken)
	}
}

func TestInnermostModuleOwnsThePackage(t *testing.T) {
	tree, err := load(fixture(map[string]string{"e2e/workloads/a.go": source("workloads")}))
	if err != nil {
		t.Fatal(err)
	}
	if got := tree.packages[0].module; got != "e2e/workloads" {
		t.Errorf("module = %q, want e2e/workloads", got)
	}
}

func TestRunPrintsTheSentenceAndThePlace(t *testing.T) {
	root := t.TempDir()
	write(t, root, "libs/go.mod", "module "+modulePrefix+"libs")
	write(t, root, "libs/fleet/group.go", source("fleet", "net/http"))

	var stdout, stderr bytes.Buffer
	if code := run([]string{"-root", root}, &stdout, &stderr); code != 1 {
		t.Errorf("exit code = %d, want 1 (stderr %q)", code, stderr.String())
	}
	for _, want := range []string{"Pure packages import no I/O", `libs/fleet/group.go:3: imports net/http`} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, stdout.String())
		}
	}
}

func TestRunSaysWhatItCannotRead(t *testing.T) {
	broken := t.TempDir()
	write(t, broken, "libs/go.mod", "module "+modulePrefix+"libs")
	write(t, broken, "libs/a.go", "package")
	for name, root := range map[string]string{"no packages": t.TempDir(), "a file that does not parse": broken} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run([]string{"-root", root}, &stdout, &stderr); code != 2 {
				t.Errorf("exit code = %d, want 2", code)
			}
			if stderr.Len() == 0 {
				t.Error("nothing on stderr")
			}
		})
	}
}

func write(t *testing.T, root, name, content string) {
	t.Helper()
	full := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
