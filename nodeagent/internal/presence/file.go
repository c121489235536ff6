package presence

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"github.com/orreryhq/orrery/libs/fleet"
)

// slack is how many lines more than twice its players a file has before it is written anew.
const slack = 256

// File keeps what a run has told of players for the next agent: a line for each change,
// the last of each player counts. Like the journal it is not flushed: it must survive the
// agent, not the host. It is not safe for concurrent use.
type File struct {
	path  string
	lines int
	// torn is true when the file may end within a line.
	torn bool
}

// NewFile makes the file at a path, which is not touched yet.
func NewFile(path string) File { return File{path: path} }

// line is one change: a player who is there, or one who left.
type line struct {
	Joined *fleet.Presence `json:"joined,omitempty"`
	Left   fleet.PlayerID  `json:"left,omitempty"`
}

// Load reads who was there when the agent before this one ended, in no order; told is false when
// nothing was ever told. What cannot be read is left out.
func (f *File) Load() (players []fleet.Presence, told bool) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, false
	}
	there := map[fleet.PlayerID]fleet.Presence{}
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
	f.torn = true // for all that is known
	for _, p := range there {
		players = append(players, p)
	}
	return players, true
}

// Joined notes that a player is there. all are those who are there then.
func (f *File) Joined(p fleet.Presence, all func() []fleet.Presence) error {
	return f.add(line{Joined: &p}, all)
}

// Left notes that a player is not there any more. all are those who are.
func (f *File) Left(id fleet.PlayerID, all func() []fleet.Presence) error {
	return f.add(line{Left: id}, all)
}

func (f *File) add(l line, all func() []fleet.Presence) error {
	if f.torn || f.lines > slack {
		if players := all(); f.torn || f.lines > slack+2*len(players) {
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

// rewrite replaces the file by one with a line for each player.
func (f *File) rewrite(players []fleet.Presence) error {
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
