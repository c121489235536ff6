package command

import (
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/store/view"
)

// MaxOffered bounds the words that a line may go on with.
const MaxOffered = 100

// Complete is what the last word of a line may be, or, after a blank, the next: words of the
// commands that the caller may run, and names of what the caller may see. They are in order,
// and MaxOffered at most; nothing of a line that nobody understands.
func (i *Interpreter) Complete(who auth.Identity, line string) []string {
	if len(line) > maxLine {
		return nil
	}
	return complete(i.commands, i.cfg.Operations.Snapshot(), who, line)
}

func complete(commands []command, s *view.Snapshot, who auth.Identity, line string) []string {
	words, typed, ok := begun(line)
	if !ok {
		return nil
	}
	may := slices.DeleteFunc(slices.Clone(commands), func(c command) bool {
		return slices.ContainsFunc(c.needs, func(p auth.Permission) bool { return !who.Can(p) })
	})
	return offered(next(may, s, who, words), typed)
}

// begun are the words of a line that are complete, and the one that is not yet; ok is false
// when a quote has not ended.
func begun(line string) (words []string, typed string, ok bool) {
	r := &reader{line: line}
	for {
		word, more, err := r.word()
		switch {
		case err != nil:
			return nil, "", false
		case !more:
			return words, "", true
		case r.at == len(line):
			return words, word, true
		}
		words = append(words, word)
	}
}

// offered are those of some words that begin as the typed one does, whatever its capitals.
// Those that would have to be quoted are left out.
func offered(all []string, typed string) (out []string) {
	typed = strings.ToLower(typed)
	for _, word := range all {
		if word != "" && strings.HasPrefix(strings.ToLower(word), typed) && !strings.ContainsAny(word, " \t\"'\\") {
			out = append(out, word)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), MaxOffered)]
}

// next are the words that may follow some.
func next(commands []command, s *view.Snapshot, who auth.Identity, words []string) []string {
	if len(words) == 0 {
		return firstWords(commands)
	}
	first := strings.ToLower(words[0])
	if singular, ok := plurals[first]; ok {
		first = singular
	}
	var of []command
	for _, c := range commands {
		if c.first() == first || c.last() == "" && slices.Contains(c.other, first) {
			of = append(of, c)
		}
	}
	switch {
	case len(of) == 0:
		return nil
	case of[0].first() == "help":
		return wordsOfNames(commands, words[1:])
	case of[0].last() == "":
		return of[0].values(len(words)-1, s, who)
	case len(words) == 1:
		return wordsOfNames(of, []string{first})
	}
	last := strings.ToLower(words[1])
	for _, c := range of {
		if c.last() == last || slices.Contains(c.other, last) {
			return c.values(len(words)-2, s, who)
		}
	}
	return nil
}

// firstWords are the words that lines begin with.
func firstWords(commands []command) (out []string) {
	for _, c := range commands {
		out = append(out, c.first())
		if c.last() == "" {
			out = append(out, c.other...)
		}
	}
	for plural, singular := range plurals {
		if slices.ContainsFunc(commands, func(c command) bool { return c.name == singular+" list" }) {
			out = append(out, plural)
		}
	}
	return out
}

// wordsOfNames are the words with which a command's name goes on.
func wordsOfNames(commands []command, begun []string) (out []string) {
	if len(begun) == 0 {
		return firstWords(commands)
	}
	for _, c := range commands {
		if len(begun) == 1 && c.first() == strings.ToLower(begun[0]) && c.last() != "" {
			out = append(append(out, c.last()), c.other...)
		}
	}
	return out
}

// values are what the argument at a place may be, as far as that is known.
func (c *command) values(n int, s *view.Snapshot, who auth.Identity) (out []string) {
	if n >= len(c.args) {
		return nil
	}
	see := func(p auth.Permission, names func() []string) []string {
		if !who.Can(p) {
			return nil
		}
		return names()
	}
	switch arg := c.args[n]; {
	case arg == "<id>" && c.first() == "instance":
		return see(auth.InstancesView, func() []string { return instanceWords(s) })
	case arg == "<config>", arg == "<name>" && c.name == "config show":
		return see(auth.GroupsView, func() []string { return groupWords(s) })
	case arg == "[node]":
		return see(auth.NodesView, func() []string { return nodeWords(s) })
	case arg == "<runtime>":
		return see(auth.NodesView, func() []string { return runtimeWords(s) })
	case arg == "<pattern>" && c.name == "template sync":
		return see(auth.TemplatesView, func() []string { return templateWords(s) })
	case arg == "<id>" && c.name == "key delete":
		return see(auth.TokensView, func() []string { return keyWords(s) })
	case arg == "<ALL|PUBLIC>":
		return []string{keyAll, keyPublic}
	case arg == "[all]", arg == "[confirm]":
		return []string{strings.Trim(arg, "[]")}
	}
	return nil
}

// instanceWords are what instances are called by.
func instanceWords(s *view.Snapshot) (out []string) {
	for id, i := range s.Instances.All() {
		out = append(out, string(id), i.Intent.Name)
	}
	return out
}

func groupWords(s *view.Snapshot) (out []string) {
	for name, g := range s.Groups.All() {
		if !g.Deleting {
			out = append(out, string(name))
		}
	}
	return out
}

func nodeWords(s *view.Snapshot) (out []string) {
	for id := range s.Nodes.All() {
		out = append(out, string(id))
	}
	return out
}

func runtimeWords(s *view.Snapshot) (out []string) {
	for _, n := range s.Nodes.All() {
		for _, r := range n.Runtimes {
			if r.Offered {
				out = append(out, string(r.Name))
			}
		}
	}
	return out
}

// templateWords are patterns: all, those of a group, and each alone.
func templateWords(s *view.Snapshot) []string {
	out := []string{"*"}
	for _, h := range s.TemplateHeads.All() {
		if !h.Hidden() {
			ref := h.TemplateRef
			out = append(out, ref.Group+"/*", ref.Group+"/"+ref.Name)
		}
	}
	return out
}

func keyWords(s *view.Snapshot) (out []string) {
	for _, t := range s.APITokens.All() {
		out = append(out, t.Name)
	}
	return out
}
