package session

import (
	"time"
)

// How long a client is asked to wait when nothing says it better.
const (
	retrySoon  = 100 * time.Millisecond // a race that is over in a moment
	retryLater = time.Second            // something has to become free
)
