package harness

import "runtime/debug"

// Little is alive at a time in the tests that import this package; collecting it is an eighth of their work.
var _ = debug.SetGCPercent(400)
