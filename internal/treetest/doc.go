// Package treetest runs the cases that authors of agent trees write beside their files, and compares what happens with
// golden transcripts.
//
//	agent: greeter.yaml
//	cases:
//	  - name: greets
//	    prompt: Say hi to Ann
//	    answers:                     # of the model, as in docs/scripts.md
//	      - calls: [{name: greet, args: {name: Ann}}]
//	      - text: 'It says: {{tool_result "greet"}}'
//	    tools: {greet: ["Hello, Ann!"]} # results, in the order of the calls
//
// Each case runs on a daemon of its own, in memory and without keys: no model of a provider is ever called, and no tool
// runs. Everything that a case says has to be used: an answer that is not played and a result that is not asked
// for fail it, as does a call that has no result.
//
// A transcript says what happened in words, without what differs from run to run. What agents do at the same time
// stands in the order of their names.
//
// The package knows the form of cases and of transcripts, and starts daemons. It knows neither flags nor terminals.
package treetest
