// A page with a tool of its own: the agent runs on the server, the tool asks the page's visitor. A reload in the middle of a
// turn goes on with it; a second page that is opened with #SESSION/TURN watches it, and with ?tool answers too once nobody else does.
import { Agentd, jsonSchema, llm, Transcript, type Citation, type End, type Event, type Part, type Run } from "@apzuk3/agentd";

const query = new URLSearchParams(location.search);
const agentd = new Agentd(query.get("agentd") ?? "http://127.0.0.1:8080");

const teas = [...document.querySelectorAll<HTMLButtonElement>("#teas button")];

agentd.addTool("pick_tea", {
  description: `Asks the visitor to pick one of the teas of the page: ${teas.map((tea) => tea.textContent).join(", ")}`,
  input: jsonSchema<{ question: string }>({
    type: "object",
    properties: { question: { type: "string", description: "what to ask the visitor" } },
    required: ["question"],
  }),
  run: ({ question }, { signal }) => {
    status(question);
    return new Promise<string>((resolve, reject) => {
      const enable = (on: boolean) => teas.forEach((tea) => (tea.disabled = !on));
      enable(true);
      for (const tea of teas) {
        tea.onclick = () => {
          enable(false);
          resolve(tea.textContent ?? "");
        };
      }
      signal.addEventListener("abort", () => {
        enable(false);
        reject(signal.reason as Error);
      });
    });
  },
});

const agent = llm({
  name: "host",
  model: "scripted/demo",
  instruction: "You serve tea. Ask the visitor with the tool pick_tea, then say what you will bring.",
  tools: ["pick_tea"],
});

/** Shows a turn while it happens, and remembers it for as long as it runs. */
async function show(run: Run, remember: boolean): Promise<void> {
  const transcript = new Transcript();
  for (const list of ["#events", "#sources"]) {
    element(list).replaceChildren();
  }
  element("#cost").textContent = "";
  try {
    for await (const event of run) {
      transcript.add(event);
      element("#said").textContent = transcript.messages.map((message) => message.text).join("\n");
      if (event.type === "connection_lost" || event.type === "connection_restored") {
        element("#connection").textContent = event.type === "connection_lost" ? "connecting …" : "";
      } else if (event.type !== "output_chunk") {
        const item = document.createElement("li");
        item.textContent = `${event.seq} ${event.type} ${about(event)}`;
        element("#events").append(item);
      }
      if (event.type === "provider_tools_used") {
        element("#sources").append(...event.citations.map(source));
      }
      if (event.type === "turn_started" && remember) {
        sessionStorage.setItem("turn", `${run.sessionId}/${run.turnId}`);
      }
      if (event.type === "end") {
        element("#cost").textContent = cost(event.usage);
        status(event.completed ? "completed" : `stopped: ${event.reason}`);
      }
    }
  } catch (err) {
    status(`failed: ${String(err)}`);
  }
  if (remember) {
    sessionStorage.removeItem("turn");
  }
}

/** about is what an event holds, as far as the page shows it. */
function about(event: Event): string {
  switch (event.type) {
    case "turn_started":
      return event.sessionId;
    case "tool_call":
    case "tool_call_announced":
      return `${event.toolCallId} ${event.toolName} ${event.toolInput}`;
    case "tool_call_answered":
      return `${event.toolCallId} ${event.toolName} ${event.output ?? event.error}`;
    case "agent_started":
      return event.model;
    case "agent_ended":
      return event.outcome;
    case "message_completed":
      return `${event.textBytes} bytes`;
    case "model_call_ended":
      return `${event.model}, ${event.usage?.totalTokens} tokens`;
    case "end":
      return `${event.completed ? "completed" : `stopped: ${event.reason}`}, ${event.usage?.modelCalls} model calls`;
    default:
      return "";
  }
}

/** source is a place that the answer cites. What a model's provider says is not trusted: a link leads to the web or nowhere. */
function source({ uri, title }: Citation): HTMLLIElement {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.textContent = title || uri;
  if (/^https?:/.test(uri)) {
    link.href = uri;
    link.rel = "noreferrer";
  }
  item.append(link);
  return item;
}

/** cost is what a turn has cost, as far as prices are known. */
function cost(usage: End["usage"]): string {
  const { costUsd = 0, unpricedCalls = 0 } = usage ?? {};
  if (costUsd === 0 && unpricedCalls > 0) {
    return "price unknown";
  }
  return `$${costUsd.toFixed(4)}${unpricedCalls > 0 ? ` and ${unpricedCalls} model calls of unknown price` : ""}`;
}

function element(selector: string): Element {
  return document.querySelector(selector) ?? document.body;
}

function status(text: string): void {
  element("#status").textContent = text;
}

const form = document.querySelector<HTMLFormElement>("#ask")!;
form.onsubmit = async (event) => {
  event.preventDefault();
  const fields = new FormData(form);
  const files = fields.getAll("file").filter((file): file is File => file instanceof File && file.size > 0);
  const parts = await Promise.all(files.map(partOf));
  await show(agentd.run({ agent, prompt: String(fields.get("prompt")), parts }), true);
};

/** partOf is a file that the visitor has chosen, as a part of the prompt. */
async function partOf(file: File): Promise<Part> {
  return { mimeType: file.type || "application/octet-stream", data: new Uint8Array(await file.arrayBuffer()) };
}

const [watched, remembered] = [location.hash.slice(1), sessionStorage.getItem("turn")];
if (watched !== "") {
  const [sessionId = "", turnId = ""] = watched.split("/");
  void show(agentd.attach(sessionId, { turnId, observe: !query.has("tool") }), false);
} else if (remembered !== null) {
  const [sessionId = "", turnId = ""] = remembered.split("/");
  void show(agentd.attach(sessionId, { turnId }), true);
}
