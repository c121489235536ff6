package process

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// plain is the words of a command that is nothing but a program with its arguments: then
// no shell is needed to read it, which spares half of what a start costs. ok is false
// for one that bash may take for anything else.
func plain(command string, env []string) (words []string, ok bool) {
	if slices.ContainsFunc(env, alters) || strings.ContainsFunc(command, func(c rune) bool { return !harmless(c) }) {
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
	case !explicit && !strings.Contains(words[0], "/"): // a word of bash itself, perhaps
		return nil, false
	}
	return words, true
}

// runnable reports whether the kernel itself runs a program: what it refuses, a shell
// has its own ways with, and its own words for.
func runnable(program, dir string, env []string) bool {
	if strings.Contains(program, "/") {
		return begins(filepath.Join(dir, program), program)
	}
	for _, v := range slices.Backward(env) {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			return slices.ContainsFunc(filepath.SplitList(path), func(in string) bool {
				return filepath.IsAbs(in) && begins(filepath.Join(in, program), program)
			})
		}
	}
	return false
}

// begins reports whether a file begins like a program, or names one that reads it.
func begins(path, program string) bool {
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

// harmless reports whether a character means nothing but itself to a shell, or parts words.
func harmless(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(" ./_-+=:,@%", c)
}

// alters reports whether a variable changes what bash makes of a command.
func alters(variable string) bool {
	return strings.HasPrefix(variable, "BASH") || strings.HasPrefix(variable, "SHELLOPTS=")
}
