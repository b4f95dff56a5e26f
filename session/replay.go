package session

// ReadSpec returns what the turn runs. It shares nothing with the record, and
// holds no budgets.
func (f *TurnStarted) ReadSpec() (*Spec, error) { return f.spec() }

// Result is what has become of the call that the interaction is about; nil where
// a client is to make it.
func (f *InteractionResolved) Result() *ToolResult { return f.result() }
