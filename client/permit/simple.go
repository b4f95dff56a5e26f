package permit

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// simple is a simple command: a program and its arguments.
type simple struct {
	// name is the base name of the program, "" if the text does not tell it.
	name string
	// words are the program and its arguments. One that is not constant is as it is written, with open true.
	words []word
	// outer is true for a command that only runs another one, which follows in the script: a rule for that covers it.
	outer bool
}

type word struct {
	text string
	open bool // it holds something that only the shell knows
	node *syntax.Word
}

func (s *simple) text() string {
	texts := make([]string, len(s.words))
	for i, w := range s.words {
		texts[i] = w.text
	}
	return strings.Join(texts, " ")
}

// args returns the texts behind the program.
func (s *simple) args() []string {
	var out []string
	for _, w := range s.words[1:] {
		out = append(out, w.text)
	}
	return out
}

// texts are the texts of all simple commands: as they are, without the folder of the program, without the flags of git.
func (s *script) texts() (out []string) {
	for i := range s.simples {
		c := &s.simples[i]
		out = append(out, c.text())
		if c.name != "" {
			out = append(out, strings.Join(append([]string{c.name}, c.args()...), " "))
		}
		if bare := c.bare(); bare != "" {
			out = append(out, bare)
		}
	}
	return out
}
