// Package telemetry provides a service's log, its metrics and its admin listener (/livez, /readyz,
// /metrics, /debug/pprof/).
//
// Invariants:
//   - Loggers and registries are created here and passed on. The process-wide defaults of slog and Prometheus are not used.
//   - Every metric is named orrery_<service>_<noun>_<unit> in base units. A name that breaks the rule is an error at start.
//   - The admin listener is read-only and listens on loopback by default. Profiles show memory, so they require the cluster secret.
package telemetry

import (
	"log/slog"
	"net"
	"runtime/debug"

	"github.com/orreryhq/orrery/libs/errs"
)

// Config contains the settings that every service has. Embed it in the service's settings.
type Config struct {
	// LogLevel is debug, info, warn or error.
	LogLevel string `config:"log.level" default:"info" usage:"lowest level logged: debug, info, warn or error"`
	// LogFormat is text or json.
	LogFormat string `config:"log.format" default:"text" usage:"format of log lines: text or json"`
	// AdminAddress is host:port of the admin listener; port 0 picks a free one.
	AdminAddress string `config:"admin.address" default:"127.0.0.1:0" usage:"address of /livez, /readyz, /metrics and, with the cluster secret as bearer token, /debug/pprof; port 0 picks a free one"`
}

// Validate returns an error for each setting with a wrong value.
func (c *Config) Validate() []error {
	var problems []error
	if _, err := parseLevel(c.LogLevel); err != nil {
		problems = append(problems, err)
	}
	if err := checkFormat(c.LogFormat); err != nil {
		problems = append(problems, err)
	}
	if _, _, err := net.SplitHostPort(c.AdminAddress); err != nil {
		problems = append(problems, errs.Field("admin.address", "must be host:port, not %q", c.AdminAddress))
	}
	return problems
}

// CheckKept returns an error for the setting log.keep if it is out of range.
func CheckKept(n int) []error {
	if n > 0 && n <= MaxKept {
		return nil
	}
	return []error{errs.Field("log.keep", "must be between 1 and %d", MaxKept)}
}

func parseLevel(s string) (slog.Level, error) {
	switch s {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, errs.Field("log.level", "must be debug, info, warn or error, not %q", s)
}

func checkFormat(s string) error {
	if s != "text" && s != "json" {
		return errs.Field("log.format", "must be text or json, not %q", s)
	}
	return nil
}

// version is set by the linker; see the target build of the Makefile.
var version string

// Version returns the version of the program: the one set by the linker, else the module's, else
// the commit, else "devel".
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "devel-" + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}
