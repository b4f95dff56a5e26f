// Package yamlfile reads YAML and JSON files that people write: agents, prices,
// scripts. JSON is YAML.
//
// A file is one document. Anchors and aliases are understood where Limits allows
// them; merge keys, tags, directives and "?" keys are not. A key may be there
// once. Files are bounded in bytes, tokens, depth and values; aliases count as
// the values that they stand for. A Problem has a line and a column, and reading
// continues after one where it can, so that a person sees all of them.
//
// Parse returns a tree of nodes, for callers that check a file value by value.
// Decode fills a Go value, for those that need no more than its types.
//
// The package knows nothing of what a file says. It alone imports the YAML
// library, and that besides the standard library alone. It opens no file.
package yamlfile
