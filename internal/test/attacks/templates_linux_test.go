package attacks

import (
	"fmt"
	"strings"
	"sync"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// bomb names a key 20,000 times.
var bomb = strings.Repeat("{k}", 20_000)

// attacks are all of them, by the items of what was found.
var attacks = []attack{
	{name: "1. An instruction with a key 20,000 times, 1 MB in the key", most: 512, run: templateBomb},
	{name: "1. The same, the key comes from an output_key", most: 512, run: outputBomb},
	{name: "1. The same, below the bound, with --instruction-file and the caller's own addition", most: 512, args: []string{"--instruction-file", "{scripts}/added.txt"}, run: additionBomb},
	{name: "1. 40 turns at once, each of 32 parallel agents with 1.9 MB of instruction", most: 1024, run: fanOut},
	{name: "1. 400 clients at a time that ask for megabytes and read nothing", most: 768, run: silentReaders},
	{name: "1. 400 requests of 1.8 MB at once", most: 3072, run: largeRequests},
	{name: "2. 20 and 40 requests at once with 0.9 MB of app: state", most: 512, run: sharedState},
	{name: "2. 100 writers of one byte, to compare with", most: 512, run: smallWriters},
	{name: "2. 100 writers at the bounds of app:, with 0.9 MB of their own", most: 1536, run: writers},
	{name: "2. app: at its bounds, 100 sessions with 0.9 MB of their own wait", most: 1536, first: full, run: atTheBound},
	{name: "2. 100 writers write one byte a second each, to compare with", most: 512, first: nearlyEmpty, run: slowSmallWriters},
	{name: "2. 100 writers at the bounds of app: write one key a second each", most: 1536, first: full, run: slowWriters},
	{name: "3. Tool results of 1 to 5 MiB, over Run and SubmitToolResults", most: 512, run: largeResults},
	{name: "4. A stream with a backlog of 200,000 empty messages, two streams at most", most: 512, args: []string{"--max-streams", "2"}, run: backlog},
	{name: "4. SIGTERM with a grace of 2 s beside backlogs", most: 512, run: backlogAtStop, bare: true},
	{name: "5. Bytes of deleted sessions", most: 512, run: canaries, gone: canary},
	{name: "6. A damaged file", most: 512, run: damaged, bare: true},
}

// templateBomb is refused before anything is stored.
func templateBomb(b *bed) {
	for range times(20) {
		_, err := b.create(execute(echo("bomb", bomb), "go", map[string]any{"k": strings.Repeat("x", 1_000_000)}))
		if !refused(err) {
			b.Fatalf("got %v", err)
		}
		if len(b.said) == 0 {
			b.sayf("refused: %s", strings.TrimPrefix(err.Error(), "resource_exhausted: "))
		}
	}
}

// outputBomb cannot be known before: the turn fails.
func outputBomb(b *bed) {
	writer := echo("writer", "")
	writer.GetLlm().OutputKey = "k"
	tree := &agentdv1.Agent{Name: "both", AgentType: &agentdv1.Agent_Sequential{Sequential: &agentdv1.SequentialAgent{
		Agents: []*agentdv1.Agent{writer, echo("bomb", bomb)},
	}}}
	for range times(20) {
		turn, err := b.create(execute(tree, strings.Repeat("x", 1_000_000), nil))
		if err != nil {
			b.Fatal(err)
		}
		if turn = b.until(turn, failed); turn.GetErrorCode() != agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED {
			b.Fatalf("the turn ended with %v: %s", turn.GetErrorCode(), turn.GetStatusMessage())
		}
		if len(b.said) == 0 {
			b.sayf("the turn fails: %s", turn.GetStatusMessage())
		}
	}
}

// additionBomb fills 1.8 MB from a key and adds what the operator and the caller add.
func additionBomb(b *bed) {
	for n := range times(20) {
		ex := execute(echo("bomb", bomb), "go", map[string]any{"k": strings.Repeat("x", 90)})
		ex.Instruction = strings.Repeat("{k}", 20_000)
		_, err := b.create(ex)
		if !refused(err) {
			b.Fatalf("got %v", err)
		}
		if n == 0 {
			b.sayf("refused: %s", strings.TrimPrefix(err.Error(), "resource_exhausted: "))
		}
	}
}

// fanOut is below each bound of one turn.
func fanOut(b *bed) {
	many := &agentdv1.ParallelAgent{}
	for n := range 32 {
		many.Agents = append(many.Agents, echo(fmt.Sprint("a", n), strings.Repeat("{k}", 2000)))
	}
	tree := &agentdv1.Agent{Name: "many", AgentType: &agentdv1.Agent_Parallel{Parallel: many}}
	var wg sync.WaitGroup
	ends := make(chan *agentdv1.Turn, 40)
	for range times(40) {
		wg.Go(func() {
			turn, err := b.create(execute(tree, "hello", map[string]any{"k": strings.Repeat("x", 950)}))
			if err != nil {
				b.Error(err)
				return
			}
			ends <- b.until(turn, succeeded)
		})
	}
	wg.Wait()
	b.sayf("%d of %d turns complete", len(ends), times(40))
}
