package workspace

import "os"

// SetSync replaces the function that flushes files and directories.
func (b *Builder) SetSync(do func(*os.File) error) { b.sync = do }

// TempName is the temporary name of a file.
func TempName(p string) string { return tempName(p) }
