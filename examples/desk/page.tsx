// A support desk in a page: a triage agent hands the customer over to a specialist, whose tools run here, next to the
// page's own data; a refund waits for a click. All pages with the same address show the same conversation.
import { Agentd, jsonSchema, llm } from "@apzuk3/agentd";
import { hashSession, useSession } from "@apzuk3/agentd/react";
import { StrictMode, useState, type FormEvent } from "react";
import { createRoot } from "react-dom/client";

const query = new URLSearchParams(location.search);
const agentd = new Agentd(query.get("agentd") ?? "http://127.0.0.1:8080");
const orders = new Map([["7", { item: "teapot", price: 30, parcel: "P-1", refunded: 0 }]]);
const input = jsonSchema<{ order: string; amount?: number; note?: string }>({
  type: "object",
  properties: { order: { type: "string" }, amount: { type: "number" }, note: { type: "string" } },
  required: ["order"],
});

function find(order: string) {
  const found = orders.get(order);
  if (found === undefined) throw new Error(`there is no order ${order}; there are ${[...orders.keys()].join(", ")}`);
  return found;
}

agentd
  .addTool("find_order", { description: "Finds an order by its number", input, run: ({ order }) => find(order) })
  .addTool("track_parcel", {
    description: "Says where the parcel of an order is",
    input,
    run: ({ order }) => `${find(order).parcel} is in Oslo`,
  })
  .addTool("take_note", {
    description: "Remembers a note",
    input,
    run: ({ note = "" }, { setState }) => setState("note", note),
  })
  .addTool("refund", {
    description: "Pays an amount of an order back",
    input,
    needsApproval: true,
    run: ({ order, amount = 0 }) => `refunded ${(find(order).refunded += amount)} dollars`,
  });

// With ?scripted each agent is the script of its name, and needs no key.
const agentOf = (name: string, instruction: string, more: Partial<Parameters<typeof llm>[0]>) =>
  llm({ name, model: query.has("scripted") ? `scripted/${name}` : "gemini-2.5-flash", instruction, ...more });
const specialist = (name: string, description: string, ...tools: string[]) =>
  agentOf(name, "Help with your tools. Be brief.", { description, tools: [...tools, "take_note"] });
const agent = agentOf("triage", "Find out what the customer needs and transfer to the specialist for it.", {
  subAgents: [
    specialist("billing", "Orders, prices and refunds", "find_order", "refund"),
    specialist("shipping", "Parcels and addresses", "find_order", "track_parcel"),
  ],
});
const closer = agentOf("closer", "Say in one sentence how the case went, and whether the customer is served.", {
  output: { type: "object", properties: { solved: { type: "boolean" }, summary: { type: "string" } } },
});

function Desk() {
  const [prompt, setPrompt] = useState("I want a refund for order 7");
  const [closed, setClosed] = useState("");
  const desk = useSession(agentd, { agent, ...hashSession() });
  const ready = desk.status === "ready";
  const ask = (event: FormEvent) => {
    event.preventDefault();
    void desk.send(prompt);
    setPrompt("");
  };
  const close = async () => {
    const run = agentd.run({ agent: closer, sessionId: desk.sessionId, prompt: "Close the case." });
    setClosed(JSON.stringify((await run.result()).structuredOutput));
  };
  const messages = desk.messages.filter(({ text }) => text !== "");
  return (
    <main>
      <p id="status">{desk.error?.message ?? (desk.connection === "lost" ? "connecting …" : desk.status)}</p>
      <ol id="messages">
        {messages.map(({ id, role, agentPath, text }) => <li key={id}>{`${agentPath.at(-1) ?? role}: ${text}`}</li>)}
      </ol>
      <ul id="calls">
        {desk.toolCalls.map((call) => <li key={call.toolCallId}>{`${call.toolName} ${call.status}`}</li>)}
      </ul>
      {desk.interactions.map(({ id, toolName, toolInput, question }) => (
        <p key={id} className="approval">
          {question || `${toolName} ${toolInput}?`}
          <button onClick={() => void desk.resolve(id, { approve: true })}>Yes</button>
          <button onClick={() => void desk.resolve(id, { deny: true, reason: "not today" })}>No</button>
        </p>
      ))}
      <form onSubmit={ask}>
        <input value={prompt} onChange={(event) => setPrompt(event.target.value)} />
        <button disabled={!ready || prompt === ""}>Ask</button>
        <button type="button" disabled={desk.status !== "running"} onClick={() => void desk.cancel()}>Stop</button>
        <button type="button" disabled={!ready || !desk.sessionId} onClick={() => void close()}>Close the case</button>
      </form>
      <pre id="closed">{closed}</pre>
    </main>
  );
}

createRoot(document.querySelector("#desk")!).render(<StrictMode><Desk /></StrictMode>);
