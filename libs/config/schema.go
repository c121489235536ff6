package config

import (
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/suggest"
)

// schema describes the settings of a struct.
type schema struct {
	settings []setting
	// sections are the struct itself and all its sections, for Validate.
	sections []section
}

type section struct {
	// prefix is "" for the whole struct, else the section's key and a dot.
	prefix string
	value  reflect.Value
}

// setting is one field to fill.
type setting struct {
	key    string
	kind   kind
	def    string
	usage  string
	secret bool
	value  reflect.Value
}

// reserved are the flags that every program has.
var reserved = [...]string{"help", "version", "print-config", "config"}

const envPrefix = "ORRERY_"

// envName returns the environment variable of a key.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

func (s setting) env() string { return envName(s.key) }

// flag returns the flag's name without dashes. The flag of a secret names a file.
func (s setting) flag() string {
	name := strings.ReplaceAll(s.key, ".", "-")
	if s.secret {
		name += "-file"
	}
	return name
}

func schemaOf(into any) (*schema, error) {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return nil, defect("Into must point at a struct, not %T", into)
	}
	sch := &schema{}
	if err := sch.add("", v.Elem()); err != nil {
		return nil, err
	}
	return sch, sch.check()
}

func defect(format string, args ...any) error {
	return errs.WrapAs(errs.Internal, "config", errs.New(errs.Internal, format, args...))
}

// add collects the settings of a struct in the order of its fields.
func (sch *schema) add(prefix string, v reflect.Value) error {
	sch.sections = append(sch.sections, section{prefix, v})
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, tagged := f.Tag.Lookup("config")
		isSection := f.Type.Kind() == reflect.Struct
		switch {
		case tagged && !f.IsExported():
			return defect("field %s has a config tag but is not exported", f.Name)
		case !tagged && f.Anonymous && isSection:
			if err := sch.add(prefix, v.Field(i)); err != nil {
				return err
			}
		case !tagged:
		case isSection:
			if err := sch.add(prefix+name+".", v.Field(i)); err != nil {
				return err
			}
		default:
			if err := sch.addSetting(prefix+name, f, v.Field(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (sch *schema) addSetting(key string, f reflect.StructField, v reflect.Value) error {
	k, ok := kindOf(f.Type)
	if !ok {
		return defect("%s: type %s is not supported", key, f.Type)
	}
	s := setting{key: key, kind: k, def: f.Tag.Get("default"), usage: f.Tag.Get("usage"), value: v}
	s.secret = f.Tag.Get("secret") == "true"
	if s.secret && k != text {
		return defect("%s: a secret must be a string", key)
	}
	sch.settings = append(sch.settings, s)
	return nil
}

// check rejects keys whose flag or variable is not unique.
func (sch *schema) check() error {
	segment := regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*(\.[a-z][a-z0-9]*(-[a-z0-9]+)*)*$`)
	owner := map[string]string{}
	for _, name := range reserved {
		owner["--"+name] = "a flag every program has"
	}
	owner[envName("config")] = "a variable every program has"
	claim := func(name, key string) error {
		if other, taken := owner[name]; taken {
			return defect("%s: %s is also %s", key, name, other)
		}
		owner[name] = key
		return nil
	}
	for _, s := range sch.settings {
		if !segment.MatchString(s.key) {
			return defect("key %q must be lower-case words joined by - and .", s.key)
		}
		names := []string{"--" + s.flag(), s.env()}
		if s.secret {
			names = append(names, s.env()+"_FILE")
		}
		for _, name := range names {
			if err := claim(name, s.key); err != nil {
				return err
			}
		}
		if sch.isSection(s.key) {
			return defect("%s is a setting and a section", s.key)
		}
	}
	return nil
}

func (sch *schema) find(key string) (setting, bool) {
	for _, s := range sch.settings {
		if s.key == key {
			return s, true
		}
	}
	return setting{}, false
}

func (sch *schema) isSection(key string) bool {
	for _, s := range sch.settings {
		if strings.HasPrefix(s.key, key+".") {
			return true
		}
	}
	return false
}

func (sch *schema) keys() []string {
	var keys []string
	for _, s := range sch.settings {
		keys = append(keys, s.key)
	}
	return keys
}

// kindOf returns the kind of a field's type.
func kindOf(t reflect.Type) (kind, bool) {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return duration, true
	case t == reflect.TypeFor[[]string]():
		return list, true
	case t == reflect.TypeFor[map[string]string]():
		return table, true
	}
	switch t.Kind() {
	case reflect.String:
		return text, true
	case reflect.Int, reflect.Int64:
		return integer, true
	case reflect.Bool:
		return boolean, true
	case reflect.Float64:
		return decimal, true
	default:
		return 0, false
	}
}

// didYouMean suggests the known name nearest to a wrong one, or returns "".
func didYouMean(wrong string, known []string, prefix string) string {
	best := suggest.Nearest(wrong, known)
	if best == "" {
		return ""
	}
	return "; did you mean " + prefix + best + "?"
}
