package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct{ sentence, want string }{
		{"Drain serves the requests that wait in the accept queue.", ""},
		{"What was thrown away is counted.", "a clause is the subject"},
		{"What is a group?", ""},
		{"That is a mistake of the caller.", ""},
		{"It is sent to who waits for it.", "a relative clause without a noun"},
		{"The reason is told in the status.", "told, said, heard of"},
		{"The agent has it removed.", "somebody has something done"},
		{"The agent has removed it.", ""},
		{"The lock is taken by nobody.", "nobody, somebody, whoever"},
		{"The file is written anew.", "an archaic or figurative word"},
		{"The server `goes on` after that.", ""},
		{"Three files, two of which are empty.", "of which"},
		{"It returns nil when there is none.", "there is none"},
	} {
		if got, _ := match(c.sentence); got != c.want {
			t.Errorf("match(%q) = %q, want %q", c.sentence, got, c.want)
		}
	}
}

func TestEveryPatternHasAnExample(t *testing.T) {
	examples := []string{
		"Who waits is served.", "It is for who asks.", "It is told.", "It has them removed.", "Nobody knows.",
		"It is in vain.", "Parts of which differ.", "It has none.",
	}
	var found []string
	for _, e := range examples {
		name, _ := match(e)
		found = append(found, name)
	}
	for _, p := range patterns {
		if !slices.Contains(found, p.name) {
			t.Errorf("no example matches %q", p.name)
		}
	}
}

func TestSentencesOf(t *testing.T) {
	for _, c := range []struct {
		name, path, text string
		want             []sentence
	}{
		{
			"comments and messages of Go", "a.go",
			"// Package a is the first letter. It has\n// two sentences.\n//\n//\tan example is code\npackage a\n\nvar s = \"a message of five words\"\nvar short = \"four words are short\"\n",
			[]sentence{{1, "Package a is the first letter."}, {1, "It has two sentences."}, {7, "a message of five words"}},
		},
		{
			"literals of tests are not prose", "a_test.go",
			"package a\n\n// A comment in a test.\nvar s = \"a message of five words\"\n",
			[]sentence{{3, "A comment in a test."}},
		},
		{
			"Markdown without code", "a.md",
			"# A short heading\n\nA paragraph that\ncontinues. It ends.\n- the first item here\n- the second item here\n\n```sh\necho this is code\n```\n| a cell of a table | x |\n",
			[]sentence{{1, "A short heading"}, {3, "A paragraph that continues."}, {5, "the first item here"}, {6, "the second item here"}, {11, "a cell of a table"}},
		},
		{
			"texts of the API description", "a.json",
			"{\"summary\": \"List the groups\",\n \"get\": {\"description\": \"One group. With its reasons.\", \"name\": \"not a text at all\"}}",
			[]sentence{{1, "List the groups"}, {2, "With its reasons."}},
		},
		{"other files", "a.txt", "Some text that is ignored.", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := sentencesOf(c.path, []byte(c.text)); !slices.Equal(got, c.want) {
				t.Errorf("sentencesOf = %v, want %v", got, c.want)
			}
		})
	}
}

// repository makes a git repository with one commit for each subject and enters it.
func repository(t *testing.T, text string, subjects ...string) {
	t.Helper()
	t.Chdir(t.TempDir())
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(".", "a.md"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	git("init", "-q", "-b", "main")
	git("add", ".")
	for _, s := range subjects {
		git("commit", "-q", "--allow-empty", "-m", s)
	}
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name, text string
		subjects   []string
		args       []string
		code       int
		want       string
	}{
		{"plain text passes", "The agent starts the server.\n", []string{"a"}, nil, 0, "0 of 1 sentences"},
		{"a riddle fails", "Who waits is served.\n", []string{"a"}, nil, 1, "1 of 1 sentences"},
		{"a limit allows findings", "Who waits is served.\n", []string{"a"}, []string{"-limit", "1000"}, 0, "1000.0 in 1,000"},
		{"findings are listed on request", "Who waits is served.\n", []string{"a"}, []string{"-n", "5"}, 1, "a.md:1: a clause is the subject: Who waits is served."},
		{"short subjects pass", "", []string{"a", "b: do this"}, []string{"-commits", "HEAD"}, 0, ""},
		{"a long subject fails", "", []string{"a", strings.Repeat("long ", 15)}, []string{"-commits", "HEAD~1..HEAD"}, 1, "the subject has 74 characters"},
		{"a range that does not exist", "", []string{"a"}, []string{"-commits", "gone..HEAD"}, 2, "git log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			repository(t, c.text, c.subjects...)
			var out bytes.Buffer
			if code := run(c.args, &out, &out); code != c.code {
				t.Errorf("exit code = %d, want %d", code, c.code)
			}
			if !strings.Contains(out.String(), c.want) {
				t.Errorf("output lacks %q:\n%s", c.want, out.String())
			}
		})
	}
}
