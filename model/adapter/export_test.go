package adapter

// For the tests.
var (
	ParseArgs  = parseArgs
	RetryAfter = retryAfter
	LimitLines = limitLines
)
