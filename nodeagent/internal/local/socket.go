package local

import (
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// nursery is the name pattern of the directories in which sockets get their
// permissions before they can be seen.
const nursery = client.SocketName + ".new-*"

// Listen opens the socket in a data directory, in place of one a dead agent left:
// the caller holds the directory's lock. The directory's path may be longer than a
// socket's address can be. Unavailable when the directory takes no socket.
func Listen(dataDir string) (net.Listener, error) {
	l, err := listen(dataDir)
	if err != nil {
		return nil, &errs.Error{
			Op: "local.Listen", Kind: errs.Unavailable, Err: err,
			Message: "the data directory " + dataDir + " takes no socket",
		}
	}
	return l, nil
}

func listen(dataDir string) (net.Listener, error) {
	left, err := filepath.Glob(filepath.Join(dataDir, nursery))
	if err != nil {
		return nil, err
	}
	for _, dir := range left {
		_ = os.RemoveAll(dir)
	}
	private, err := os.MkdirTemp(dataDir, nursery) // for its owner only
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	// An address has 107 bytes at most; through an open directory any path fits.
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
	l.SetUnlinkOnClose(false) // the name is not where it was made any more
	born, path := filepath.Join(private, client.SocketName), filepath.Join(dataDir, client.SocketName)
	if err = os.Chmod(born, 0o600); err == nil {
		err = os.Rename(born, path)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return &listener{l, path}, nil
}

// listener removes its name when it is closed.
type listener struct {
	net.Listener
	path string
}

// Close removes the socket and stops listening.
func (l *listener) Close() error {
	_ = os.Remove(l.path)
	return l.Listener.Close()
}
