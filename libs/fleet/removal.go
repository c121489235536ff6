package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FewRemoved is how much a source may always remove in one look; more only when that
// is at most half of what it has published.
const FewRemoved = 4

// Removal is what is to become of the things that a source published and has no more:
// of its templates, or its groups. All names are in order.
type Removal struct {
	// Go are removed, after everything else was done.
	Go []string
	// Kept stay until they are confirmed: the source was changed or made anew since it
	// had them, so that nobody knows that they were taken out of it.
	Kept []string
	// Awaited stay until they were missing for long enough: they are not there now, which
	// alone orders nothing.
	Awaited []string
	// Held says that Go is most of many: nothing of the look is applied.
	Held bool
	// Published is how many things there were.
	Published int
}

// DecideRemoval decides what goes. published are the names of what the source has
// published; they are true when they were seen where it is looked for now. Absence
// alone orders nothing: confirmed says that somebody has looked at what would go.
func DecideRemoval(published map[string]bool, present func(name string) bool, confirmed bool) Removal {
	r := Removal{Published: len(published)}
	for _, name := range slices.Sorted(maps.Keys(published)) {
		switch {
		case present(name):
		case published[name] || confirmed:
			r.Go = append(r.Go, name)
		default:
			r.Kept = append(r.Kept, name)
		}
	}
	r.Held = !confirmed && len(r.Go) > FewRemoved && 2*len(r.Go) > r.Published
	return r
}

// Await has what would go wait until it was missing for long enough, or is confirmed.
func (r Removal) Await() Removal {
	if !r.Held {
		r.Awaited, r.Go = r.Go, nil
	}
	return r
}

// Waiting are the names that go only when they are confirmed, or were missing for long
// enough.
func (r Removal) Waiting() []string { return slices.Concat(r.Awaited, r.Kept) }

// Tell says what is held back of things of one kind, and how it is confirmed; "" when
// nothing is. noun is their plural, confirm what names all that waits.
func (r Removal) Tell(noun, confirm string) string {
	ask := fmt.Sprintf(`ask for a sync with {"confirm": "%s"}`, confirm)
	if r.Held {
		return fmt.Sprintf("held: %d of %d %s would be removed (%s); if that is meant, %s", len(r.Go), r.Published, noun, few(r.Go), ask)
	}
	var told []string
	if len(r.Awaited) > 0 {
		told = append(told, fmt.Sprintf("waiting: %d of %d %s are not there now (%s), and are removed when they are not for a minute in which no file comes or goes; to remove them at once, %s",
			len(r.Awaited), r.Published, noun, few(r.Awaited), ask))
	}
	if len(r.Kept) > 0 {
		told = append(told, fmt.Sprintf("kept: %d of %d %s are not where the source is looked for now, but were published by it before it was changed or made anew, or looked for elsewhere (%s); to remove them, %s",
			len(r.Kept), r.Published, noun, few(r.Kept), ask))
	}
	return strings.Join(told, "; ")
}

// few names the first of many.
func few(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
