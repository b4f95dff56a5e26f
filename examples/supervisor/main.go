// Supervisor is a goal that watches a background agent: it looks once a second at what that one has reported, and stops
// it when it goes in circles.
package main

import (
	"context"
	"fmt"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/examples/internal/demo"
)

const script = `
answers:
  - when: {system: "You supervise", user: circles, step: 1}
    calls: [{name: stop_agent, args: {name: runaway}}]
  - when: {system: "You supervise", user: circles, step: 2}
    calls: [{name: report_done, args: {state: done, detail: I have stopped it.}}]
  - when: {system: "You supervise", user: watch, step: 1}
    calls:
      - {name: spawn_agent, args: {name: runaway, system_prompt: You wander., goal: find the way out, max_turns: 1000}}
  - when: {system: "You supervise", step: 1}
    calls: [{name: schedule_next_turn, args: {wake_in_sec: 1, next_prompt: Look again.}}]
  - when: {system: "You supervise", step: 2}
    calls: [{name: schedule_next_turn, args: {wake_in_sec: 1, next_prompt: Look again.}}]
  - when: {system: "You wander", step: 1}
    delay: 100ms
    calls: [{name: report_alert, args: {text: I go in circles.}}]
  - when: {}
    text: That is all for now.
`

func main() { demo.Main(script, run) }

func run(ctx context.Context, e demo.Example) error {
	c := client.New(e.URL)
	supervisor := client.LLM("supervisor", e.Model, client.Instruction("You supervise others."),
		client.BackgroundAgents(client.Background{MaxAtOnce: 1}))
	goal, err := c.StartGoal(ctx, client.GoalSpec{
		Agent: supervisor, Goal: "Have somebody find the way out, and watch it.", Schedule: true, MaxTurns: 20,
	})
	if err != nil {
		return err
	}
	result, err := goal.Wait(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("supervisor: %s: %s\n", result.Reason, result.DoneDetail)
	runaway, err := c.GetGoal(ctx, result.SessionID+":sub:bg.runaway")
	if err != nil {
		return err
	}
	fmt.Printf("runaway: %s, after at most 1000 turns: %v\n", runaway.Status, runaway.Turns < 1000)
	return nil
}
