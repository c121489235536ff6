package command

import (
	"iter"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store/view"
)

// MaxOffered limits the number of completions.
const MaxOffered = 100

// Complete returns sorted completions of the last word of a line, or of the next word if the line ends
// with a space. They are words of the commands that the caller may run and names of resources that the
// caller may see. It returns nothing for a line it cannot parse.
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
	may := slices.DeleteFunc(slices.Clone(commands), func(c command) bool { return !c.allows(who) })
	return offered(next(may, s, who, words), typed)
}

// begun splits a line into its complete words and the word being typed. ok is false if a quote is open.
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

// offered returns the first MaxOffered words in order with the typed prefix, ignoring case. It keeps no
// other words, so that memory does not grow with the fleet. It omits words that need quotes.
func offered(all iter.Seq[string], typed string) (out []string) {
	typed = strings.ToLower(typed)
	for word := range all {
		full := len(out) == MaxOffered
		if word == "" || full && word >= out[len(out)-1] || !strings.HasPrefix(strings.ToLower(word), typed) || strings.ContainsAny(word, " \t\"'\\") {
			continue
		}
		at, there := slices.BinarySearch(out, word)
		if there {
			continue
		}
		if full {
			out = out[:len(out)-1]
		}
		out = slices.Insert(out, at, word)
	}
	return out
}

// nothing is an empty sequence.
func nothing(func(string) bool) {}

// next returns the words that may follow words.
func next(commands []command, s *view.Snapshot, who auth.Identity, words []string) iter.Seq[string] {
	if len(words) == 0 {
		return slices.Values(firstWords(commands))
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
		return nothing
	case of[0].first() == "help":
		return slices.Values(wordsOfNames(commands, words[1:]))
	case of[0].last() == "":
		return of[0].values(len(words)-1, s, who)
	case len(words) == 1:
		return slices.Values(wordsOfNames(of, []string{first}))
	}
	last := strings.ToLower(words[1])
	for _, c := range of {
		if c.last() == last || slices.Contains(c.other, last) {
			return c.values(len(words)-2, s, who)
		}
	}
	return nothing
}

// firstWords returns the words a line may begin with.
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

// wordsOfNames returns the words that may follow begun in a command's name.
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

// values returns the known values of argument n.
func (c *command) values(n int, s *view.Snapshot, who auth.Identity) iter.Seq[string] {
	if n >= len(c.args) {
		return nothing
	}
	see := func(p auth.Permission, names iter.Seq[string]) iter.Seq[string] {
		if !who.Can(p) {
			return nothing
		}
		return names
	}
	switch arg := c.args[n]; {
	case arg == "<id>" && c.first() == "instance":
		return see(auth.InstancesView, instanceWords(s))
	case arg == "<config>", arg == "<name>" && c.name == "config show":
		return see(auth.GroupsView, groupWords(s))
	case arg == "[node]":
		return see(auth.NodesView, nodeWords(s))
	case arg == "<runtime>":
		return see(auth.NodesView, runtimeWords(s))
	case arg == "<pattern>" && c.name == "template sync":
		return see(auth.TemplatesView, templateWords(s))
	case arg == "<id>" && c.name == "key delete":
		return see(auth.TokensView, keyWords(s))
	case arg == "<ALL|PUBLIC>":
		return slices.Values([]string{keyAll, keyPublic})
	case arg == "[all]", arg == "[confirm]":
		return slices.Values([]string{strings.Trim(arg, "[]")})
	}
	return nothing
}

// each yields the words of every record in order.
func each[K, V any](all iter.Seq2[K, V], words func(K, V) []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for k, v := range all {
			for _, word := range words(k, v) {
				if !yield(word) {
					return
				}
			}
		}
	}
}

// instanceWords returns the IDs and names of the instances.
func instanceWords(s *view.Snapshot) iter.Seq[string] {
	return each(s.Instances.All(), func(id fleet.InstanceID, i *fleet.Instance) []string { return []string{string(id), i.Intent.Name} })
}

func groupWords(s *view.Snapshot) iter.Seq[string] {
	return each(s.Groups.All(), func(name fleet.GroupName, g *fleet.Group) []string {
		if g.Deleting {
			return nil
		}
		return []string{string(name)}
	})
}

func nodeWords(s *view.Snapshot) iter.Seq[string] {
	return each(s.Nodes.All(), func(id fleet.NodeID, _ *fleet.Node) []string { return []string{string(id)} })
}

func runtimeWords(s *view.Snapshot) iter.Seq[string] {
	return each(s.Nodes.All(), func(_ fleet.NodeID, n *fleet.Node) (out []string) {
		for _, r := range n.Runtimes {
			if r.Offered {
				out = append(out, string(r.Name))
			}
		}
		return out
	})
}

// templateWords returns template patterns: all, all of each group, and each template.
func templateWords(s *view.Snapshot) iter.Seq[string] {
	of := each(s.TemplateHeads.All(), func(_ string, h *content.TemplateHead) []string {
		if h.Hidden() {
			return nil
		}
		return []string{h.Group + "/*", h.Group + "/" + h.Name}
	})
	return func(yield func(string) bool) {
		if yield("*") {
			of(yield)
		}
	}
}

func keyWords(s *view.Snapshot) iter.Seq[string] {
	return each(s.APITokens.All(), func(_ string, t *account.APIToken) []string { return []string{t.Name} })
}
