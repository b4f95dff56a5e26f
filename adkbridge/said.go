package adkbridge

import "github.com/apzuk3/agentd/session/record"

// Said returns the fact of an event as Decode does, and who has said it: the author, an agent or "user", and the
// branch, where the agent is among those that work side by side and below each other, also as tools, "" at the root.
// The branch has the ids of calls, see package lineage.
func (*Runner) Said(data []byte) (author, branch string, fact *record.Event, err error) {
	s, err := decode(data)
	if err != nil {
		return "", "", nil, err
	}
	return s.Author, s.Branch, s.sessionEvent(), nil
}
