package permit

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// compute notes what a computation does beside its result: it sets variables, or it runs commands that stand in the
// subscript of a text.
func (s *script) compute(n syntax.Node) {
	switch n := n.(type) {
	case *syntax.ParamExp:
		if e := n.Exp; e != nil && (e.Op == syntax.AssignUnset || e.Op == syntax.AssignUnsetOrNull) {
			s.hide("it sets variables")
		} else if e != nil && e.Op == syntax.OtherParamOps {
			s.hide("it expands what a variable holds")
		}
		if n.Index != nil {
			s.subscripts(n.Index)
		}
		if n.Slice != nil && n.Slice.Offset != nil {
			s.subscripts(n.Slice.Offset)
		}
		if n.Slice != nil && n.Slice.Length != nil {
			s.subscripts(n.Slice.Length)
		}
	case *syntax.ArithmExp:
		s.subscripts(n.X)
	case *syntax.ArithmCmd:
		s.subscripts(n.X)
	case *syntax.BinaryArithm:
		if op := n.Op.String(); strings.HasSuffix(op, "=") && !slices.Contains([]string{"==", "!=", "<=", ">="}, op) {
			s.hide("it sets variables")
		}
	case *syntax.UnaryArithm:
		if n.Op == syntax.Inc || n.Op == syntax.Dec {
			s.hide("it sets variables")
		}
	case *syntax.BinaryTest:
		if slices.Contains(comparesNumbers, n.Op) {
			s.subscripts(n.X)
			s.subscripts(n.Y)
		}
	case *syntax.UnaryTest:
		if n.Op == syntax.TsVarSet || n.Op == syntax.TsRefVar {
			s.subscripts(n.X)
		}
	}
}

var comparesNumbers = []syntax.BinTestOperator{
	syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr,
}

// subscripts notes texts in a computation that the shell computes once more.
func (s *script) subscripts(n syntax.Node) {
	if n == nil {
		return
	}
	s.walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.SglQuoted:
			if strings.ContainsAny(n.Value, "$`[\\") {
				s.hide("a computation runs commands")
			}
		case *syntax.Lit:
			if strings.Contains(n.Value, `\`) {
				s.hide("a computation runs commands")
			}
		}
		return true
	})
}

// time adds the command behind flags of time, which are words of it for a shell.
func (s *script) time(n *syntax.TimeClause) {
	if n.Stmt == nil {
		return
	}
	call, ok := n.Stmt.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	if first := s.constant(call.Args[0]).text; first != "!" && !strings.HasPrefix(first, "-") {
		return
	}
	words := []word{{text: "time"}}
	for _, a := range call.Args {
		words = append(words, s.constant(a))
	}
	s.run(words)
}
