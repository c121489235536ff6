package main

import (
	"slices"
	"strings"
	"unicode"
)

// initialisms are words that Go writes in capitals, by their form in lower case.
var initialisms = map[string]string{
	"api": "API", "cn": "CN", "cns": "CNs", "cors": "CORS", "cpu": "CPU", "dns": "DNS", "gb": "GB", "gc": "GC", "http": "HTTP", "id": "ID",
	"ids": "IDs", "io": "IO", "ip": "IP", "json": "JSON", "jvm": "JVM", "mb": "MB", "mdc": "MDC", "motd": "MOTD",
	"motds": "MOTDs", "mspt": "MSPT", "ok": "OK", "os": "OS", "pid": "PID", "ram": "RAM", "rcon": "RCON", "sha256": "SHA256",
	"ssh": "SSH", "tls": "TLS", "tps": "TPS", "tps1m": "TPS1m", "tps5m": "TPS5m", "tps15m": "TPS15m", "ttl": "TTL",
	"udp": "UDP", "uid": "UID", "uri": "URI", "url": "URL", "uuid": "UUID", "etag": "ETag",
}

// words splits a name at capitals and at characters that are neither letters nor digits. A run of
// capitals is one word.
func words(name string) []string {
	var out []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			out = append(out, string(word))
		}
		word = nil
	}
	letters := []rune(name)
	for i, r := range letters {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			end()
			continue
		case unicode.IsUpper(r) && i > 0:
			before := letters[i-1]
			last := i+1 < len(letters) && unicode.IsLower(letters[i+1]) // the capital begins the next word
			if !unicode.IsUpper(before) || last {
				end()
			}
		}
		word = append(word, r)
	}
	end()
	return out
}

// goName returns the exported Go name of a JSON name, an operation or a schema.
func goName(name string) string {
	var out strings.Builder
	for _, word := range words(name) {
		if initialism, ok := initialisms[strings.ToLower(word)]; ok {
			out.WriteString(initialism)
			continue
		}
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return out.String()
}

// singular returns the name of an element of a list.
func singular(name string) string {
	for _, suffix := range []struct{ plural, singular string }{{"ies", "y"}, {"sses", "ss"}, {"ss", "ss"}, {"s", ""}} {
		if stem, ok := strings.CutSuffix(name, suffix.plural); ok {
			return stem + suffix.singular
		}
	}
	return name
}

// allOf returns the name of the iterator of a method that returns a page.
func allOf(method string) string {
	for _, verb := range []string{"List", "Get"} {
		if rest, ok := strings.CutPrefix(method, verb); ok {
			return "All" + rest
		}
	}
	return "All" + method
}

// sentence turns a summary in the imperative into a sentence about a method: "Get a group" becomes
// "GetGroup gets a group." A summary without a verb becomes "GetToken: one token."
func sentence(method, summary string) string {
	first, rest, _ := strings.Cut(summary, " ")
	if slices.Contains([]string{"A", "An", "One", "The", "Tokens"}, first) {
		return method + ": " + lowered(summary) + "."
	}
	out := method + " " + thirdPerson(lowered(first))
	if rest != "" {
		out += " " + rest
	}
	for _, verb := range secondVerbs {
		for _, and := range []string{" and ", " or "} {
			out = strings.Replace(out, and+verb+" ", and+thirdPerson(verb)+" ", 1)
		}
	}
	return strings.TrimSuffix(out, ".") + "."
}

// secondVerbs are the verbs that summaries have after "and" and "or".
var secondVerbs = []string{"activate", "remove", "replace", "stop"}

// thirdPerson returns the third person of a verb.
func thirdPerson(verb string) string {
	switch {
	case verb == "":
		return ""
	case strings.HasSuffix(verb, "s"), strings.HasSuffix(verb, "x"), strings.HasSuffix(verb, "sh"), strings.HasSuffix(verb, "ch"), strings.HasSuffix(verb, "o"):
		return verb + "es"
	case strings.HasSuffix(verb, "y") && len(verb) > 1 && !strings.ContainsRune("aeiou", rune(verb[len(verb)-2])):
		return verb[:len(verb)-1] + "ies"
	}
	return verb + "s"
}

// lowered returns text with a small first letter, unless its first word is written in capitals.
func lowered(text string) string {
	if len(text) > 1 && unicode.IsUpper(rune(text[1])) {
		return text
	}
	return strings.ToLower(text[:min(1, len(text))]) + text[min(1, len(text)):]
}
