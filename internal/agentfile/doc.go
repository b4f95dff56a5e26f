// Package agentfile reads agent trees and their tools from YAML or JSON files.
//
// A file holds the protocol's Agent and Tool under their own field names; what it
// adds is the command that a tool runs:
//
//	agent:
//	  name: greeter
//	  llm: {model: scripted/demo, instruction: Greet people., tool_names: [greet]}
//	tools:
//	  - name: greet
//	    description: Returns a greeting
//	    input_schema: {type: object, properties: {name: {type: string}}}
//	    command: [./greet.sh, --json]
//	    timeout: 10s
//
// A file may also be the agent alone. Schemas may be written as objects or as
// text that holds JSON; durations as in 1m30s. Package yamlfile says what of YAML
// is understood.
//
// A problem has its line and column, and all problems are reported at once. Files
// are bounded in bytes, tokens, depth and values.
//
// The rules of a tree are not known here: File.Check asks for them. The package
// may import the protocol's messages, protobuf and yamlfile. It runs nothing and
// opens no connection.
package agentfile
