// Command templatesvc runs the template service as a process of its own: it
// publishes a directory of templates and serves their files to agents.
package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/program"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/templatesvc"
)

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

// settings are what an operator may set.
type settings struct {
	program.Settings
	Listen       string `config:"listen" default:"127.0.0.1:0" usage:"address of the API agents and gateways call; port 0 picks a free one"`
	AdvertiseURL string `config:"advertise-url" usage:"URL others reach the API by; empty: derived from listen, with the host's name where it listens on all addresses"`
	Templates    struct {
		Dir string `config:"dir" default:"./templates" usage:"watched directory of templates, <group>/<name>/; empty: none"`
	} `config:"templates"`
	Sources struct {
		ProgramsDir string `config:"programs-dir" usage:"directory, by absolute path, of programs that sources of kind program may name; empty: none"`
	} `config:"sources"`
	Blobs struct {
		Dir    string `config:"dir" default:"./blobs" usage:"directory file contents are kept in"`
		Copies int    `config:"copies" default:"2" usage:"disks a version is on before it is published, as far as other replicas with directories of their own are running; 1 waits for none"`
	} `config:"blobs"`
	Versions struct {
		Keep int `config:"keep" default:"1000" usage:"versions kept of a template beside those in use, the oldest go first; 0 keeps all"`
	} `config:"versions"`
	Collect struct {
		Interval time.Duration `config:"interval" default:"1h" usage:"how often file contents that nothing refers to are removed"`
	} `config:"collect"`
}

// Validate names the settings that cannot be used.
func (s *settings) Validate() []error {
	problems := append(s.Settings.Validate(), s.RequireSecret()...)
	if s.Versions.Keep < 0 {
		problems = append(problems, errs.Field("versions.keep", "must not be negative; 0 keeps all"))
	}
	if s.Collect.Interval <= 0 {
		problems = append(problems, errs.Field("collect.interval", "must be positive, such as 1h"))
	}
	if dir := s.Sources.ProgramsDir; dir != "" && !filepath.IsAbs(dir) {
		problems = append(problems, errs.Field("sources.programs-dir", "must be an absolute path, %s is not", dir))
	}
	return problems
}

func run(args, env []string, stdout, stderr io.Writer) int {
	var s settings
	return program.Main(program.Spec{
		Name: "templatesvc", About: "Keeps the templates of an Orrery fleet as content-addressed versions.",
		Into: &s, Common: &s.Settings, NoView: true,
		Build: func(e program.Env) ([]lifecycle.Component, error) { return build(&s, e) },
	}, args, env, stdout, stderr)
}

func build(s *settings, e program.Env) ([]lifecycle.Component, error) {
	service, err := templatesvc.New(templatesvc.Config{
		Store: e.Client, Dir: s.Templates.Dir, BlobDir: s.Blobs.Dir, ProgramsDir: s.Sources.ProgramsDir, Listen: s.Listen, AdvertiseURL: s.AdvertiseURL,
		ClusterSecret: s.Cluster.Secret, Replica: e.Replica, SessionTTL: s.Session.TTL, Version: telemetry.Version(),
		Copies: s.Blobs.Copies, KeepVersions: s.Versions.Keep, CollectInterval: s.Collect.Interval, Log: e.Log, Metrics: e.Registry,
	})
	if err != nil {
		return nil, err
	}
	return []lifecycle.Component{
		{Name: "templatesvc", Run: service.Run},
		{Name: "published", Start: func(ctx context.Context) error {
			select {
			case <-service.Synced():
				return nil
			case <-ctx.Done():
				return errs.Wrap("templatesvc.published", ctx.Err())
			}
		}},
	}, nil
}
