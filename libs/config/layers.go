package config

import (
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/viper"
)

// masked replaces the value of a secret.
const masked = "***"

// layers stacks the values of all sources in its own viper instance and records the source of each
// effective value. Values are parsed before they are added, so viper neither guesses types nor
// changes the case of map keys.
type layers struct {
	schema  *schema
	stack   *viper.Viper
	sources map[string]string
}

func newLayers(sch *schema) *layers {
	return &layers{
		schema: sch,
		// No key contains this delimiter, so viper treats keys as flat.
		stack:   viper.NewWithOptions(viper.KeyDelimiter("\x00")),
		sources: map[string]string{},
	}
}

func (l *layers) put(key string, value any, source string) {
	l.stack.Set(key, value)
	l.sources[key] = source
}

func (l *layers) defaults() []error {
	var problems []error
	for _, s := range l.schema.settings {
		value := s.kind.zero()
		if s.def != "" {
			parsed, ok := s.kind.parse(s.def)
			if !ok {
				problems = append(problems, s.wrong(s.def, "default"))
			} else {
				value = parsed
			}
		}
		l.stack.SetDefault(s.key, value)
		l.sources[s.key] = "default"
	}
	return problems
}

// wrong returns the problem of a value that does not fit its setting.
func (s setting) wrong(value, source string) error {
	if s.secret {
		value = masked
	}
	return problem(s.key, "must be %s, not %q (%s)", s.kind.wants(), value, source)
}

// environment returns the variables by name. Empty ones count as not set.
func environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok && value != "" {
			env[name] = value
		}
	}
	return env
}

func (l *layers) environment(env map[string]string) []error {
	var problems []error
	for _, s := range l.schema.settings {
		value, set := env[s.env()]
		source := "env " + s.env()
		if path, named := env[s.env()+"_FILE"]; s.secret && named {
			if set {
				problems = append(problems, problem(s.key, "is set twice: set %s or %s_FILE, not both", s.env(), s.env()))
				continue
			}
			source += "_FILE"
			secret, err := readSecret(path)
			if err != nil {
				problems = append(problems, problem(s.key, "cannot be read: %v (%s)", err, source))
				continue
			}
			value, set = secret, true
		}
		if !set {
			continue
		}
		if parsed, ok := s.kind.parse(value); ok {
			l.put(s.key, parsed, source)
		} else {
			problems = append(problems, s.wrong(value, source))
		}
	}
	return problems
}

// readSecret reads a file without the newline at its end.
func readSecret(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}

func (l *layers) flags(line *commandLine) []error {
	var problems []error
	for _, s := range l.schema.settings {
		given := line.values[s.key].given
		if len(given) == 0 {
			continue
		}
		source := "flag --" + s.flag()
		if s.secret {
			secret, err := readSecret(given[len(given)-1])
			if err != nil {
				problems = append(problems, problem(s.key, "cannot be read: %v (%s)", err, source))
				continue
			}
			l.put(s.key, secret, source)
			continue
		}
		if parsed, ok := s.kind.parseAll(given); ok {
			l.put(s.key, parsed, source)
		} else {
			problems = append(problems, s.wrong(strings.Join(given, ","), source))
		}
	}
	return problems
}

// fill writes the effective values into the struct.
func (l *layers) fill() {
	for _, s := range l.schema.settings {
		switch value := l.stack.Get(s.key).(type) {
		case string:
			s.value.SetString(value)
		case int64:
			s.value.SetInt(value)
		case time.Duration:
			s.value.SetInt(int64(value))
		case bool:
			s.value.SetBool(value)
		case float64:
			s.value.SetFloat(value)
		case []string, map[string]string:
			s.value.Set(reflect.ValueOf(value))
		}
	}
}

// shown returns the effective value, masked if it is a secret.
func (l *layers) shown(s setting) any {
	value := l.stack.Get(s.key)
	if s.secret && value != "" {
		return masked
	}
	return value
}
