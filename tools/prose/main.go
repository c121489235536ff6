// Command prose finds sentences that a reader has to decode: in comments and
// messages of Go files, in Markdown, and in the texts of the API description.
//
//	prose [-limit N] [-n N] [PATH...]
//	prose -commits RANGE
//
// It prints the worst files and the number of findings in 1,000 sentences, and
// exits 1 when that number is above -limit. With -n it prints the first N
// findings instead of the files. With -commits it checks that the subjects of
// the commits in a range have at most 72 characters. It exits 2 when it cannot
// read a file.
//
// A finding is a hint: rewrite the sentence so that it says who does what.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxSubject is the longest subject of a commit, in characters.
const maxSubject = 72

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("prose", flag.ContinueOnError)
	flags.SetOutput(stderr)
	limit := flags.Int("limit", 0, "findings allowed in 1,000 sentences")
	show := flags.Int("n", 0, "print the first `N` findings instead of the worst files")
	commits := flags.String("commits", "", "check the subjects of the commits in this `range`")
	if flags.Parse(args) != nil {
		return 2
	}
	if *commits != "" {
		return checkSubjects(*commits, stdout, stderr)
	}
	files, err := tracked(flags.Args())
	if err != nil {
		fmt.Fprintf(stderr, "prose: %v\n", err)
		return 2
	}
	total, findings := 0, []finding{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintf(stderr, "prose: %v\n", err)
			return 2
		}
		sentences := sentencesOf(path, text)
		total += len(sentences)
		findings = append(findings, check(path, sentences)...)
	}
	report(stdout, findings, *show)
	rate := perThousand(len(findings), total)
	fmt.Fprintf(stdout, "prose: %d of %d sentences need decoding, %.1f in 1,000 (limit %d)\n", len(findings), total, rate, *limit)
	if rate > float64(*limit) {
		fmt.Fprintln(stdout, "prose: rewrite some of them (bin/prose -n 50 lists them), so that each says who does what")
		return 1
	}
	return 0
}

// finding is one sentence that matches a pattern.
type finding struct {
	path, pattern string
	sentence
}

// check returns at most one finding for each sentence.
func check(path string, sentences []sentence) []finding {
	var out []finding
	for _, s := range sentences {
		if name, ok := match(s.text); ok {
			out = append(out, finding{path: path, pattern: name, sentence: s})
		}
	}
	return out
}

// report prints the first n findings, or the files with most of them when n is 0.
func report(w io.Writer, findings []finding, n int) {
	if n > 0 {
		for _, f := range findings[:min(n, len(findings))] {
			fmt.Fprintf(w, "%s:%d: %s: %s\n", f.path, f.line, f.pattern, f.text)
		}
		return
	}
	count := map[string]int{}
	var paths []string
	for _, f := range findings {
		if count[f.path]++; count[f.path] == 1 {
			paths = append(paths, f.path)
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	for _, p := range paths[:min(10, len(paths))] {
		fmt.Fprintf(w, "%5d  %s\n", count[p], p)
	}
}

func perThousand(n, total int) float64 { return 1000 * float64(n) / float64(max(total, 1)) }

// tracked lists the files of git's index under the given paths, or all of them.
// It leaves out deleted files.
func tracked(paths []string) ([]string, error) {
	names, err := git(append([]string{"ls-files", "--"}, paths...)...)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		_, err := os.Lstat(name)
		return err != nil
	}), nil
}

func checkSubjects(commits string, stdout, stderr io.Writer) int {
	subjects, err := git("log", "--format=%h %s", commits)
	if err != nil {
		fmt.Fprintf(stderr, "prose: %v\n", err)
		return 2
	}
	code := 0
	for _, line := range subjects {
		hash, subject, _ := strings.Cut(line, " ")
		if n := utf8.RuneCountInString(subject); n > maxSubject {
			fmt.Fprintf(stdout, "%s: the subject has %d characters, at most %d are allowed: %s\n", hash, n, maxSubject, subject)
			code = 1
		}
	}
	return code
}

// git returns the lines that a git command prints.
func git(args ...string) ([]string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' }), nil
}
