package model

// File is what decides whether a model takes a file.
type File struct {
	// MIMEType is the declared media type.
	MIMEType string
	// URI is where the file is; "" for one within the request.
	URI string
	// Result is true for a file of a tool's result, false for one of the user's.
	Result bool
}
