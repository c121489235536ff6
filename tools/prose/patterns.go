package main

import "regexp"

// pattern finds one way of hiding who does what.
type pattern struct {
	name string
	// find matches such a sentence.
	find *regexp.Regexp
	// except matches sentences that only look like it. It may be nil.
	except *regexp.Regexp
}

// code matches quoted code in prose, which is not a sentence's words.
var code = regexp.MustCompile("`[^`]*`")

// match returns the name of the first pattern that a sentence matches.
func match(sentence string) (name string, ok bool) {
	words := code.ReplaceAllString(sentence, "X")
	for _, p := range patterns {
		if p.find.MatchString(words) && (p.except == nil || !p.except.MatchString(words)) {
			return p.name, true
		}
	}
	return "", false
}

// patterns were collected from the sentences of this repository that readers did not understand.
var patterns = []pattern{
	{
		name:   "a clause is the subject",
		find:   regexp.MustCompile(`^(?:Who|Whoever|What|Whatever|That|Which|Where|Whether)\b[^.,:;?!]* (?:is|are|was|were|has|have|had|may|can|does|do|goes|gets|comes|stays|stands|needs|keeps|waits|ends|tells)\b`),
		except: regexp.MustCompile(`\?|^(?:That|Which) (?:is|are|means|may|can|was)\b`),
	},
	{
		name: "a relative clause without a noun",
		find: regexp.MustCompile(`(?i)(?:[,;:(] |\b(?:and|or|but|than|of|by|for|from|to|in|on|with|as|until|while) )(?:who|whoever|what|whatever) (?:is|are|was|were|has|have|had|may|can|cannot|comes?|goes|runs|waits|asks?|asked|knows?|holds?|stands?|lies|needs?|reads?|calls?|makes?|takes?|it|they|nobody|became|becomes|changed|changes)\b`),
	},
	{
		name: "told, said, heard of",
		find: regexp.MustCompile(`(?i)\b(?:is|are|was|were|be|been|being) (?:told|said|known of|heard of|asked for)\b|\btold (?:of|as|by|so)\b|\btells of\b`),
	},
	{
		name: "somebody has something done",
		find: regexp.MustCompile(`(?i)\b(?:has|have|had|having) (?:it|them|him|itself|those|one|that|somebody) (?:be|known|told|done|made|said|taken|given|looked|removed|stopped|started|read|wait|end|go)\b`),
	},
	{
		name: "nobody, somebody, whoever",
		find: regexp.MustCompile(`(?i)\b(?:nobody|somebody|everybody|whoever|whatever|wherever|whosever)\b`),
	},
	{
		name: "an archaic or figurative word",
		find: regexp.MustCompile(`(?i)\b(?:anew|in vain|mend(?:s|ed|ing)?|thereby|therein|whereof|hitherto|henceforth|at last|beforehand|lest|save for|as yet|(?:goes|go|went|going) on|stands? (?:in|at|for|there|beside|behind)|lies (?:in|at|where)|came? of it|becomes of|blame[sd]?)\b`),
	},
	{
		name: "of which",
		find: regexp.MustCompile(`(?i)\bof which\b`),
	},
	{
		name: "there is none",
		find: regexp.MustCompile(`(?i)\b(?:there (?:is|are|was|were) none|(?:has|have|had) none)\b`),
	},
}
