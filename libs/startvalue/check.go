package startvalue

import (
	"regexp"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
)

var (
	// image matches the reference of a container image: a name with a tag or digest.
	image = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{64})?$`)
	// address matches a host name or IP address.
	address = regexp.MustCompile(`^[A-Za-z0-9:][A-Za-z0-9._:-]{0,254}$`)
)

// maxImage bounds an image reference, in bytes.
const maxImage = 1 << 10

// Image replaces the placeholders of a plan's container image. It is empty for runtimes without
// images. The error is Invalid if a start value makes it an invalid reference or could select
// another registry.
func (v Values) Image(p fleet.Plan) (string, error) {
	if p.Runtime != fleet.RuntimeDocker {
		return "", nil
	}
	text := p.ImageReference()
	for _, key := range configfile.PlaceholdersIn(text) {
		if value, at := v.Start[key]; at && text != "%"+key+"%" && strings.ContainsAny(value, "/:@") {
			return "", errs.Field("variables."+key, "must not contain /, : or @: it is a part of container.image, and could name another registry")
		}
	}
	return v.checked(text, "container.image", "an image's reference", func(s string) bool { return len(s) <= maxImage && image.MatchString(s) })
}

// HostAddress replaces the placeholders of an advertised address. The error is Invalid if a start
// value makes it an invalid address.
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
	out, _ := configfile.Substitute(text, value)
	known, _ := configfile.Substitute(text, func(name string) (string, bool) { // a node may know the others
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

// Run is Command with additional checks of the image and address.
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

// Check reports whether an instance of a plan can start with the given start values, as far as
// this is known before a node is chosen. The error is Invalid for the field variables.NAME.
func Check(p fleet.Plan, given map[string]string) error {
	if len(given) == 0 {
		return nil
	}
	all := compose.Placeholders(compose.PlaceholderContext{Plan: p, Placement: fleet.Placement{Group: p.Group, Values: given}})
	for key := range p.Secrets {
		all[key] = "secret" // what stands for it is known on the node alone
	}
	_, err := Split(all, given).Run(p)
	return err
}
