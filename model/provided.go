package model

// Provided is what a model's provider has run while the model answered, and what
// the answer cites.
type Provided struct {
	// Uses are the runs of its tools, in order.
	Uses []Use `json:"uses,omitempty"`
	// Citations are the sources, in the provider's order.
	Citations []Cite `json:"citations,omitempty"`
}

// Use is one run of a tool by a provider.
type Use struct {
	// ID is the provider's; may be "".
	ID string `json:"id,omitempty"`
	// Name is that of the builtin tool, such as "google_search", "web_search",
	// "url_context" and "code_execution", or else the provider's own.
	Name string `json:"name"`
	// Input and Output are JSON, or "" where the provider does not say. What only
	// the provider can read, since it is encrypted, is not in them.
	Input  string `json:"input,omitempty"`
	Output string `json:"output,omitempty"`
	// Error says why the tool has failed, "" when it has not.
	Error string `json:"error,omitempty"`
}

// Cite is a source of a part of the answer.
type Cite struct {
	// URI is where the source is, and Title what it is called.
	URI   string `json:"uri,omitempty"`
	Title string `json:"title,omitempty"`
	// Text are the words of the source, "" where the provider does not say.
	Text string `json:"text,omitempty"`
	// Start and End are the part of the answer's joined text without thoughts, as
	// offsets in bytes; both 0 where the provider does not say.
	Start int `json:"start,omitempty"`
	End   int `json:"end,omitempty"`
}

// Empty tells whether nothing was run or cited. p may be nil.
func (p *Provided) Empty() bool { return p == nil || len(p.Uses) == 0 && len(p.Citations) == 0 }

// Use returns the newest use of that id that has no outcome yet, for the
// provider's report of it; a new one of that name when there is none.
func (p *Provided) Use(id, name string) *Use {
	for i := len(p.Uses) - 1; i >= 0; i-- {
		if u := &p.Uses[i]; u.ID == id && u.Output == "" && u.Error == "" && (id != "" || u.Name == name) {
			return u
		}
	}
	p.Uses = append(p.Uses, Use{ID: id, Name: name})
	return &p.Uses[len(p.Uses)-1]
}

// OrNil returns p, or nil when nothing is in it.
func (p *Provided) OrNil() *Provided {
	if p.Empty() {
		return nil
	}
	return p
}
