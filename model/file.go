package model

// File is what a model needs to know of a file to take or refuse it.
type File struct {
	// MIMEType is the declared media type.
	MIMEType string
	// URI is the address of the file; "" for one within the request.
	URI string
	// Result is true for a file of a tool's result, false for one of the user.
	Result bool
}
