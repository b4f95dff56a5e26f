// State shows the three who share a session's state: the client, who begins it,
// tools, which read and write it, and agents, whose instructions hold {keys}
// and whose text lands in it.
package main

import (
	"context"
	"fmt"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/examples/internal/demo"
)

const script = `
answers:
  - when: {step: 1}
    text: "Adding it. "
    calls:
      - name: add_to_cart
        args: {item: "{{last_word}}", price: 30}
  - when: {system: "holds 50"} # the instruction has the new total
    text: Your cart is worth 50.
`

// Cart is the state this client begins with.
type Cart struct {
	Total float64 `json:"cart_total"`
}

// Item is what the model fills in.
type Item struct {
	Item  string  `json:"item"`
	Price float64 `json:"price" jsonschema:"in euros"`
}

func main() { demo.Main(script, run) }

func run(ctx context.Context, e demo.Example) error {
	clnt := client.New(e.URL)
	err := client.AddTool(clnt, "add_to_cart", "Adds an item to the cart",
		func(ctx context.Context, in Item) (string, error) {
			call := client.CallFrom(ctx)
			total, _ := call.State("cart_total")
			sum, _ := total.(float64)
			return "ok", call.SetState("cart_total", sum+in.Price)
		})
	if err != nil {
		return err
	}
	agent := client.LLM("shop", e.Model,
		client.Instruction("You help with shopping. The cart holds {cart_total} euros."),
		client.Tools("add_to_cart"), client.OutputKey("answer"))
	result, err := clnt.Do(ctx, agent, "Please add a mouse", client.WithInitialState(Cart{Total: 20}))
	if err != nil {
		return err
	}
	fmt.Println(result.Text)
	fmt.Printf("state: cart_total=%v answer=%q\n", result.State["cart_total"], result.State["answer"])
	return nil
}
