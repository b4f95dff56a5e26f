package adkbridge

import "github.com/apzuk3/agentd/session/record"

// Said returns who has said an event, and where.
func (*Runner) Said(data []byte) (record.Said, error) {
	s, err := decode(data)
	if err != nil {
		return record.Said{}, err
	}
	m := &s.CustomMetadata.Agentd
	out := record.Said{Author: s.Author, Branch: s.Branch, Compacted: m.Compacted}
	if m.Provided != nil {
		out.Uses = m.Provided.Uses
	}
	if m.Call != nil {
		out.Provider = m.Call.Provider
	}
	return out, nil
}
