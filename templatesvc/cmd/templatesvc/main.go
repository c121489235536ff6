// Command templatesvc runs the template service. It publishes a directory of templates and
// serves their files to agents.
package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/program"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/templatesvc"
)

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

// settings are the settings of the process.
type settings struct {
	program.Settings
	Seal         program.Seal `config:"seal"`
	Listen       string       `config:"listen" default:"127.0.0.1:0" usage:"address of the API for agents and gateways; port 0 picks a free one"`
	AdvertiseURL string       `config:"advertise-url" usage:"URL of the API for other processes; empty: derived from listen, with the host's name if it listens on all addresses"`
	Templates    struct {
		Dir   string        `config:"dir" default:"./templates" usage:"watched directory of templates, <group>/<name>/; empty: none"`
		Quiet time.Duration `config:"quiet" default:"1s" usage:"how long a template in that directory must be unchanged before it is published; three times as long if something was added to it, at most a minute"`
	} `config:"templates"`
	Sources struct {
		ProgramsDir       string `config:"programs-dir" usage:"absolute path of the directory with the programs for sources of kind program; empty: none"`
		ConfigurationsDir string `config:"configurations-dir" usage:"absolute path of the directory that sources of kind configurations read; empty: none"`
	} `config:"sources"`
	Egress struct {
		Proxy string `config:"proxy" usage:"URL of the HTTP proxy for sources and the catalog; empty: none; HTTP_PROXY has no effect"`
	} `config:"egress"`
	Blobs struct {
		Dir    string `config:"dir" default:"./blobs" usage:"directory of the file contents"`
		Copies int    `config:"copies" default:"2" usage:"number of disks that should have a version before it is published, if enough replicas with their own directories are running; 1 waits for no other replica"`
		S3     struct {
			Endpoint  string `config:"endpoint" usage:"URL of the S3-compatible server for file contents: scheme, host and port; empty: blobs.dir stores them"`
			Bucket    string `config:"bucket" usage:"existing bucket on that server; replicas with the same bucket and prefix share its contents"`
			Prefix    string `config:"prefix" usage:"prefix of all object names; empty: the whole bucket"`
			Region    string `config:"region" usage:"region of the bucket; empty for servers without regions"`
			PathStyle bool   `config:"path-style" default:"false" usage:"put the bucket's name into the path, for servers without a domain per bucket"`
			AccessKey string `config:"access-key" secret:"true" usage:"key that may list, read, write and delete in the bucket"`
			SecretKey string `config:"secret-key" secret:"true" usage:"secret of the access key"`
			CacheMiB  int    `config:"cache-mib" default:"10240" usage:"maximum size of the cache in blobs.dir for content of the bucket, in MiB"`
		} `config:"s3"`
	} `config:"blobs"`
	Versions struct {
		Keep int `config:"keep" default:"1000" usage:"number of versions to keep per template, besides those in use; 0 keeps all"`
	} `config:"versions"`
	Collect struct {
		Interval time.Duration `config:"interval" default:"1h" usage:"interval of removing unreferenced file contents"`
	} `config:"collect"`
	Scrub struct {
		Interval time.Duration `config:"interval" default:"168h" usage:"duration of one pass that verifies all file contents on the disk; 0 disables it"`
	} `config:"scrub"`
}

// maxQuiet is the maximum of templates.quiet. A template is published after a minute in any
// case.
const maxQuiet = 20 * time.Second

// Validate returns the settings with invalid values.
func (s *settings) Validate() []error {
	problems := slices.Concat(s.Settings.Validate(), s.RequireSecret())
	if s.Versions.Keep < 0 {
		problems = append(problems, errs.Field("versions.keep", "must not be negative; 0 keeps all"))
	}
	if s.Collect.Interval <= 0 {
		problems = append(problems, errs.Field("collect.interval", "must be positive, such as 1h"))
	}
	if dir := s.Sources.ProgramsDir; dir != "" && !filepath.IsAbs(dir) {
		problems = append(problems, errs.Field("sources.programs-dir", "must be an absolute path, %s is not", dir))
	}
	if dir := s.Sources.ConfigurationsDir; dir != "" && !filepath.IsAbs(dir) {
		problems = append(problems, errs.Field("sources.configurations-dir", "must be an absolute path, %s is not", dir))
	}
	if q := s.Templates.Quiet; q <= 0 || q > maxQuiet {
		problems = append(problems, errs.Field("templates.quiet", "must be more than 0 and at most %s, is %s", maxQuiet, q))
	}
	if s.Scrub.Interval < 0 {
		problems = append(problems, errs.Field("scrub.interval", "must not be negative; 0 never scrubs"))
	}
	s3 := s.Blobs.S3
	switch {
	case s3.Endpoint == "":
	case s3.Bucket == "":
		problems = append(problems, errs.Field("blobs.s3.bucket", "is required with blobs.s3.endpoint: name a bucket that exists"))
	case s3.AccessKey == "" || s3.SecretKey == "":
		problems = append(problems, errs.Field("blobs.s3.access-key", "and blobs.s3.secret-key are required with blobs.s3.endpoint: pass them as files (--blobs-s3-access-key-file) or in the environment"))
	case s3.CacheMiB <= 0:
		problems = append(problems, errs.Field("blobs.s3.cache-mib", "must be positive"))
	}
	return problems
}

// bucket returns the bucket for file contents, or nil if they are in blobs.dir.
func (s *settings) bucket() *templatesvc.Bucket {
	s3 := s.Blobs.S3
	if s3.Endpoint == "" {
		return nil
	}
	return &templatesvc.Bucket{
		Endpoint: s3.Endpoint, Bucket: s3.Bucket, Prefix: s3.Prefix, Region: s3.Region, PathStyle: s3.PathStyle,
		AccessKey: s3.AccessKey, SecretKey: s3.SecretKey, CacheBytes: int64(s3.CacheMiB) << 20,
	}
}

func run(args, env []string, stdout, stderr io.Writer) int {
	var s settings
	return program.Main(program.Spec{
		Name: "templatesvc", About: "Stores the templates of an Orrery fleet as content-addressed versions.",
		Into: &s, Common: &s.Settings,
		Build: func(e program.Env) ([]lifecycle.Component, error) { return build(&s, e) },
	}, args, env, stdout, stderr)
}

func build(s *settings, e program.Env) ([]lifecycle.Component, error) {
	service, err := templatesvc.New(templatesvc.Config{
		Store: e.Client, Dir: s.Templates.Dir, Quiet: s.Templates.Quiet, BlobDir: s.Blobs.Dir, Bucket: s.bucket(), ProgramsDir: s.Sources.ProgramsDir, ConfigurationsDir: s.Sources.ConfigurationsDir, EgressProxy: s.Egress.Proxy, Listen: s.Listen, AdvertiseURL: s.AdvertiseURL,
		ClusterSecret: s.Cluster.Secret, SealKey: s.Seal.Key, Peers: e.Peers, Replica: e.Replica, SessionTTL: s.Session.TTL, Version: telemetry.Version(),
		Copies: s.Blobs.Copies, KeepVersions: s.Versions.Keep, CollectInterval: s.Collect.Interval, ScrubInterval: s.Scrub.Interval, Now: e.Now, Log: e.Log, Metrics: e.Registry,
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
