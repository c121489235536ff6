package workspace

import "os"

// SyncBy has files and directories flushed by do.
func (b *Builder) SyncBy(do func(*os.File) error) { b.sync = do }
