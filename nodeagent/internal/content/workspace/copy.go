package workspace

import (
	"io"
	"io/fs"
	"os"
)

// body is the content of a file to write: a blob, or generated text.
type body struct {
	blob *os.File
	size int64
	mode fs.FileMode
	// text is the content if generated is true.
	text      []byte
	generated bool
}

// fill writes the content to an empty file. It copies a blob with copy_file_range, which clones
// the blocks on filesystems that can.
func (b body) fill(dst *os.File) error {
	if b.generated {
		_, err := dst.Write(b.text)
		return err
	}
	if _, err := b.blob.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(dst, b.blob)
	return err
}
