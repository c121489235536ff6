package directory

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

var (
	errMisnamed  = errs.New(errs.Invalid, "the name of its directory is not a valid template name: rename it to 1 to 64 letters, digits, _ . and -, without a . at its beginning")
	errUnmounted = errs.New(errs.Invalid, "its directory is empty and on another file system than before: is it not mounted? it stays as it was published")
)

// reject logs and records why a template is not published in its current state.
func (d *Directory) reject(ref content.TemplateRef, err error) {
	d.complain(ref.String(), "template not published", err)
	d.refuse(ref.String(), errs.MessageOf(err))
}

// refuse records why a template is not published in its current state; "" clears it.
func (d *Directory) refuse(name, why string) { d.noteOf(d.refused, name, why) }

// remark records a note on a template that is published; "" clears it.
func (d *Directory) remark(name, what string) { d.noteOf(d.remarks, name, what) }

func (d *Directory) noteOf(notes map[string]string, name, text string) {
	if notes[name] == text {
		return
	}
	d.statusStale = true
	if notes[name] = text; text == "" {
		delete(notes, name)
	}
}

// tellRefused adds the refused templates and the remarks to the status.
func (d *Directory) tellRefused(status *content.TemplateDirectory) {
	for _, notes := range []map[string]string{d.refused, d.remarks} {
		maps.DeleteFunc(notes, func(name, _ string) bool {
			_, err := os.Lstat(filepath.Join(d.cfg.Dir, name))
			return errors.Is(err, fs.ErrNotExist)
		})
	}
	status.Items = d.items()
	if len(d.refused) == 0 {
		return
	}
	first := slices.Min(slices.Collect(maps.Keys(d.refused)))
	told := fmt.Sprintf("%s is not published as it is: %s", first, d.refused[first])
	if more := len(d.refused) - 1; more > 0 {
		told += fmt.Sprintf(" (nor are %d more)", more)
	}
	if status.State == content.SourceInSync {
		status.State, status.Message = content.SourceFailed, told
		return
	}
	status.Message += "; " + told
}

// items returns the refused templates and the remarks, sorted by name.
func (d *Directory) items() (items []content.SourceItem) {
	told := maps.Clone(d.remarks)
	maps.Copy(told, d.refused)
	names := slices.Sorted(maps.Keys(told))
	for _, name := range names[:min(len(names), content.MaxSourceTemplates)] {
		items = append(items, content.SourceItem{Template: content.ParseTemplateRef(name), Message: told[name]})
	}
	return items
}
