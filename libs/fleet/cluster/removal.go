package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FewRemoved is how many things a source may always remove in one sync. It may remove more only if
// they are at most half of the things it published.
const FewRemoved = 4

// Removal is what happens to things (templates or groups) that a source published and no longer
// contains. All names are sorted.
type Removal struct {
	// Go are removed, after all other changes.
	Go []string
	// Kept stay until their removal is confirmed: the source was changed or recreated since it
	// published them, so they may never have been removed from it.
	Kept []string
	// Awaited stay until they have been missing for long enough. They are missing now, but that
	// alone is not enough.
	Awaited []string
	// Held is true if Go contains most of the published things. Nothing of this sync is applied
	// then.
	Held bool
	// Published is how many things the source had published.
	Published int
}

// DecideRemoval decides which things are removed. published maps the names of what the source has
// published to whether they were seen at the source's current place. present reports whether the
// source contains a name now. confirmed says that a user has confirmed the removals.
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

// Await makes the removals wait until the things have been missing for long enough, or are
// confirmed.
func (r Removal) Await() Removal {
	if !r.Held {
		r.Awaited, r.Go = r.Go, nil
	}
	return r
}

// Waiting returns the names that are removed only after a confirmation or after they have been
// missing for long enough.
func (r Removal) Waiting() []string { return slices.Concat(r.Awaited, r.Kept) }

// Tell describes what is held back and how to confirm it, "" if nothing is. noun is the plural of
// the things, confirm the value that confirms them.
func (r Removal) Tell(noun, confirm string) string {
	ask := fmt.Sprintf(`request a sync with {"confirm": "%s"}`, confirm)
	if r.Held {
		return fmt.Sprintf("held: %d of %d %s would be removed (%s); if this is intended, %s", len(r.Go), r.Published, noun, few(r.Go), ask)
	}
	var told []string
	if len(r.Awaited) > 0 {
		told = append(told, fmt.Sprintf("waiting: %d of %d %s are missing (%s); they are removed once they have been missing for a minute without other changes to the files; to remove them now, %s",
			len(r.Awaited), r.Published, noun, few(r.Awaited), ask))
	}
	if len(r.Kept) > 0 {
		told = append(told, fmt.Sprintf("kept: %d of %d %s are not in the source, but it published them before it was changed, recreated or moved (%s); to remove them, %s",
			len(r.Kept), r.Published, noun, few(r.Kept), ask))
	}
	return strings.Join(told, "; ")
}

// few joins the first names and counts the others.
func few(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
