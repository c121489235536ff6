package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/orreryhq/orrery/libs/errs"
)

// commandLine is the parsed command line.
type commandLine struct {
	set                  *pflag.FlagSet
	help, version, print bool
	file                 string
	// values holds a flagValue for every key.
	values map[string]*flagValue
}

// flagValue keeps the values of a flag unparsed. They are checked together with all other layers,
// so that one wrong flag does not hide another.
type flagValue struct {
	typ   string
	given []string
}

var _ pflag.Value = (*flagValue)(nil)

// Set implements pflag.Value.
func (v *flagValue) Set(s string) error { v.given = append(v.given, s); return nil }

// String implements pflag.Value. It is empty because help shows the default from the schema.
func (v *flagValue) String() string { return "" }

// Type returns the word after the flag's name in help.
func (v *flagValue) Type() string { return v.typ }

// parseLine parses the arguments. It stops at an unknown flag, because the next argument could be
// its value, and keeps the flags before it.
func parseLine(sch *schema, args []string) (*commandLine, []error) {
	line := &commandLine{set: pflag.NewFlagSet("", pflag.ContinueOnError), values: map[string]*flagValue{}}
	line.set.SortFlags = false
	line.set.Usage = func() {}
	for _, s := range sch.settings {
		line.define(s)
	}
	line.set.StringVar(&line.file, "config", "", "read settings from this .yaml, .json or .toml file (env "+envName("config")+")")
	line.set.BoolVar(&line.print, "print-config", false, "print the effective settings with their sources and exit")
	line.set.BoolVarP(&line.help, "help", "h", false, "print this help and exit")
	line.set.BoolVar(&line.version, "version", false, "print the version and exit")

	var problems []error
	if err := line.set.Parse(args); err != nil {
		problems = append(problems, line.explain(err))
	}
	for _, arg := range line.set.Args() {
		problems = append(problems, errs.New(errs.Invalid, "unexpected argument %q: settings have the form --name value", arg))
	}
	return line, problems
}

func (line *commandLine) define(s setting) {
	v := &flagValue{typ: s.kind.String()}
	usage := fmt.Sprintf("%s (env %s)", s.usage, s.env())
	if s.secret {
		v.typ = "file"
		usage = fmt.Sprintf("file that holds: %s (env %s or %s_FILE)", s.usage, s.env(), s.env())
	}
	line.values[s.key] = v
	f := line.set.VarPF(v, s.flag(), "", usage)
	f.DefValue = s.def
	if s.secret {
		f.DefValue = ""
	}
	if s.kind == boolean {
		f.NoOptDefVal = "true"
	}
}

func (line *commandLine) explain(err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return errs.New(errs.Invalid, "%v", err)
	}
	var names []string
	line.set.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return errs.New(errs.Invalid, "%v%s", err, didYouMean(unknown.GetSpecifiedName(), names, "--"))
}

func (line *commandLine) printHelp(o Options) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s [flags]\n\n", o.Name)
	if o.About != "" {
		fmt.Fprintf(&b, "%s\n\n", o.About)
	}
	b.WriteString("Settings come from defaults, the file, the environment and flags; later ones override earlier ones.\n\n")
	b.WriteString(line.set.FlagUsages())
	_, err := o.Stdout.Write([]byte(b.String()))
	return err
}
