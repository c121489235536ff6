package store

import "github.com/orreryhq/orrery/libs/fleet"

// ShareKey and ShareTextKey are created in one transaction.
func ShareKey(id string) Key[fleet.Share] { return Key[fleet.Share]{Root + "shares/" + id} }

// Shares are all shares; no view has them.
func Shares() Prefix[fleet.Share] { return Prefix[fleet.Share]{Root + "shares/"} }

// ShareTextKey is of a share's text. It goes when the share has ended.
func ShareTextKey(id string) Key[fleet.ShareText] {
	return Key[fleet.ShareText]{Root + "share-texts/" + id}
}

// ShareTextMarkKey is ShareTextKey for whom only the revision counts.
func ShareTextMarkKey(id string) Key[fleet.ShareTextMark] {
	return Key[fleet.ShareTextMark]{ShareTextKey(id).String()}
}
