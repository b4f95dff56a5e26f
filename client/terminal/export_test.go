package terminal

// ReadAside is readAside.
var ReadAside = readAside
