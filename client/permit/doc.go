// Package permit decides whether a tool may do what a model asks for: the gate between
// an agent and the computer of the client.
//
//	gate, err := permit.New(cfg, permit.InTurn(nil))
//	err = gate.Check(ctx, permit.Request{
//		Tool: "bash", Kind: permit.Command, Detail: "go test ./...", Effect: permit.Execute,
//	})
//
// # The order of decisions
//
// The first that decides holds:
//
//  1. What a command must never do, see below, is refused.
//  2. A deny rule refuses.
//  3. In plan_mode required, effects are refused until a plan is recorded.
//  4. A path out of scope is asked about, unless the mode refuses what is to be done there anyway. Neither an allow
//     rule nor a mode lets it pass.
//  5. An allow rule lets it pass.
//  6. What a person has decided before holds.
//  7. The mode lets it pass, refuses it or has it asked.
//
// No question is asked whose answer a rule makes void, and no call is asked about twice.
//
// # Rules
//
// A rule is `tool:glob` or `glob`. What stands before the first colon is a tool if it is made of a-z, 0-9 and _, and
// no // follows. A glob with no * ? [ or \ is the exact text; one whose only special character is a * at its end is a
// prefix, also across /; any other is a pattern of [path/filepath.Match]. It is compared with the command, the URL,
// the name of an MCP tool or a skill, or the path: absolute, from the project's folder, and by its base name if the
// glob has no /.
//
// # Commands
//
// A command is parsed as a shell does it. A deny rule holds if it matches any simple command in it, wherever that
// stands: in lists, pipes, subshells, substitutions, functions, in the string of sh -c or eval, behind env, sudo,
// xargs or find -exec. An allow rule holds if rules match all of them. What cannot be told from the text, no allow
// rule covers: a command whose name is not constant, a script from a file or an input, an alias, an assignment, an
// output that goes to a file. Only a rule that is the exact text of the whole command does. What is no script as a
// whole is refused.
//
// It is care against accidents and against a model that is led astray, no sandbox: a program that is let through may
// do anything.
//
// # Who is asked
//
// With [InTurn] a question is an interaction of the turn: the client's own [client.Prompter], a page, or another
// terminal answers it, the first answer counts, and a restart loses none. Any other [Prompter] asks in this program.
//
// The package imports client, for the call that asks, client/conf and a parser of shell scripts. It knows neither tools
// nor connections.
package permit
