// Tools: what agents may ask this program to do.
import { AgentdError } from "./errors.js";
import type { JsonValue } from "./json.js";
import type { OutputOf, Schema } from "./schema.js";
import { Tool } from "./tool.js";

/** ToolContext is what a tool knows of a call. */
export interface ToolContext {
  /** The call's id, unique within the session. */
  readonly toolCallId: string;
  /** The session that asks. */
  readonly sessionId: string;
  /** From the root of the tree to the agent that calls. */
  readonly agentPath: readonly string[];
  /** The trace that the call is part of, as the headers of W3C's Trace Context have it; not set for none. */
  readonly traceparent?: string;
  readonly tracestate?: string;
  /** What the caller of the turn tells its tools, and models do not see; see RunOptions.metadata. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Aborted when nobody waits for the call any more: it was cancelled or took too long, or the run is over. */
  readonly signal: AbortSignal;
  /**
   * Returns the value of a key of the session's state, as this call set it or as the run last saw it; undefined if
   * there is none. What other agents do at the same time may not have arrived yet. It is the caller's own to change.
   */
  getState(key: string): JsonValue | undefined;
  /**
   * Sets a key of the session's state, to the value as it is now. It is written together with the result, and not at
   * all if the tool fails; null removes the key. A value that JSON does not have, such as undefined, is an error.
   */
  setState(key: string, value: JsonValue): void;
}

/** ToolDefinition describes a tool. */
export interface ToolDefinition<S extends Schema = Schema> {
  /** What it does, for the model; at most 16,384 bytes. */
  description: string;
  /**
   * Its arguments, an object: a schema of a library that implements Standard JSON Schema, such as zod, or a JSON Schema
   * as plain data, see jsonSchema. For arguments that the library refuses the model receives an error that says
   * why; a plain JSON Schema refuses none.
   */
  input?: S | undefined;
  /**
   * Runs the tool, also several times at once. A string is the result as it is, anything else is sent as JSON; a
   * ToolOutput has one of these and images or other files behind it. What it throws becomes an error that the model
   * sees, with its message.
   */
  run: (input: OutputOf<S>, context: ToolContext) => unknown;
  /**
   * How long a call may take, in milliseconds, at most a day; left out: what the run says for all tools, or the server.
   */
  timeoutMs?: number | undefined;
  /** Whether a person has to approve each call first, see Prompter. */
  needsApproval?: boolean | undefined;
  /**
   * Whether the model is told of the tool only when it has looked for it: with the builtin tool tool_search, which some
   * providers run, or with another tool that returns its name, see ResultPart, which works with all models. The
   * agent then needs one of the two. For agents with many tools.
   */
  deferred?: boolean | undefined;
  /**
   * What a call does to the world; nothing checks it. Left out, it is not known, which counts as an effect. See
   * RunOptions.planMode.
   */
  effect?: "read" | "write" | "execute" | "network" | "internal" | undefined;
}

/** The protocol's bound of tools of one client. */
const maxTools = 512;

/**
 * ToolSet is a set of tools: those of a client, and those that agents attach under a name. Runs that begin later see
 * what is added.
 */
export class ToolSet {
  readonly #tools = new Map<string, Tool>();

  /**
   * addTool adds a tool. It throws INVALID_REQUEST for a name that does not match [A-Za-z_][A-Za-z0-9_.:-]{0,63} or is
   * taken, and for a description or a schema that the protocol does not take.
   */
  addTool<S extends Schema>(name: string, definition: ToolDefinition<S>): this {
    if (this.#tools.has(name)) {
      throw new AgentdError("INVALID_REQUEST", `tool ${name} is added twice`);
    }
    if (this.#tools.size === maxTools) {
      throw new AgentdError("INVALID_REQUEST", `tool ${name} is one too many: there may be ${maxTools}`);
    }
    this.#tools.set(name, new Tool(name, definition as unknown as ToolDefinition));
    return this;
  }

  /** @internal */
  get tools(): ReadonlyMap<string, Tool> {
    return this.#tools;
  }
}
