package script_test

import (
	"testing"
	"time"

	"github.com/apzuk3/agentd/bench/internal/script"
)

func TestPrompt(t *testing.T) {
	want := script.Script{
		Chunks: 200, Every: 10 * time.Millisecond, Stamped: true, Rounds: 3, Calls: 8, Wait: time.Hour, Turn: 7, Past: 40,
	}
	if got, err := script.Parse(want.Prompt() + " and more"); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestStamp(t *testing.T) {
	s := script.Script{Chunks: 2, Stamped: true}
	text := []byte(s.Text())
	at := time.Unix(1_800_000_000, 123)
	script.Stamp(text[len(text)/2:], at)
	plain, stamps, err := script.Strip(string(text))
	if err != nil || plain != "000000 000001 " || len(stamps) != 2 || !stamps[1].Equal(at) || stamps[0].UnixNano() != 0 {
		t.Errorf("%q, %v, %v", plain, stamps, err)
	}
	if _, _, err := script.Strip(string(text[1:])); err == nil {
		t.Error("a text that is cut off passes")
	}
}
