package arena

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
)

// propertiesFile is read from the current directory. It is never written, so unknown keys
// stay in it.
const propertiesFile = "server.properties"

const maxPort = 65535

// settings are the values from server.properties. They do not change while the server runs.
type settings struct {
	ip         string // empty means all interfaces
	port       int    // 0 means a free one
	motd       string
	maxPlayers int
	level      string
}

func defaultSettings() settings {
	return settings{port: 25565, motd: "An Arena Server", maxPlayers: 20, level: "world"}
}

// address returns the listening address.
func (s settings) address() string { return net.JoinHostPort(s.ip, strconv.Itoa(s.port)) }

// loadSettings reads the file. Without a file it returns the defaults.
func loadSettings(path string) (settings, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return defaultSettings(), nil
	}
	if err != nil {
		return settings{}, fmt.Errorf("cannot read the settings: %w", err)
	}
	s, err := parseSettings(string(text))
	if err != nil {
		return settings{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// parseSettings applies a file's text to the defaults. An empty value also means the
// default.
func parseSettings(text string) (settings, error) {
	props, err := parseProperties(text)
	if err != nil {
		return settings{}, err
	}
	s := defaultSettings()
	s.ip = props["server-ip"]
	if v := props["motd"]; v != "" {
		s.motd = v
	}
	if v := props["level-name"]; v != "" {
		s.level = v
	}
	if err := number(props, "server-port", maxPort, &s.port); err != nil {
		return settings{}, err
	}
	if err := number(props, "max-players", 1<<31-1, &s.maxPlayers); err != nil {
		return settings{}, err
	}
	// The level names a file, which must not be outside the world directory.
	if strings.ContainsAny(s.level, "/\\\x00") || s.level[0] == '.' {
		return settings{}, fmt.Errorf("level-name must be a plain name, not %q", s.level)
	}
	return s, nil
}

// number reads a key, if present, whose value must be a number from 0 to limit.
func number(props map[string]string, key string, limit int, into *int) error {
	text := props[key]
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > limit {
		return fmt.Errorf("%s must be a number from 0 to %d, not %q", key, limit, text)
	}
	*into = n
	return nil
}
