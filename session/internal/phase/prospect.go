package phase

// Prospect says whether a suspended turn can work without a client.
type Prospect int

// The prospects.
const (
	OnlyWaits Prospect = iota // it only waits for its pending calls
	MayWork                   // it has pending calls, and other agents that may work
	Works                     // it has no pending calls, or a prompt is queued behind it
)
