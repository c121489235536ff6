package tenants

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// Setting is the agent's setting of the range.
const Setting = "instance-uids"

// Default is the range of an agent that is root, if its user sets no range.
const Default = "1900000000-1900065535"

// maxID is the highest id that programs with signed numbers of 32 bits support, and minID the lowest
// that is not reserved for users of the system.
const (
	maxID = 1<<31 - 2
	minID = 1000
)

// Span is a range of numbers that are user and group ids.
type Span struct{ First, Last int }

// Parse parses a range such as 1900000000-1900065535. It returns an Invalid error of the setting.
func Parse(text string) (Span, error) {
	first, last, _ := strings.Cut(text, "-")
	s := Span{}
	var bad [2]error
	s.First, bad[0] = strconv.Atoi(first)
	s.Last, bad[1] = strconv.Atoi(last)
	switch {
	case errors.Join(bad[:]...) != nil:
		return Span{}, errs.Field(Setting, "%q is no range: give the first and the last id, such as %s", text, Default)
	case s.First < minID || s.Last > maxID:
		return Span{}, errs.Field(Setting, "%s must be between %d and %d", text, minID, maxID)
	case s.Last <= s.First:
		return Span{}, errs.Field(Setting, "%s must have at least 2 ids, one for static groups and one for other instances", text)
	}
	return s, nil
}

// String is the form that Parse parses.
func (s Span) String() string { return fmt.Sprintf("%d-%d", s.First, s.Last) }

// Static returns the id of the static group with a number, which counts from 1. ok is false if the range
// has too few.
func (s Span) Static(number int) (uid int, ok bool) {
	uid = s.First + number - 1
	return uid, s.IsStatic(uid)
}

// IsStatic reports whether an id is one for static groups.
func (s Span) IsStatic(uid int) bool { return uid >= s.First && uid < s.firstDynamic() }

// isDynamic reports whether an id is one for instances that are not static.
func (s Span) isDynamic(uid int) bool { return uid >= s.firstDynamic() && uid <= s.Last }

// Holds reports whether an id is in the range.
func (s Span) Holds(uid int) bool { return uid >= s.First && uid <= s.Last }

func (s Span) firstDynamic() int { return s.First + (s.Last-s.First+1)/2 }

// Check returns an Invalid error, with the file and the user, if the range overlaps users or groups of
// the host or the ids that they may give to containers. etc is the directory /etc.
func (s Span) Check(etc fs.FS) error {
	for _, file := range []struct {
		name         string
		first, count int // the columns
	}{{"passwd", 2, -1}, {"group", 2, -1}, {"subuid", 1, 2}, {"subgid", 1, 2}} {
		if err := s.checkFile(etc, file.name, file.first, file.count); err != nil {
			return err
		}
	}
	return nil
}

func (s Span) checkFile(etc fs.FS, name string, first, count int) error {
	f, err := etc.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.Field(Setting, "cannot be compared with /etc/%s: %v", name, err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		columns := strings.Split(lines.Text(), ":")
		from, ok := number(columns, first)
		size, sized := 1, true
		if count >= 0 {
			size, sized = number(columns, count)
		}
		if ok && sized && from <= s.Last && from+size-1 >= s.First {
			return errs.Field(Setting, "%s overlaps %s in /etc/%s, who has %s: choose another range", s, columns[0], name, ids(from, size))
		}
	}
	if err := lines.Err(); err != nil {
		return errs.Field(Setting, "cannot be compared with /etc/%s: %v", name, err)
	}
	return nil
}

func ids(from, count int) string {
	if count == 1 {
		return strconv.Itoa(from)
	}
	return Span{from, from + count - 1}.String()
}

// number returns the number in a column. ok is false if the column has no number.
func number(columns []string, at int) (n int, ok bool) {
	if at >= len(columns) {
		return 0, false
	}
	n, err := strconv.Atoi(columns[at])
	return n, err == nil
}

// CheckMapped returns an Invalid error if the user namespace of this process lacks ids of the range. proc
// is the directory /proc.
func (s Span) CheckMapped(proc fs.FS) error {
	for _, name := range []string{"self/uid_map", "self/gid_map"} {
		text, err := fs.ReadFile(proc, name)
		if err != nil {
			return errs.Field(Setting, "cannot be compared with /proc/%s: %v", name, err)
		}
		if !s.mappedBy(string(text)) {
			return errs.Field(Setting, "%s is not completely in the user namespace of the agent: give the namespace a larger range (see /etc/subuid and /etc/subgid), or choose a range of /proc/%s", s, name)
		}
	}
	return nil
}

// mappedBy reports whether a file of mappings has all ids of the range in one line.
func (s Span) mappedBy(file string) bool {
	for line := range strings.Lines(file) {
		columns := strings.Fields(line)
		first, ok := number(columns, 0)
		count, sized := number(columns, 2)
		if ok && sized && first <= s.First && first+count-1 >= s.Last {
			return true
		}
	}
	return false
}
