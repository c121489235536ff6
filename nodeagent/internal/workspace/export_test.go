package workspace

import "os"

// SyncBy has files and directories flushed by do.
func (b *Builder) SyncBy(do func(*os.File) error) { b.sync = do }

// Underway is what a file is called before it is whole.
func Underway(p string) string { return underway(p) }
