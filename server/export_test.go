package server

// Sessions is what a server needs of the sessions; tests have it fail.
type Sessions = sessions
