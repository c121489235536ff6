package startvalue

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"mvdan.cc/sh/v3/syntax"

	"github.com/orreryhq/orrery/libs/errs"
)

// maxArgument bounds an option of java with its placeholders replaced.
const maxArgument = 16 << 10

// versions are the characters that may end a program name such as python3.13.
const versions = "0123456789."

// use is one use of a start value in a simple command.
type use struct {
	// key is the variable, at the position of its value in the text.
	key string
	at  int
	// assigned is the shell variable that gets the value. It is empty for an argument.
	assigned string
	// redirected is true if the output of the command is redirected.
	redirected bool
}

var (
	// shells run code from -c or standard input, and otherwise from a file.
	shells = []string{"sh", "bash", "dash", "ash", "rbash", "zsh", "ksh", "mksh", "pdksh", "yash", "fish", "csh", "tcsh"}
	// interpreters run code from an option or from a file.
	interpreters = []string{"python", "pypy", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua", "luajit", "pwsh", "mono", "dotnet", "wine", "box", "groovy", "julia"}
	// readers interpret arguments as code, as names of variables or as commands to run.
	readers = []string{
		"eval", "source", ".", "alias", "bind", "builtin", "caller", "cd", "compgen", "complete", "compopt", "declare", "dirs", "disown",
		"enable", "exit", "export", "fc", "getopts", "hash", "history", "jobs", "kill", "let", "local", "logout", "mapfile", "popd",
		"pushd", "read", "readarray", "readonly", "return", "set", "shift", "shopt", "test", "[", "times", "trap", "type", "typeset",
		"ulimit", "umask", "unalias", "unset", "wait", "coproc",
		"awk", "gawk", "mawk", "nawk", "sed", "ed", "ex", "vi", "vim", "find", "xargs", "parallel", "make", "expect", "tclsh", "wish", "m4", "bc", "dc", "gdb",
		"ssh", "su", "sudo", "doas", "gosu", "su-exec", "setpriv", "runuser", "chroot", "unshare", "nsenter", "systemd-run", "systemctl",
		"xvfb-run", "unbuffer", "script", "screen", "tmux", "watch", "at", "batch", "crontab", "flock", "strace", "ltrace", "busybox", "toybox",
		"numactl", "tini", "dumb-init", "docker", "podman", "nerdctl", "kubectl", "git", "tar", "rsync", "start-stop-daemon",
		"bwrap", "catchsegv", "cpulimit", "faketime", "firejail", "npm", "npx", "perf", "prlimit", "proot", "rlwrap", "socat", "valgrind",
	}
	// wrappers run the command after their own options. options are those with a separate
	// argument, operands is the number of words before the command.
	wrappers = map[string]struct {
		options  string
		operands int
	}{
		"exec": {"a", 0}, "command": {"", 0}, "env": {"uC", 0}, "nice": {"n", 0}, "nohup": {"", 0}, "setsid": {"", 0},
		"time": {"fo", 0}, "timeout": {"ks", 1}, "stdbuf": {"ioe", 0}, "ionice": {"cnpPu", 0}, "taskset": {"p", 1}, "chrt": {"TPDp", 1},
	}
	// shellOption matches options of a shell that contain no code.
	shellOption = regexp.MustCompile(`^([-+][abefhilmnprtuvxBEHPTkoO]+|--(login|norc|noprofile|posix|verbose|restricted)?)$`)
	// evaluates matches options with which an interpreter takes code.
	evaluates    = regexp.MustCompile(`^(-[A-Za-z0-9]*[ceErpnBRFx]|--?(eval|print|exec|execute|command|run|require|import)\b)`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// javaOption matches the start of java options that may end in a start value.
	javaOption = regexp.MustCompile(`^-(D[^=]+=|XX:[A-Za-z0-9]+=)`)
	javaSize   = regexp.MustCompile(`^-X(mx|ms|mn|ss)$`)
	size       = regexp.MustCompile(`^[0-9]{1,12}[kKmMgGtT]?$`)
	number     = regexp.MustCompile(`^-[0-9]+(\.[0-9]+)?$`)
	// javaCode are options of java that take a command or a file of options.
	javaCode = []string{"-XX:OnError=", "-XX:OnOutOfMemoryError=", "-XX:Flags=", "-XX:VMOptionsFile="}
)

// call checks a use in a simple command.
func (r *reader) call(c *syntax.CallExpr, word *syntax.Word, u use) error {
	if len(c.Args) == 0 {
		return refuse(u.key, "the shell variable "+u.assigned+": use it where the variable is used")
	}
	program, name, err := r.program(c, word, &u)
	if err != nil {
		return err
	}
	before, err := r.value(word, u)
	if err != nil {
		return err
	}
	at := slices.Index(c.Args, word)
	if u.assigned != "" {
		at = len(c.Args) // every argument may read it
	}
	kind := strings.TrimRight(name, versions)
	switch {
	case slices.Contains(readers, name), r.functions[name]:
		return refuse(u.key, "a command of "+name+", which may read it as code")
	case slices.Contains(shells, kind), slices.Contains(interpreters, kind):
		return script(c.Args, program, at, kind, u.key)
	case u.assigned != "":
	case kind == "java":
		return java(c.Args, program, at, before, r.values.Start[u.key], u.key)
	case (name == "echo" || name == "printf") && (u.redirected || r.redirected):
		return refuse(u.key, "what "+name+" writes to another program or a file")
	case name == "printf" && (at == program+1 || !r.format(c.Args[program+1])):
		return refuse(u.key, "the format or an option of printf")
	}
	for _, w := range c.Args[program+1 : at] {
		text, _ := literal(w)
		if text = path.Base(text); slices.Contains(shells, text) || slices.Contains(interpreters, strings.TrimRight(text, versions)) || text == "eval" {
			return refuse(u.key, "a command behind "+text+", which may read it as code")
		}
	}
	return nil
}

// format reports whether the first argument of printf is its format and not an option: printf -v
// takes the name of a variable, whose subscript bash evaluates.
func (r *reader) format(word *syntax.Word) bool {
	text := strings.TrimLeft(r.text[word.Pos().Offset():word.End().Offset()], `'"`)
	return text != "" && !strings.ContainsAny(text[:1], "-$`\\")
}

// program finds the program of a simple command after any wrappers. A use in an assignment of env
// becomes a use in a shell assignment.
func (r *reader) program(c *syntax.CallExpr, word *syntax.Word, u *use) (at int, name string, err error) {
	if isCode(u.assigned) {
		return 0, "", refuse(u.key, "the environment variable "+u.assigned+", which decides what is run")
	}
	for at < len(c.Args) {
		if c.Args[at] == word {
			return 0, "", refuse(u.key, "the name of the program that is run")
		}
		if name = programName(c.Args[at]); name == "" {
			return 0, "", refuse(u.key, "a command whose program the text does not name")
		}
		if _, wraps := wrappers[name]; !wraps {
			return at, name, nil
		}
		if at, err = wrapped(c.Args, at, name, word, u); err != nil {
			return 0, "", err
		}
	}
	return 0, "", refuse(u.key, "a command that runs no program")
}

// wrapped returns the index at which the command of a wrapper starts.
func wrapped(words []*syntax.Word, at int, name string, word *syntax.Word, u *use) (int, error) {
	own := wrappers[name]
	operands, options := own.operands, true
	for at++; at < len(words); at++ {
		text, static := literal(words[at])
		variable, _, assigns := strings.Cut(text, "=")
		assigns = assigns && name == "env" && variableName.MatchString(variable)
		option := options && static && len(text) > 1 && text[0] == '-'
		switch {
		case assigns && words[at] == word:
			if isCode(variable) {
				return 0, refuse(u.key, "the environment variable "+variable+", which decides what is run")
			}
			u.assigned = variable
		case words[at] == word:
			return 0, refuse(u.key, "a word that decides what "+name+" runs")
		case assigns:
		case option && text == "--":
			options = false
		case option && strings.HasPrefix(text, "--") && !strings.Contains(text, "="),
			option && name == "env" && strings.Contains(text, "S"), option && strings.HasPrefix(text, "--split"):
			return 0, refuse(u.key, "a command of "+name+" with the option "+text+": use its short form")
		case option:
			if n := strings.IndexAny(text[1:], own.options); n >= 0 && n == len(text)-2 && text[1] != '-' {
				if at++; at < len(words) && words[at] == word {
					return 0, refuse(u.key, "an option of "+name)
				}
			}
		case operands > 0 && static:
			operands--
		default:
			return at, nil
		}
	}
	return at, nil
}

// programName returns the base name of a word that names a program, "" if the shell determines it.
func programName(w *syntax.Word) string {
	if text, static := literal(w); static {
		return path.Base(text)
	}
	last := w.Parts[len(w.Parts)-1]
	if q, ok := last.(*syntax.DblQuoted); ok && !q.Dollar && len(q.Parts) > 0 {
		last = q.Parts[len(q.Parts)-1]
	}
	lit, ok := last.(*syntax.Lit)
	if !ok || strings.ContainsAny(lit.Value, globs) {
		return ""
	}
	slash := strings.LastIndexByte(lit.Value, '/')
	if slash < 0 {
		return ""
	}
	return lit.Value[slash+1:]
}

// value checks a value at its position, and returns the text before it in its word without quotes
// and other placeholders.
func (r *reader) value(word *syntax.Word, u use) (before string, err error) {
	for _, p := range word.Parts {
		if lit, ok := p.(*syntax.Lit); ok && strings.ContainsAny(lit.Value, globs) {
			return "", refuse(u.key, "a word that the shell expands, or that has a backslash")
		}
	}
	from := int(word.Pos().Offset())
	before = r.text[from:u.at]
	for _, m := range slices.Backward(r.marks) {
		if m.from >= from && m.to <= u.at {
			before = before[:m.from-from] + before[m.to-from:]
		}
	}
	before = strings.NewReplacer(`'`, "", `"`, "").Replace(before)
	value := r.values.Start[u.key]
	if begins := before == "" || before[0] == '$'; begins && u.assigned == "" && strings.HasPrefix(value, "-") && !number.MatchString(value) {
		return "", errs.Field("variables."+u.key, "must not begin with - where it begins an argument: the program would take it for an option")
	}
	return before, nil
}

// script returns nil if an argument comes after the file that an interpreter runs.
func script(words []*syntax.Word, program, at int, name, key string) error {
	refused := refuse(key, "a command of "+name+", which may read it as code: only arguments behind the file that it runs are safe")
	shell := slices.Contains(shells, name)
	for n := program + 1; n < at; n++ {
		text, static := literal(words[n])
		option := strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+")
		switch {
		case !static && programName(words[n]) == "":
			return refused
		case option && shell && !shellOption.MatchString(text):
			return refused
		case option && !shell && text == "-m": // the module that follows
			n++
			if n >= at {
				return refused
			}
			return nil
		case option && !shell && evaluates.MatchString(text):
			return refused
		case option && shell && !strings.HasPrefix(text, "--"): // each o takes a word of its own
			n += strings.Count(strings.ToLower(text), "o")
		case option:
		case shell, strings.ContainsAny(programOr(words[n], text), "./"):
			return nil
		}
	}
	return refused
}

// programOr returns a word's text or, if the shell expands it, its end.
func programOr(w *syntax.Word, text string) string {
	if text == "" {
		return "/" + programName(w)
	}
	return text
}

// java returns nil if an argument belongs to the program that java runs, or is an option that may
// end in a start value.
func java(words []*syntax.Word, program, at int, before, value, key string) error {
	for n := program + 1; n < at; n++ {
		text, static := literal(words[n])
		switch {
		case static && text == "-jar", static && (text == "-m" || text == "--module"):
			if n+1 < at {
				return nil
			}
			return refuse(key, "the program that java runs")
		case static && (text == "-cp" || text == "-classpath" || text == "-p"), static && strings.HasPrefix(text, "--") && !strings.Contains(text, "="):
			n++ // it may take a word of its own
		case static && !strings.HasPrefix(text, "-"):
			return nil
		}
	}
	switch {
	case javaSize.MatchString(before) && size.MatchString(value):
		return nil
	case javaSize.MatchString(before):
		return errs.Field("variables."+key, "must be a size such as 512 or 2G: it is part of an option of java")
	case slices.ContainsFunc(javaCode, func(o string) bool { return strings.HasPrefix(before, o) }), !javaOption.MatchString(before):
		return refuse(key, "an option of java that decides what it runs")
	case len(before)+len(value) > maxArgument, strings.ContainsFunc(value, unicode.IsControl):
		return errs.Field("variables."+key, "must have no control characters and leave at most %d bytes: it is part of an option of java", maxArgument)
	}
	return nil
}
