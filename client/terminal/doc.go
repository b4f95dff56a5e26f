// Package terminal is for programs whose people sit at a terminal: it shows turns, see
// [Printer], and asks what turns ask people, see [Prompter]:
//
//	clnt := client.New(url, client.WithPrompter(terminal.New(os.Stdin, os.Stderr)))
//
// One question is open at a time. It is taken back when another client answers it or
// its run ends: the read behind it ends too, and takes nothing that is typed later. A
// line counts only behind its own prompt, and an input that has ended is no answer.
// Whatever a model has written, a prompt fits on a screen, shows no character that does
// not print, and cannot look like another prompt: the arguments of a call that is to
// be approved stand on one line, as compact JSON.
//
// It knows nothing of connections. It may import package
// client and what drives the system's terminals.
package terminal
