package client

// Option configures a [Client]. An option that is about runs too (its type says so)
// is the default of each run of the client: the run's own option comes later and
// holds.
type Option interface{ applyClient(*config) }

// RunOption configures one turn of [Client.Run], [Client.Do] or [DoAs].
type RunOption interface{ applyRun(*runConfig) }

// SendOption configures the turns of a [Session], or one turn of [Session.Send] or
// [Session.Stream].
type SendOption interface{ applySend(*runConfig) }

// AttachOption configures one [Client.Attach] or [Session.Attach].
type AttachOption interface{ applyAttach(*runConfig) }

// RequestOption configures one request that is no run, such as [Client.Resolve].
type RequestOption interface{ applyRequest(*runConfig) }

// WatchOption configures one [Session.Watch] or [Session.Events].
type WatchOption interface{ applyWatch(*runConfig) }

// GoalOption configures the turns of one [Client.StartGoal], [Client.ResumeGoal] or [Client.FollowGoal].
type GoalOption interface{ applyGoal(*runConfig) }

// EveryOption goes with all that a client does.
type EveryOption interface {
	StreamOption
	RequestOption
	WatchOption
}

// StreamOption is about a stream, whether it starts a turn or follows one.
type StreamOption interface {
	TurnOption
	AttachOption
}

// TurnOption is about how a turn starts and runs.
type TurnOption interface {
	Option
	RunOption
	SendOption
	GoalOption
}

// PromptOption is about one turn; it is no default.
type PromptOption interface {
	RunOption
	SendOption
	GoalOption
}

// FollowOption is about one stream; it is no default.
type FollowOption interface {
	PromptOption
	AttachOption
}

// use is what an option is the default of when it is given to New.
type use uint8

const (
	useRun use = 1 << iota
	useAttach
	useRequest

	useStream = useRun | useAttach
	useEvery  = useStream | useRequest
)

// option is every option that is not of New alone. What it may be given to is said
// by the type under which a function returns it.
type option struct {
	uses use
	set  func(*runConfig)
}

func (o option) applyClient(c *config)     { c.defaults = append(c.defaults, o) }
func (o option) applyRun(c *runConfig)     { o.set(c) }
func (o option) applySend(c *runConfig)    { o.set(c) }
func (o option) applyAttach(c *runConfig)  { o.set(c) }
func (o option) applyRequest(c *runConfig) { o.set(c) }
func (o option) applyWatch(c *runConfig)   { o.set(c) }
func (o option) applyGoal(c *runConfig)    { o.set(c) }

// clientOption is an option of New alone.
type clientOption func(*config)

func (o clientOption) applyClient(c *config) { o(c) }
