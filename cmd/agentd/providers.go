package main

// Providers beyond the built-in ones register themselves, see model.Register: to
// have one in a build of this command, import its package here, for its init
// alone. A program of one's own has them by agentdhost.
