package supervise

import "time"

// rememberAgain is how often an entry that could not be written is tried again.
const rememberAgain = time.Second

// remember journals the entry. While that fails it is tried again and again: an
// agent that comes after this one would believe what the journal said before.
func (i *Instance) remember() {
	if i.entry.Machine.Placement.Instance == "" || i.done {
		i.forgetful, i.unjournalled = nil, nil
		return
	}
	err := i.kit.Journal.Write(i.entry)
	switch {
	case err == nil && i.forgetful != nil:
		i.log.Info("the journal is written again")
	case err != nil && i.forgetful == nil:
		i.log.Error("journal not written, trying again: until then this instance may be lost or started anew if the agent is killed", "error", err)
	}
	i.forgetful, i.unjournalled = nil, err
	if err != nil {
		i.forgetful = time.After(rememberAgain)
	}
}
