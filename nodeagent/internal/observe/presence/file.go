package presence

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"github.com/orreryhq/orrery/libs/fleet/players"
)

// maxExtraLines is how many lines a file may have beyond twice its players before it is rewritten.
const maxExtraLines = 256

// File stores the players of a run for the next agent: a line for each change. The last line
// of each player counts. It is not flushed: it must survive the agent, not the host. It is
// not safe for concurrent use.
type File struct {
	path  string
	lines int
	// torn is true if the file may end with an incomplete line.
	torn bool
}

// NewFile returns the File of a path. It does not touch the disk.
func NewFile(path string) File { return File{path: path} }

// line is one change: a player who joined, or one who left.
type line struct {
	Joined *players.Presence `json:"joined,omitempty"`
	Left   players.PlayerID  `json:"left,omitempty"`
}

// Load returns the players that an earlier agent stored, in no order. exists is false if there is
// no file. It ignores invalid lines.
func (f *File) Load() (online []players.Presence, exists bool) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, false
	}
	there := map[players.PlayerID]players.Presence{}
	for one := range bytes.Lines(text) {
		var l line
		f.lines++
		switch err := json.Unmarshal(one, &l); {
		case err != nil:
		case l.Joined != nil:
			there[l.Joined.Player] = *l.Joined
		default:
			delete(there, l.Left)
		}
	}
	f.torn = true // possibly
	for _, p := range there {
		online = append(online, p)
	}
	return online, true
}

// Joined stores a player. all returns all current players.
func (f *File) Joined(p players.Presence, all func() []players.Presence) error {
	return f.add(line{Joined: &p}, all)
}

// Left removes a player. all returns all current players.
func (f *File) Left(id players.PlayerID, all func() []players.Presence) error {
	return f.add(line{Left: id}, all)
}

func (f *File) add(l line, all func() []players.Presence) error {
	if f.torn || f.lines > maxExtraLines {
		if players := all(); f.torn || f.lines > maxExtraLines+2*len(players) {
			return f.rewrite(players)
		}
	}
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(append(b, '\n'))
	f.lines++
	err = errors.Join(err, out.Close())
	f.torn = err != nil
	return err
}

// rewrite replaces the file with a line for each player.
func (f *File) rewrite(players []players.Presence) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for n := range players {
		if err := enc.Encode(line{Joined: &players[n]}); err != nil {
			return err
		}
	}
	f.torn = true
	if err := os.WriteFile(f.path+".new", b.Bytes(), 0o600); err != nil {
		return err
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		return err
	}
	f.lines, f.torn = len(players), false
	return nil
}

// Forget removes the file.
func (f *File) Forget() error {
	err := os.Remove(f.path)
	f.lines, f.torn = 0, false
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
