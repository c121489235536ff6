package local

import (
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// tempPattern is the name pattern of the private directories in which sockets are created before
// their permissions are set.
const tempPattern = client.SocketName + ".new-*"

// Listen opens the socket in a data directory and replaces that of a dead agent. The caller
// holds the directory's lock. The directory's path may be longer than a socket's address.
// Unavailable if no socket can be created there.
func Listen(dataDir string) (net.Listener, error) {
	l, err := listen(dataDir)
	if err != nil {
		return nil, &errs.Error{
			Op: "local.Listen", Kind: errs.Unavailable, Err: err,
			Message: "cannot create a socket in the data directory " + dataDir,
		}
	}
	return l, nil
}

func listen(dataDir string) (net.Listener, error) {
	left, err := filepath.Glob(filepath.Join(dataDir, tempPattern))
	if err != nil {
		return nil, err
	}
	for _, dir := range left {
		_ = os.RemoveAll(dir)
	}
	private, err := os.MkdirTemp(dataDir, tempPattern) // accessible to its owner only
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	// An address is limited to 107 bytes. Relative to an open directory any path fits.
	dir, err := os.Open(private)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	address := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), client.SocketName)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the socket is renamed below
	created, path := filepath.Join(private, client.SocketName), filepath.Join(dataDir, client.SocketName)
	if err = os.Chmod(created, 0o600); err == nil {
		err = os.Rename(created, path)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return &listener{l, path}, nil
}

// listener removes the socket when it is closed.
type listener struct {
	net.Listener
	path string
}

// Close removes the socket and stops listening.
func (l *listener) Close() error {
	_ = os.Remove(l.path)
	return l.Listener.Close()
}
