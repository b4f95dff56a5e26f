package model

// Provided is what a model's provider ran during a call, and what the response cites. The server
// keeps at most 128 uses and 512 citations of a response, 16 KiB of an Input and an Output, 2 KiB
// of every other text, and 512 KiB in all; a longer Input or Output becomes a JSON string of its
// beginning.
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
	// Input and Output are JSON, or "" where the provider does not report them. They leave out what
	// only the provider can read because it is encrypted.
	Input  string `json:"input,omitempty"`
	Output string `json:"output,omitempty"`
	// Error says why the tool failed; "" if it did not.
	Error string `json:"error,omitempty"`
}

// Cite is a source of a part of the response.
type Cite struct {
	// URI is the address of the source, and Title its title.
	URI   string `json:"uri,omitempty"`
	Title string `json:"title,omitempty"`
	// Text is the cited text of the source, "" where the provider does not report it.
	Text string `json:"text,omitempty"`
	// Start and End delimit the part in the response's joined text without thoughts, as offsets in
	// bytes; both are 0 where the provider does not report them.
	Start int `json:"start,omitempty"`
	End   int `json:"end,omitempty"`
}

// Empty reports whether p has neither uses nor citations. p may be nil.
func (p *Provided) Empty() bool { return p == nil || len(p.Uses) == 0 && len(p.Citations) == 0 }

// Use returns the newest use with that id that has no outcome yet, or appends one with that name.
func (p *Provided) Use(id, name string) *Use {
	for i := len(p.Uses) - 1; i >= 0; i-- {
		if u := &p.Uses[i]; u.ID == id && u.Output == "" && u.Error == "" && (id != "" || u.Name == name) {
			return u
		}
	}
	p.Uses = append(p.Uses, Use{ID: id, Name: name})
	return &p.Uses[len(p.Uses)-1]
}

// OrNil returns p, or nil if p is empty.
func (p *Provided) OrNil() *Provided {
	if p.Empty() {
		return nil
	}
	return p
}
