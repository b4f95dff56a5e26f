// Package lineage says on which branch of a turn something happens, where agents call others as tools.
//
// A branch is names with dots between them, "" for the tree itself. An agent that another one calls as a tool runs on a
// branch of its own, whose last name is that of the tool, "@" and the id of the call. What happens on it and below it,
// up to the next call, happens in the room of that call. Names have neither dots nor "@" in them, so that logs from
// before agents were tools have no rooms.
//
// The package knows neither sessions nor the engine and imports nothing of this project. Its functions are pure.
package lineage

import "strings"

// callMark parts the name of a tool from the id of its call.
const callMark = "@"

// Branch returns the branch of a call of an agent, by one that runs on the branch parent.
func Branch(parent, name, callID string) string {
	if parent != "" {
		parent += "."
	}
	return parent + name + callMark + callID
}

// Room returns the part of a branch up to the innermost call of an agent; "" for one outside of all calls.
func Room(branch string) string {
	at := strings.LastIndex(branch, callMark)
	if at < 0 {
		return ""
	}
	if dot := strings.IndexByte(branch[at:], '.'); dot >= 0 {
		return branch[:at+dot]
	}
	return branch
}

// Depth returns how many calls of agents a branch is below.
func Depth(branch string) int { return strings.Count(branch, callMark) }

// Shown returns a branch as people read it, without the ids of calls.
func Shown(branch string) string {
	if !strings.Contains(branch, callMark) {
		return branch
	}
	names := strings.Split(branch, ".")
	for i, name := range names {
		names[i], _, _ = strings.Cut(name, callMark)
	}
	return strings.Join(names, ".")
}

// BranchOf returns the branch in the id of a message, "" if there is none.
func BranchOf(messageID string) string {
	_, after, _ := strings.Cut(messageID, "|")
	if at := strings.LastIndexByte(after, '#'); at >= 0 {
		return after[:at]
	}
	return ""
}
