package process

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// simpleCommand splits a command that is only a program with arguments. It can run without a shell,
// which halves the cost of a start (see BenchmarkStart). ok is false if bash might interpret
// the command in any other way.
func simpleCommand(command string, env []string) (words []string, ok bool) {
	if slices.ContainsFunc(env, altersBash) || strings.ContainsFunc(command, func(c rune) bool { return !isLiteral(c) }) {
		return nil, false
	}
	words = strings.Fields(command)
	explicit := len(words) > 0 && words[0] == "exec"
	if explicit {
		words = words[1:]
	}
	switch {
	case len(words) == 0, strings.HasPrefix(words[0], "-"), strings.ContainsAny(words[0], "="):
		return nil, false
	case !explicit && !strings.Contains(words[0], "/"): // it may be a builtin or keyword
		return nil, false
	}
	return words, true
}

// runnable reports whether the kernel can execute a program. Otherwise a shell handles it, and prints
// its own error.
func runnable(program, dir string, env []string) bool {
	if strings.Contains(program, "/") {
		return isExecutable(filepath.Join(dir, program), program)
	}
	for _, v := range slices.Backward(env) {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			return slices.ContainsFunc(filepath.SplitList(path), func(in string) bool {
				return filepath.IsAbs(in) && isExecutable(filepath.Join(in, program), program)
			})
		}
	}
	return false
}

// isExecutable reports whether a file is an executable ELF file or script.
func isExecutable(path, program string) bool {
	if filepath.IsAbs(program) {
		path = program
	}
	fi, err := os.Stat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.Mode().Perm()&0o111 == 0 {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [4]byte
	n, _ := f.ReadAt(head[:], 0)
	return bytes.HasPrefix(head[:n], []byte("#!")) || string(head[:n]) == "\x7fELF"
}

// isLiteral reports whether a character has no special meaning for a shell, or separates words.
func isLiteral(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(" ./_-+=:,@%", c)
}

// altersBash reports whether a variable changes how bash runs a command.
func altersBash(variable string) bool {
	return strings.HasPrefix(variable, "BASH") || strings.HasPrefix(variable, "SHELLOPTS=")
}
