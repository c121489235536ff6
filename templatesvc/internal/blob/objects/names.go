package objects

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/internal/blob"
	"github.com/orreryhq/orrery/templatesvc/internal/s3"
)

const (
	// maxObjects bounds a bucket, maxNames the names of one content with their marks.
	maxObjects = 100_000_000
	maxNames   = 10_000

	// mark stands between an object's name and what is said of it; corrupt says that a
	// replica found it without its hash, anything else is the cycle that condemned it.
	mark    = "!"
	corrupt = "corrupt"
)

// object is one of the bucket, with what is said of it.
type object struct {
	blob.File
	// marks are the names of what is said of it.
	marks []string
	// listed is false when only marks are: the object is gone, or just came.
	listed bool
}

// standing says that the object may be relied on.
func (o *object) standing() bool { return o.listed && len(o.marks) == 0 }

func (o *object) corrupt() bool { return o.has(corrupt) }

// has reports whether something is said of the object.
func (o *object) has(what string) bool {
	for _, m := range o.marks {
		if m == o.Name+mark+what {
			return true
		}
	}
	return false
}

// serves reports whether an object has what a file should have, as far as its name says.
func (o *object) serves(f blob.File) bool {
	return o.listed && (o.Form == blob.Joined) == (f.Form == blob.Joined) && o.Size == f.Size
}

// words are the forms in names; they are part of what lies in buckets.
var words = [...]struct {
	form blob.Form
	word string
}{{blob.Raw, "raw"}, {blob.Packed, "zst"}, {blob.Joined, "chunks"}}

// fresh is a name that has never been used: <prefix><sum>/<form>-<size>-<token>.
func (m *Medium) fresh(f blob.File) string {
	word := ""
	for _, w := range words {
		if w.form == f.Form {
			word = w.word
		}
	}
	return fmt.Sprintf("%s/%s-%d-%s", m.prefix+f.Sum, word, f.Size, rand.Text())
}

// parse reads a name without its mark.
func (m *Medium) parse(name string) (f blob.File, ok bool) {
	sum, rest, _ := strings.Cut(strings.TrimPrefix(name, m.prefix), "/")
	word, rest, _ := strings.Cut(rest, "-")
	size, token, ok := strings.Cut(rest, "-")
	f = blob.File{Sum: sum, Name: name}
	f.Size, _ = strconv.ParseInt(size, 10, 64)
	if !ok || !fleet.ValidDigest(sum) || token == "" || strconv.FormatInt(f.Size, 10) != size {
		return f, false
	}
	for _, w := range words {
		if w.word == word {
			f.Form = w.form
			return f, true
		}
	}
	return f, false
}

// below yields the objects below a prefix, each with its marks, which follow it in a
// listing. Other objects are none of ours. A page that does not come is asked for again.
func (m *Medium) below(ctx context.Context, prefix string, most int) iter.Seq2[object, error] {
	return func(yield func(object, error) bool) {
		var last object // not yielded yet, unless its name is ""
		take := func(o minio.ObjectInfo) bool {
			name, said, marked := strings.Cut(o.Key, mark)
			f, ok := m.parse(name)
			switch {
			case !ok:
				return true
			case marked && name == last.Name:
				last.marks = append(last.marks, name+mark+said)
				return true
			}
			before := last
			last = object{File: f, listed: !marked}
			last.Bytes = o.Size
			if marked {
				last.marks = []string{name + mark + said}
			}
			return before.Name == "" || yield(before, nil)
		}
		after, failed := "", 0
		for {
			var err error
			for o, listErr := range s3.List(ctx, m.client, m.bucket, prefix, after, most) {
				if err = listErr; err != nil {
					break
				}
				after, failed = o.Key, 0
				if !take(o) {
					return
				}
			}
			if failed++; err != nil && (failed == tries || !errs.Is(err, errs.Unavailable) || !m.wait(ctx, failed)) {
				yield(object{}, m.told("objects.list", err))
				return
			}
			if err == nil {
				break
			}
		}
		if last.Name != "" {
			yield(last, nil)
		}
	}
}

// names are the objects that have a content, the standing ones first and those last that
// are said to be corrupt.
func (m *Medium) names(ctx context.Context, sum string) ([]object, error) {
	var standing, others, corrupt []object
	for o, err := range m.below(ctx, m.prefix+sum+"/", maxNames) {
		switch {
		case err != nil:
			return nil, err
		case o.standing():
			standing = append(standing, o)
		case o.listed && !o.corrupt():
			others = append(others, o)
		case o.listed:
			corrupt = append(corrupt, o)
		}
	}
	return slices.Concat(standing, others, corrupt), nil
}
