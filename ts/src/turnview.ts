// One turn as a page shows it.
import type { Event, ToolCall } from "./events.js";
import type { JsonObject } from "./json.js";
import type { Part, ResultPart } from "./parts.js";
import { Transcript, type Message } from "./transcript.js";
import type { Interaction } from "./types.js";

/** SessionMessage is what a user or an agent has said. */
export interface SessionMessage {
  /** Unique within the session. */
  readonly id: string;
  readonly turnId: string;
  readonly role: "user" | "agent";
  /** Of an agent: from the root of the tree to it. */
  readonly agentPath: readonly string[];
  readonly text: string;
  /** Of an agent: the model's thinking. */
  readonly thoughts: string;
  /** Of a user: the files behind the text, as far as the server gives them back. */
  readonly parts: readonly Part[];
}

/** SessionToolCall is a call of a tool, and what has come of it. */
export interface SessionToolCall extends ToolCall {
  readonly turnId: string;
  /** Whether it runs here, runs elsewhere, waits for somebody who has the tool, or is over. */
  readonly status: "running" | "elsewhere" | "unserved" | "answered" | "failed" | "canceled";
  /** What the tool has returned, once it is over. */
  readonly output: string | undefined;
  /** Why it failed, or was canceled. */
  readonly error: string | undefined;
  readonly parts: readonly ResultPart[];
}

/**
 * TurnView gathers the events of one turn. What it gives out does not change: there are new objects for what has
 * changed.
 */
export class TurnView {
  turnId: string;
  readonly prompt: string;
  readonly parts: readonly Part[];
  /** Whether the turn is over, or nothing more is known of it. */
  over = false;
  /** What it has told of the session's state; null is removed. */
  readonly state: JsonObject = {};
  readonly #transcript = new Transcript();
  readonly #calls = new Map<string, SessionToolCall>();
  readonly #asked = new Map<string, Interaction>();
  #said: SessionMessage[] = []; // by agents, and by users meanwhile
  readonly #injected: { at: number; message: SessionMessage }[] = []; // behind so many messages of agents
  #messages: readonly SessionMessage[] | undefined;

  constructor(turnId: string, prompt: string, parts: readonly Part[]) {
    this.turnId = turnId;
    this.prompt = prompt;
    this.parts = parts;
  }

  /** end says that there will be no more events. */
  end(): void {
    this.over = true;
    this.#asked.clear();
    for (const call of this.#calls.values()) {
      if (call.status !== "answered" && call.status !== "failed" && call.status !== "canceled") {
        this.#calls.set(call.toolCallId, { ...call, status: "canceled" });
      }
    }
  }

  /** add takes up an event. */
  add(event: Event): void {
    this.#transcript.add(event);
    switch (event.type) {
      case "output_chunk":
      case "message_retracted":
        this.#messages = undefined;
        break;
      case "message_injected": {
        const { userPrompt: text, userParts: parts, seq } = event;
        const message: SessionMessage = {
          id: `injected ${seq}`,
          turnId: this.turnId,
          role: "user",
          agentPath: [],
          text,
          thoughts: "",
          parts,
        };
        this.#injected.push({ at: this.#transcript.messages.length, message });
        this.#messages = undefined;
        break;
      }
      case "state_update":
        Object.assign(this.state, event.stateDelta);
        break;
      case "tool_call":
        this.#call(event, "running");
        break;
      case "tool_call_announced":
        this.#call(event, "elsewhere");
        break;
      case "tool_call_unserved":
        this.#change(event.toolCallId, { status: "unserved" });
        break;
      case "tool_call_canceled":
        this.#change(event.toolCallId, { status: "canceled", error: event.reason });
        break;
      case "tool_call_answered": {
        const { output, error, parts } = event;
        this.#change(event.toolCallId, { status: error === undefined ? "answered" : "failed", output, error, parts });
        break;
      }
      case "interaction_requested":
        if (event.interaction.status === "pending") {
          this.#asked.set(event.interaction.id, event.interaction);
        }
        break;
      case "interaction_resolved":
        this.#asked.delete(event.interaction.id);
        break;
      case "end":
        this.end();
        break;
      default:
    }
  }

  /** messages is what was said, the prompt first. */
  get messages(): readonly SessionMessage[] {
    this.#messages ??= this.#gathered();
    return this.#messages;
  }

  /** toolCalls are the calls in the order in which they came. */
  get toolCalls(): readonly SessionToolCall[] {
    return [...this.#calls.values()];
  }

  /** interactions are the questions that are open. */
  get interactions(): readonly Interaction[] {
    return [...this.#asked.values()];
  }

  #gathered(): SessionMessage[] {
    const before = new Map(this.#said.map((message) => [message.id, message]));
    const { turnId, prompt, parts } = this;
    const said = this.#transcript.messages.map((message, i) => this.#message(message, i));
    for (const [i, { at, message }] of this.#injected.entries()) {
      said.splice(at + i, 0, message);
    }
    said.unshift({ id: `prompt ${turnId}`, turnId, role: "user", agentPath: [], text: prompt, thoughts: "", parts });
    this.#said = said.map((message) => {
      const same = before.get(message.id);
      return same?.text === message.text && same.thoughts === message.thoughts ? same : message;
    });
    return this.#said;
  }

  #message({ id, agentPath, text, thoughts }: Message, i: number): SessionMessage {
    return {
      id: `${this.turnId} ${id || i}`,
      turnId: this.turnId,
      role: "agent",
      agentPath,
      text,
      thoughts,
      parts: [],
    };
  }

  #call({ toolCallId, toolName, toolInput, agentPath }: ToolCall, status: "running" | "elsewhere"): void {
    const known = this.#calls.get(toolCallId);
    const call = { toolCallId, toolName, toolInput, agentPath, turnId: this.turnId };
    this.#calls.set(
      toolCallId,
      known === undefined ? { ...call, status, output: undefined, error: undefined, parts: [] } : { ...known, status },
    );
  }

  #change(toolCallId: string, change: Partial<SessionToolCall>): void {
    const known = this.#calls.get(toolCallId);
    if (known !== undefined) {
      this.#calls.set(toolCallId, { ...known, ...change });
    }
  }
}
