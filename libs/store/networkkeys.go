package store

import "github.com/orreryhq/orrery/libs/fleet"

func NetworkKey(name string) Key[fleet.Network] {
	return Key[fleet.Network]{Root + "networks/" + name}
}

// MentionMarkKey is the one mark of all that names groups.
func MentionMarkKey() Key[fleet.MentionMark] {
	return Key[fleet.MentionMark]{Root + "mention-marks/all"}
}
