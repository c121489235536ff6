// Package config fills a struct of settings from four layers: the defaults in its tags, a file,
// the environment and flags. Later layers override earlier ones. Whole values are replaced: lists
// and maps are not merged. It is the only package that imports viper.
//
// A setting is a field with a config tag. A nested struct with a tag is a section. An embedded
// struct without a tag adds its settings to the surrounding section. Fields without a tag are
// ignored:
//
//	type Config struct {
//		telemetry.Config
//		Etcd struct {
//			Endpoints []string      `config:"endpoints" default:"127.0.0.1:2379" usage:"where etcd listens"`
//			Password  string        `config:"password" secret:"true" usage:"password of the etcd user"`
//			Timeout   time.Duration `config:"timeout" default:"5s" usage:"longest wait for an answer"`
//		} `config:"etcd"`
//	}
//
// The other names of a setting follow from its key: etcd.endpoints in the file (as a section or
// with the dot), ORRERY_ETCD_ENDPOINTS in the environment, --etcd-endpoints as a flag. An empty
// variable counts as not set. A secret cannot be passed as a flag, because every user of a host
// can read command lines. It has --etcd-password-file and ORRERY_ETCD_PASSWORD_FILE in addition to
// ORRERY_ETCD_PASSWORD.
//
// Types: string, int, int64, bool, float64 and named types of these, time.Duration, []string,
// map[string]string. In the environment and in flags a list is a,b,c or a JSON array, and a map is
// k=v,k=v or a JSON object. Flags of lists and maps may be repeated. Map keys keep their case.
//
// Invariants:
//   - An unknown key or flag is an error that suggests the nearest known one.
//   - All problems are reported at once, each with the key, the value, its source and the expected form. The value of a secret never appears in an error or output.
//   - Load reads only its Options and the files they name.
package config

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// Exit codes of every program.
const (
	// ExitOK is also the code of --help, --version and --print-config.
	ExitOK = 0
	// ExitFailure is a failure while running.
	ExitFailure = 1
	// ExitUsage is something the operator must correct before the next start.
	ExitUsage = 2
)

// Options says which struct to fill, and the sources.
type Options struct {
	// Name is the program's name, e.g. "orrery-scheduler".
	Name string
	// About is a sentence for --help. May be empty.
	About string
	// Version is printed by --version after the name.
	Version string
	// Args are the arguments without the program's name.
	Args []string
	// Env is the environment in the form of os.Environ.
	Env []string
	// Into points at the struct to fill.
	Into any
	// Unchecked skips Validate, for a program that needs only a few of the settings.
	Unchecked bool
	// Stdout receives the output of --help, --version and --print-config. Nil discards it.
	Stdout io.Writer
}

// Validator is a settings struct, or a section of one, that checks its values after they are read.
// The Field of an error is a key within the struct.
type Validator interface{ Validate() []error }

// Load fills Options.Into. done means that --help, --version or --print-config was served: exit with
// ExitOK. The error is of Kind Invalid and joins all problems (Problems lists them); a struct with
// wrong tags is Internal. After an error the struct must not be used.
func Load(o Options) (done bool, err error) {
	sch, err := schemaOf(o.Into)
	if err != nil {
		return false, err
	}
	if o.Stdout == nil {
		o.Stdout = io.Discard
	}
	line, problems := parseLine(sch, o.Args)
	switch {
	case line.help:
		return true, line.printHelp(o)
	case line.version:
		_, err := fmt.Fprintln(o.Stdout, strings.TrimSpace(o.Name+" "+o.Version))
		return true, err
	}

	env := environment(o.Env)
	lay := newLayers(sch)
	problems = append(problems, lay.defaults()...)
	file := line.file
	if file == "" {
		file = env[envName("config")]
	}
	if file != "" {
		problems = append(problems, lay.file(file)...)
	}
	problems = append(problems, lay.environment(env)...)
	problems = append(problems, lay.flags(line)...)
	lay.fill()
	if !o.Unchecked {
		problems = append(problems, validate(sch, problems)...)
	}
	if len(problems) > 0 {
		if line.print { // what there is helps to find what is wrong
			if err := lay.printYAML(o.Stdout); err != nil {
				problems = append(problems, err)
			}
		}
		return false, &errs.Error{Op: "config", Kind: errs.Invalid, Err: errors.Join(problems...)}
	}

	if line.print {
		return true, lay.printYAML(o.Stdout)
	}
	return false, nil
}

// Problems returns the errors that Load joined, one sentence each.
func Problems(err error) []string {
	var e *errs.Error
	if !errors.As(err, &e) || e.Op != "config" {
		return []string{err.Error()}
	}
	joined, ok := e.Err.(interface{ Unwrap() []error })
	if !ok {
		return []string{err.Error()}
	}
	var out []string
	for _, p := range joined.Unwrap() {
		out = append(out, p.Error())
	}
	return out
}

// Main loads the settings, calls run and returns the exit code. Problems are written to stderr. An
// error of run gives ExitUsage if the operator must correct it (Invalid or Conflict), otherwise
// ExitFailure.
func Main(o Options, stderr io.Writer, run func() error) int {
	done, err := Load(o)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "%s: the configuration is not usable:\n", o.Name)
		for _, p := range Problems(err) {
			fmt.Fprintf(stderr, "  %s\n", p)
		}
		fmt.Fprintf(stderr, "See %s --help.\n", o.Name)
		return ExitUsage
	case done:
		return ExitOK
	}
	if err := run(); err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", o.Name, strings.TrimPrefix(err.Error(), o.Name+": "))
		if errs.Is(err, errs.Invalid) || errs.Is(err, errs.Conflict) {
			return ExitUsage
		}
		return ExitFailure
	}
	return ExitOK
}

// Defaults fills a settings struct with only the defaults of its tags, for tests and for programs
// that set the rest themselves.
func Defaults(into any) error {
	_, err := Load(Options{Into: into})
	return err
}

// problem returns an Invalid error whose message starts with the key.
func problem(key, format string, args ...any) error {
	return errs.Field(key, "%s %s", key, fmt.Sprintf(format, args...))
}

// validate calls Validate of the struct and its sections. It drops errors about keys that already
// have a problem, because those have their default value.
func validate(sch *schema, before []error) []error {
	blamed := map[string]bool{}
	for _, p := range before {
		blamed[errs.FieldOf(p)] = true
	}
	var found []error
	for _, s := range sch.sections {
		if !s.value.Addr().CanInterface() { // embedded and unexported: its owner's method set has Validate
			continue
		}
		v, ok := s.value.Addr().Interface().(Validator)
		if !ok {
			continue
		}
		for _, err := range v.Validate() {
			p := s.complaint(err)
			same := func(other error) bool { return other.Error() == p.Error() }
			// An embedded section is validated twice: by itself and through its owner.
			if (errs.FieldOf(p) == "" || !blamed[errs.FieldOf(p)]) && !slices.ContainsFunc(found, same) {
				found = append(found, p)
			}
		}
	}
	return found
}

// complaint adds a section's key before the field of an error of Validate.
func (s section) complaint(err error) error {
	field, text := errs.FieldOf(err), err.Error()
	if field == "" {
		return errs.New(errs.Invalid, "%s", strings.TrimSpace(strings.TrimSuffix(s.prefix, ".")+" "+text))
	}
	text = strings.TrimSpace(strings.TrimPrefix(text, field))
	return problem(s.prefix+field, "%s", text)
}
