package s3

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
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/templatesvc/internal/s3client"
	"github.com/orreryhq/orrery/templatesvc/internal/store/blob"
)

const (
	// maxObjects is the maximum number of objects in a listing of the bucket, maxNames that
	// of one content's objects and marks.
	maxObjects = 100_000_000
	maxNames   = 10_000

	// mark separates an object's name from its mark. The mark corrupt means that a replica
	// read wrong content. Any other mark is the ID of the cycle that condemned the object.
	mark    = "!"
	corrupt = "corrupt"
)

// object is an object of the bucket, with its marks.
type object struct {
	blob.File
	// marks are the full names of the marks.
	marks []string
	// listed is false if only marks were listed: the object was removed, or has just
	// appeared.
	listed bool
}

// valid reports whether the object is valid: it exists and has no marks.
func (o *object) valid() bool { return o.listed && len(o.marks) == 0 }

func (o *object) corrupt() bool { return o.has(corrupt) }

// has reports whether the object has a mark.
func (o *object) has(what string) bool {
	for _, m := range o.marks {
		if m == o.Name+mark+what {
			return true
		}
	}
	return false
}

// serves reports whether the object's name matches a file.
func (o *object) serves(f blob.File) bool {
	return o.listed && (o.Form == blob.Joined) == (f.Form == blob.Joined) && o.Size == f.Size
}

// formNames are the forms in object names. Existing buckets contain them, so they must not
// change.
var formNames = [...]struct {
	form blob.Form
	word string
}{{blob.Raw, "raw"}, {blob.Packed, "zst"}, {blob.Joined, "chunks"}}

// fresh returns an unused name: <prefix><sum>/<form>-<size>-<token>.
func (m *Medium) fresh(f blob.File) string {
	word := ""
	for _, w := range formNames {
		if w.form == f.Form {
			word = w.word
		}
	}
	return fmt.Sprintf("%s/%s-%d-%s", m.prefix+f.Sum, word, f.Size, rand.Text())
}

// parse parses a name without its mark.
func (m *Medium) parse(name string) (f blob.File, ok bool) {
	sum, rest, _ := strings.Cut(strings.TrimPrefix(name, m.prefix), "/")
	word, rest, _ := strings.Cut(rest, "-")
	size, token, ok := strings.Cut(rest, "-")
	f = blob.File{Sum: sum, Name: name}
	f.Size, _ = strconv.ParseInt(size, 10, 64)
	if !ok || !content.ValidDigest(sum) || token == "" || strconv.FormatInt(f.Size, 10) != size {
		return f, false
	}
	for _, w := range formNames {
		if w.word == word {
			f.Form = w.form
			return f, true
		}
	}
	return f, false
}

// below lists the objects with a prefix, each with its marks, which follow it in the
// listing. It skips other objects, and requests a failed page again.
func (m *Medium) below(ctx context.Context, prefix string, most int) iter.Seq2[object, error] {
	return func(yield func(object, error) bool) {
		var last object // not yielded yet; none if its name is ""
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
			for o, listErr := range s3client.List(ctx, m.client, m.bucket, prefix, after, most) {
				if err = listErr; err != nil {
					break
				}
				after, failed = o.Key, 0
				if !take(o) {
					return
				}
			}
			if failed++; err != nil && (failed == tries || !errs.Is(err, errs.Unavailable) || !m.wait(ctx, failed)) {
				yield(object{}, m.wrap("objects.list", err))
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

// names returns the objects with a content: the valid ones first, and those marked as
// corrupt last.
func (m *Medium) names(ctx context.Context, sum string) ([]object, error) {
	var valid, others, corrupt []object
	for o, err := range m.below(ctx, m.prefix+sum+"/", maxNames) {
		switch {
		case err != nil:
			return nil, err
		case o.valid():
			valid = append(valid, o)
		case o.listed && !o.corrupt():
			others = append(others, o)
		case o.listed:
			corrupt = append(corrupt, o)
		}
	}
	return slices.Concat(valid, others, corrupt), nil
}
