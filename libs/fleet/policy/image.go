package policy

import (
	"regexp"
	"slices"
	"strings"
)

// reference is an image reference with the engine's defaults filled in.
type reference struct {
	// name has the registry: docker.io/library/debian.
	name string
	// tag is "latest" if the reference has neither a tag nor a digest.
	tag string
	// digest decides if it is set: the engine then ignores the tag.
	digest string
}

var (
	host      = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?$`)
	component = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$`)
	tag       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	digest    = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	// imageID matches what the engine may take for the id of an image on its host.
	imageID = regexp.MustCompile(`^(sha256:)?[0-9a-f]+$`)
)

const (
	defaultRegistry = "docker.io"
	defaultTag      = "latest"
)

// parse reads a reference as the engine does. ok is false for an invalid one.
func parse(s string) (r reference, ok bool) {
	s, r.digest, ok = strings.Cut(s, "@")
	if ok && !digest.MatchString(r.digest) {
		return reference{}, false
	}
	if colon := strings.LastIndexByte(s, ':'); colon > strings.LastIndexByte(s, '/') {
		s, r.tag = s[:colon], s[colon+1:]
		if !tag.MatchString(r.tag) {
			return reference{}, false
		}
	}
	if r.name, ok = qualify(s); !ok {
		return reference{}, false
	}
	if r.tag == "" && r.digest == "" {
		r.tag = defaultTag
	}
	return r, true
}

// qualify adds the registry and library/ where the engine does.
func qualify(name string) (string, bool) {
	first, rest, slash := strings.Cut(name, "/")
	if !slash || !strings.ContainsAny(first, ".:") && first != "localhost" && strings.ToLower(first) == first {
		first, rest = defaultRegistry, name
	}
	if first == "index.docker.io" {
		first = defaultRegistry
	}
	if first == defaultRegistry && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	valid := host.MatchString(first) && !slices.ContainsFunc(strings.Split(rest, "/"), func(c string) bool { return !component.MatchString(c) })
	return first + "/" + rest, valid
}

// pattern is an entry of Policy.Images. A reference with a digest admits that image only, one with a tag
// that tag, and one with neither all tags and digests of the repository. With /* at the end it admits
// all repositories of a registry or of a path.
type pattern struct {
	reference
	// everything below name is admitted.
	everything bool
}

// parsePattern reads a pattern other than Any. ok is false for an invalid one.
func parsePattern(s string) (p pattern, ok bool) {
	if base, wild := strings.CutSuffix(s, "/*"); wild {
		const within = "x/x" // two components, because the engine adds library/ before one
		full, ok := qualify(base + "/" + within)
		return pattern{reference: reference{name: strings.TrimSuffix(full, within)}, everything: true}, ok && base != ""
	}
	r, ok := parse(s)
	if at, colon := strings.IndexByte(s, '@'), strings.LastIndexByte(s, ':'); at < 0 && colon <= strings.LastIndexByte(s, '/') {
		r.tag = ""
	}
	return pattern{reference: r}, ok && !imageID.MatchString(s)
}

func (p pattern) admits(r reference) bool {
	switch {
	case p.everything:
		return strings.HasPrefix(r.name, p.name)
	case p.name != r.name:
		return false
	case p.digest != "":
		return p.digest == r.digest
	case p.tag != "":
		return r.digest == "" && p.tag == r.tag
	}
	return true
}

func (p *Policy) checkImage(image string) *Refusal {
	refusal := &Refusal{Setting: SettingImages, Field: "container.image or CUSTOM_IMAGE", Value: image}
	if imageID.MatchString(image) {
		refusal.Hint = "the engine may take for the id of another image: give its repository and tag"
		return refusal
	}
	r, ok := parse(image)
	if !ok {
		refusal.Hint = "is not an image's reference"
		return refusal
	}
	for _, entry := range p.Images {
		if known, ok := parsePattern(entry); ok && known.admits(r) {
			return nil
		}
	}
	return refusal
}
