package arena

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// worldDir has one file per level, in the current directory.
const worldDir = "world"

// ticksPerSecond is the rate of a world's time.
const ticksPerSecond = 20

// world is the state that survives a restart.
type world struct {
	// Boots counts the saved starts, including this one.
	Boots int64 `json:"boots"`
	// Ticks is the total uptime in twentieths of a second.
	Ticks int64 `json:"ticks"`
	// Messages counts the console messages.
	Messages int64 `json:"messages"`

	path    string
	savedAt time.Time // the time that Ticks refers to
}

// loadWorld reads the level's file, or creates a new world without one. It writes
// nothing.
func loadWorld(level string, now time.Time) (*world, error) {
	w := &world{path: filepath.Join(worldDir, level+".json"), savedAt: now}
	data, err := os.ReadFile(w.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("cannot read the world: %w", err)
	default:
		if err := json.Unmarshal(data, w); err != nil {
			return nil, fmt.Errorf("%s is damaged; move it away to begin a new world: %w", w.path, err)
		}
	}
	w.Boots++
	return w, nil
}

// save replaces the file by a rename, after the new content is on disk.
func (w *world) save(now time.Time) error {
	w.Ticks += int64(now.Sub(w.savedAt) * ticksPerSecond / time.Second)
	w.savedAt = now
	data, err := json.Marshal(w)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(worldDir, 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(worldDir, ".saving-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails after a successful rename
	_, err = tmp.Write(append(data, '\n'))
	if err := errors.Join(err, tmp.Sync(), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), w.path)
}
