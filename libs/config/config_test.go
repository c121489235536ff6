package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/orreryhq/orrery/libs/config"
	"github.com/orreryhq/orrery/libs/errs"
)

type logging struct {
	Level string `config:"log.level" default:"info" usage:"lowest level logged"`
}

func (l *logging) Validate() []error {
	if l.Level != "info" && l.Level != "debug" {
		return []error{errs.Field("log.level", "must be info or debug")}
	}
	return nil
}

type etcd struct {
	Endpoints []string      `config:"endpoints" default:"127.0.0.1:2379" usage:"where etcd listens"`
	Timeout   time.Duration `config:"dial-timeout" default:"5s" usage:"longest wait"`
	Password  string        `config:"password" secret:"true" usage:"password of the etcd user"`
}

func (e *etcd) Validate() []error {
	if e.Timeout < time.Second {
		return []error{errs.Field("dial-timeout", "must be at least 1s")}
	}
	return nil
}

type nodeID string

type settings struct {
	logging
	Node   nodeID            `config:"node" default:"node-1" usage:"name | of this node"`
	Etcd   etcd              `config:"etcd"`
	Shards int               `config:"shards" default:"64" usage:"number of shards"`
	Quota  int64             `config:"quota" usage:"bytes"`
	Weight float64           `config:"weight" default:"0.5" usage:"weight of memory"`
	Strict bool              `config:"strict" usage:"refuse more"`
	Labels map[string]string `config:"labels" default:"zone=a" usage:"labels of this node"`
	Clock  func() time.Time
}

func load(t *testing.T, o config.Options) (s settings, done bool, err error) {
	t.Helper()
	o.Name, o.Into = "orrery-test", &s
	done, err = config.Load(o)
	return s, done, err
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func defaults() settings {
	return settings{
		logging: logging{Level: "info"}, Node: "node-1", Shards: 64, Weight: 0.5,
		Etcd:   etcd{Endpoints: []string{"127.0.0.1:2379"}, Timeout: 5 * time.Second},
		Labels: map[string]string{"zone": "a"},
	}
}

var allowUnexported = cmp.AllowUnexported(settings{})

func TestDefaultsApply(t *testing.T) {
	got, _, err := load(t, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(defaults(), got, allowUnexported); diff != "" {
		t.Error(diff)
	}
}

func TestEveryFormatReadsTheSame(t *testing.T) {
	files := map[string]string{
		"c.yaml": "etcd:\n  endpoints: [a:1, b:2]\n  dial-timeout: 7s\n  password:\nnode: n\nlog:\n  level: debug\nshards: '8'\nquota: 9007199254740993\nweight: 2\nstrict: true\nlabels:\n  Kubernetes.io/OS: Linux\n  UPPER: x\n",
		"c.json": `{"etcd":{"endpoints":["a:1","b:2"],"dial-timeout":"7s"},"node":"n","log.level":"debug","shards":8,"quota":"9007199254740993","weight":2,"strict":true,"labels":{"Kubernetes.io/OS":"Linux","UPPER":"x"}}`,
		"c.toml": "node = 'n'\nshards = 8\nquota = 9007199254740993\nweight = 2.0\nstrict = true\n[log]\nlevel = 'debug'\n[etcd]\nendpoints = ['a:1','b:2']\ndial-timeout = '7s'\n[labels]\n'Kubernetes.io/OS' = 'Linux'\nUPPER = 'x'\n",
	}
	want := settings{
		logging: logging{Level: "debug"}, Node: "n", Shards: 8, Quota: 9007199254740993, Weight: 2, Strict: true,
		Etcd:   etcd{Endpoints: []string{"a:1", "b:2"}, Timeout: 7 * time.Second},
		Labels: map[string]string{"Kubernetes.io/OS": "Linux", "UPPER": "x"},
	}
	for name, content := range files {
		t.Run(name, func(t *testing.T) {
			got, _, err := load(t, config.Options{Args: []string{"--config", write(t, name, content)}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, allowUnexported); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLaterLayersOverride(t *testing.T) {
	file := write(t, "c.yaml", "node: file\nshards: 1\nweight: 1\nlabels: {A: file, B: file}\n")
	var printed bytes.Buffer
	got, _, err := load(t, config.Options{
		Stdout: &printed,
		Env:    []string{"ORRERY_CONFIG=" + file, "ORRERY_SHARDS=2", "ORRERY_WEIGHT=2", "ORRERY_STRICT=", "ORRERY_LABELS=A=env", "OTHER=x"},
		Args:   []string{"--weight=3", "--etcd-endpoints", "a,b", "--etcd-endpoints=c", "--strict", "--print-config"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := defaults()
	want.Node, want.Shards, want.Weight, want.Strict = "file", 2, 3, true
	want.Labels = map[string]string{"A": "env"}
	want.Etcd.Endpoints = []string{"a", "b", "c"}
	if diff := cmp.Diff(want, got, allowUnexported); diff != "" {
		t.Error(diff)
	}
	for _, line := range []string{
		"node: file # file " + file, "shards: 2 # env ORRERY_SHARDS", "weight: 3 # flag --weight", "strict: true # flag --strict",
	} {
		if !strings.Contains(printed.String(), line+"\n") {
			t.Errorf("%q is missing in:\n%s", line, &printed)
		}
	}
}

func TestListsAndMapsHaveAJSONForm(t *testing.T) {
	got, _, err := load(t, config.Options{
		Env:  []string{`ORRERY_LABELS={"a=b":"x,y"}`},
		Args: []string{`--etcd-endpoints=["a,b"]`},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Labels["a=b"] != "x,y" || len(got.Etcd.Endpoints) != 1 || got.Etcd.Endpoints[0] != "a,b" {
		t.Errorf("got %v %v", got.Labels, got.Etcd.Endpoints)
	}
}

func TestProblemsNameKeyValueAndSource(t *testing.T) {
	cases := []struct {
		name string
		file string
		env  []string
		args []string
		want []string
	}{
		{name: "an unknown key suggests the nearest", file: "etcd:\n  endpoint: [a]\n", want: []string{"etcd.endpoint is not a known key; did you mean etcd.endpoints? (file F)"}},
		{name: "a key in another case suggests ours", file: "etcd: {dialTimeout: 5s}", want: []string{"etcd.dialTimeout is not a known key; did you mean etcd.dial-timeout? (file F)"}},
		{name: "an unknown key far from all suggests none", file: "frobnicate: 1", want: []string{"frobnicate is not a known key (file F)"}},
		{name: "a section is not a value", file: "etcd: here", want: []string{`etcd must be a section with keys, not "here" (file F)`}},
		{name: "a duration needs a unit", file: "etcd: {dial-timeout: 30}", want: []string{"etcd.dial-timeout must be a duration such as 500ms, 30s or 5m, not 30 (file F)"}},
		{name: "a number is no string", file: "node: 1.10", want: []string{"node must be a string, not 1.1: put it in quotes (file F)"}},
		{name: "a map of numbers is no map of strings", file: "labels: {a: 1}", want: []string{"labels must be a map of strings (k=v,k=v), not the section map[a:1]: put it in quotes (file F)"}},
		{name: "a list is a list", file: "etcd: {endpoints: a}", want: []string{`etcd.endpoints must be a list of strings, not "a" (file F)`}},
		{name: "a key stands once", file: "etcd: {dial-timeout: 5s}\netcd.dial-timeout: 6s", want: []string{"etcd.dial-timeout is in the file twice (file F)"}},
		{name: "a variable of the wrong type", env: []string{"ORRERY_SHARDS=many"}, want: []string{`shards must be a whole number, not "many" (env ORRERY_SHARDS)`}},
		{name: "a flag of the wrong type", args: []string{"--strict=maybe"}, want: []string{`strict must be true or false, not "maybe" (flag --strict)`}},
		{name: "a map without =", args: []string{"--labels", "a"}, want: []string{`labels must be a map of strings (k=v,k=v), not "a" (flag --labels)`}},
		{name: "an unknown flag suggests the nearest", args: []string{"--etcd-endpoint=a"}, want: []string{"unknown flag: --etcd-endpoint; did you mean --etcd-endpoints?"}},
		{name: "a stray argument", args: []string{"start"}, want: []string{`unexpected argument "start": settings have the form --name value`}},
		{name: "a section validates itself", env: []string{"ORRERY_ETCD_DIAL_TIMEOUT=1ms"}, want: []string{"etcd.dial-timeout must be at least 1s"}},
		{name: "an embedded struct complains once", env: []string{"ORRERY_LOG_LEVEL=loud"}, want: []string{"log.level must be info or debug"}},
		{name: "a secret is given once", env: []string{"ORRERY_ETCD_PASSWORD=x", "ORRERY_ETCD_PASSWORD_FILE=y"}, want: []string{"etcd.password is set twice: set ORRERY_ETCD_PASSWORD or ORRERY_ETCD_PASSWORD_FILE, not both"}},
		{
			name: "all at once", file: "shards: x\nnoed: a\n", env: []string{"ORRERY_QUOTA=1.5", "ORRERY_LOG_LEVEL=loud"}, args: []string{"--weight=heavy", "--nope"},
			want: []string{
				"unknown flag: --nope; did you mean --node?",
				"noed is not a known key; did you mean node? (file F)",
				`shards must be a whole number, not "x" (file F)`,
				`quota must be a whole number, not "1.5" (env ORRERY_QUOTA)`,
				`weight must be a number, not "heavy" (flag --weight)`,
				"log.level must be info or debug",
			},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, "c.yaml", c.file)
			_, _, err := load(t, config.Options{Env: append(c.env, "ORRERY_CONFIG="+path), Args: c.args})
			if !errs.Is(err, errs.Invalid) {
				t.Fatalf("got %v (%v), want Invalid", err, errs.KindOf(err))
			}
			var got []string
			for _, p := range config.Problems(err) {
				got = append(got, strings.ReplaceAll(p, path, "F"))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUnreadableFileIsReported(t *testing.T) {
	cases := map[string]string{
		filepath.Join(t.TempDir(), "none.yaml"):   "no such file",
		write(t, "c.ini", ""):                     "must end in .yaml, .yml, .json or .toml",
		write(t, "c.yaml", "a: b: c"):             "is not valid YAML",
		write(t, "c.json", `{"node":"a"} {}`):     "is not valid JSON",
		write(t, "list.yaml", "- node\n- shards"): "is not valid YAML",
		write(t, "c.toml", "node = "):             "is not valid TOML",
	}
	for path, want := range cases {
		if _, _, err := load(t, config.Options{Args: []string{"--config=" + path}}); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", filepath.Base(path), err, want)
		}
	}
}

func TestDefaultsAlone(t *testing.T) {
	var s settings
	if err := config.Defaults(&s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(defaults(), s, allowUnexported); diff != "" {
		t.Error(diff)
	}
}

func TestWrongTagsAreADefect(t *testing.T) {
	cases := map[string]any{
		"not a pointer": settings{},
		"an upper-case key": &struct {
			A int `config:"Shards"`
		}{},
		"an unsupported type": &struct {
			A uint8 `config:"a"`
		}{},
		"one name for two": &struct {
			A int `config:"a.b"`
			B int `config:"a-b"`
		}{},
		"a key and a section": &struct {
			A int `config:"a"`
			B int `config:"a.b"`
		}{},
		"a reserved name": &struct {
			A int `config:"help"`
		}{},
		"the file's own name": &struct {
			A int `config:"config"`
		}{},
		"a secret number": &struct {
			A int `config:"a" secret:"true"`
		}{},
		"a field out of reach": &struct {
			a int `config:"a"`
		}{},
		"a secret's file taken": &struct {
			A string `config:"a" secret:"true"`
			B string `config:"a-file"`
		}{},
	}
	for name, into := range cases {
		if _, err := config.Load(config.Options{Into: into}); !errs.Is(err, errs.Internal) || err == nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
	wrongDefault := &struct {
		A int `config:"a" default:"x"`
	}{}
	if _, err := config.Load(config.Options{Into: wrongDefault}); err == nil {
		t.Error("a default that does not parse is accepted")
	}
}

func FuzzFileNeverPanics(f *testing.F) {
	for _, s := range []string{"etcd: {endpoints: [a]}", "labels: {1: 2}", "- a", "node: !!binary x", "etcd: []", "a: &a [*a]", "? [a]\n: b", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, content string) {
		path := write(t, "c.yaml", content)
		var s settings
		_, err := config.Load(config.Options{Into: &s, Args: []string{"--config", path}})
		if err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%v: %v", errs.KindOf(err), err)
		}
	})
}
