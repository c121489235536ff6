package fleet

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// GroupName names a group: [a-z0-9_][a-z0-9_-]{0,31}.
type GroupName string

// InstanceID is an instance's identity: six lower-case letters or digits, unique for ever.
type InstanceID string

// NodeID names a node: [a-zA-Z0-9_][a-zA-Z0-9_.-]{0,62}.
type NodeID string

// InstanceIDLen is the number of characters of an InstanceID.
const InstanceIDLen = 6

const idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"

var (
	groupNamePattern  = regexp.MustCompile(`^[a-z0-9_][a-z0-9_-]{0,31}$`)
	nodeIDPattern     = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,62}$`)
	instanceIDPattern = regexp.MustCompile(`^[a-z0-9]{6}$`)
)

// Validate reports an Invalid error when the name breaks the pattern.
func (n GroupName) Validate() error {
	if !groupNamePattern.MatchString(string(n)) {
		return errs.Field("name", "must be 1 to 32 characters of a-z, 0-9, _ and -, not starting with -; %q is not", clip(string(n)))
	}
	return nil
}

// Validate reports an Invalid error when the id breaks the pattern.
func (n NodeID) Validate() error {
	if !nodeIDPattern.MatchString(string(n)) {
		return errs.Field("node", "must be 1 to 63 characters of letters, digits, _ . and -; %q is not", clip(string(n)))
	}
	return nil
}

// Valid reports whether the id has the form of an instance id.
func (id InstanceID) Valid() bool { return instanceIDPattern.MatchString(string(id)) }

// NewInstanceID maps random bits to an id. The caller makes sure of uniqueness
// by the create-only instance key.
func NewInstanceID(random uint64) InstanceID {
	var b [InstanceIDLen]byte
	n := uint64(len(idAlphabet))
	for i := range b {
		b[i] = idAlphabet[random%n]
		random /= n
	}
	return InstanceID(b[:])
}

// InstanceName is the name of a group's instance with an ordinal: "<group>-<ordinal>".
func InstanceName(group GroupName, ordinal int) string {
	return string(group) + "-" + strconv.Itoa(ordinal)
}

// ParseInstanceName splits "<group>-<ordinal>". ok is false when it is not such a name.
func ParseInstanceName(name string) (group GroupName, ordinal int, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return "", 0, false
	}
	n, err := strconv.Atoi(name[i+1:])
	if err != nil || n < 1 || strconv.Itoa(n) != name[i+1:] {
		return "", 0, false
	}
	return GroupName(name[:i]), n, true
}

// ShardCount is the number of shards groups are hashed to.
const ShardCount = 64

// ShardOf is the shard that decides about a group: FNV-1a of its name, modulo ShardCount.
func ShardOf(group GroupName) int {
	h := uint64(14695981039346656037)
	for i := range len(group) {
		h ^= uint64(group[i])
		h *= 1099511628211
	}
	return int(h % ShardCount)
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
