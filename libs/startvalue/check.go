package startvalue

import (
	"regexp"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

var (
	// image is the reference of a container's image: a name, and a tag or digest.
	image = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?$`)
	// address is a host name or IP address.
	address = regexp.MustCompile(`^[A-Za-z0-9:][A-Za-z0-9._:-]{0,254}$`)
)

// maxImage bounds an image's reference.
const maxImage = 1 << 10

// Image replaces the placeholders of the image that a plan runs in; empty for a runtime
// without images. Invalid where a value given at start makes it no reference of an image,
// or turns the text before it into the name of a registry.
func (v Values) Image(p fleet.Plan) (string, error) {
	if p.Runtime != fleet.RuntimeDocker {
		return "", nil
	}
	text := p.ImageReference()
	for _, key := range fleet.PlaceholdersIn(text) {
		if value, at := v.Start[key]; at && text != "%"+key+"%" && strings.ContainsAny(value, "/:@") {
			return "", errs.Field("variables."+key, "must not contain /, : or @: it is a part of container.image, and could name another registry")
		}
	}
	return v.checked(text, "container.image", "an image's reference", func(s string) bool { return len(s) <= maxImage && image.MatchString(s) })
}

// HostAddress replaces the placeholders of the address that an instance is advertised
// under. Invalid where a value given at start makes it no address.
func (v Values) HostAddress(text string) (string, error) {
	return v.checked(text, "hostAddress", "a host name or address", address.MatchString)
}

func (v Values) checked(text, field, what string, valid func(string) bool) (string, error) {
	given := ""
	value := func(name string) (string, bool) {
		if value, ok := v.Start[name]; ok {
			given = name
			return value, true
		}
		value, ok := v.Text[name]
		return value, ok
	}
	out, _ := fleet.Substitute(text, value)
	known, _ := fleet.Substitute(text, func(name string) (string, bool) { // a node may know the others
		if value, ok := value(name); ok {
			return value, true
		}
		return "x", true
	})
	if given != "" && !valid(known) {
		return out, errs.Field("variables."+given, "makes %s no longer %s: correct the value", field, what)
	}
	return out, nil
}

// Run is Command of a plan whose image and address are checked too.
func (v Values) Run(p fleet.Plan) (Command, error) {
	c, err := v.Command(p)
	if err == nil {
		_, err = v.HostAddress(p.HostAddress)
	}
	if err == nil {
		_, err = v.Image(p)
	}
	return c, err
}

// Check tells whether an instance of a plan can be started with values that are given at
// its start, as far as it is known before a node is chosen. Invalid, with the field
// variables.NAME, when not.
func Check(p fleet.Plan, given map[string]string) error {
	if len(given) == 0 {
		return nil
	}
	all := fleet.Placeholders(fleet.PlaceholderContext{Plan: p, Placement: fleet.Placement{Group: p.Group, Values: given}})
	for key := range p.Secrets {
		all[key] = "secret" // what stands for it is known on the node alone
	}
	_, err := Split(all, given).Run(p)
	return err
}
