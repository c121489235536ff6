package fleet

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// GroupName names a group: [a-z0-9_][a-z0-9_-]{0,31}.
type GroupName string

// InstanceID identifies an instance: six lower-case letters or digits, never reused.
type InstanceID string

// NodeID names a node: [a-zA-Z0-9_][a-zA-Z0-9_.-]{0,62}.
type NodeID string

// InstanceIDLen is the number of characters of an InstanceID.
const InstanceIDLen = 6

const idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"

var (
	GroupNamePattern  = regexp.MustCompile(`^[a-z0-9_][a-z0-9_-]{0,31}$`)
	nodeIDPattern     = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,62}$`)
	instanceIDPattern = regexp.MustCompile(`^[a-z0-9]{6}$`)
)

// Validate returns an Invalid error if the name does not match the pattern.
func (n GroupName) Validate() error {
	if !GroupNamePattern.MatchString(string(n)) {
		return errs.Field("name", "must be 1 to 32 characters of a-z, 0-9, _ and -, not starting with -, not %q", validate.Clip(string(n)))
	}
	return nil
}

// Validate returns an Invalid error if the ID does not match the pattern.
func (n NodeID) Validate() error {
	if !nodeIDPattern.MatchString(string(n)) {
		return errs.Field("node", "must be 1 to 63 characters of letters, digits, _ . and -, not %q", validate.Clip(string(n)))
	}
	return nil
}

// Valid reports whether id has the form of an instance ID.
func (id InstanceID) Valid() bool { return instanceIDPattern.MatchString(string(id)) }

// NewInstanceID maps random bits to an ID. The caller ensures uniqueness by creating the
// instance's key.
func NewInstanceID(random uint64) InstanceID {
	var b [InstanceIDLen]byte
	n := uint64(len(idAlphabet))
	for i := range b {
		b[i] = idAlphabet[random%n]
		random /= n
	}
	return InstanceID(b[:])
}

// InstanceName returns "<group>-<ordinal>".
func InstanceName(group GroupName, ordinal int) string {
	return string(group) + "-" + strconv.Itoa(ordinal)
}

// ParseInstanceName splits "<group>-<ordinal>". ok is false if the name has another form.
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

// ShardCount is the number of shards of groups.
const ShardCount = 64

// ShardOf returns the shard of a group: the FNV-1a hash of its name modulo ShardCount.
func ShardOf(group GroupName) int {
	h := uint64(14695981039346656037)
	for i := range len(group) {
		h ^= uint64(group[i])
		h *= 1099511628211
	}
	return int(h % ShardCount)
}

// ReportParts is the number of records that hold the live figures of a node's instances. A player
// who joins changes one of them instead of the whole report.
const ReportParts = 16

// Part returns the number of the instance's ReportPart, from 0 to ReportParts-1.
func (id InstanceID) Part() int { return int(record.Hash(string(id)) % ReportParts) }
