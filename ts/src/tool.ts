// Tools: what agents may ask this program to do.
import { create, type JsonObject, type JsonValue } from "@bufbuild/protobuf";
import { amountOf, dayMs, timeOf } from "./amounts.js";
import { AgentdError } from "./errors.js";
import { ToolSchema, type Part as PartMessage, type Tool as ToolMessage } from "./gen/agentd/v1/types_pb.js";
import { messagesOf, ToolOutput } from "./parts.js";
import { listOf, schemaText, validated, type OutputOf, type Schema } from "./schema.js";
import { asJson, byteLength, messageOf, wellFormed } from "./text.js";
import { follows, orAborted } from "./wait.js";

/** ToolContext is what a tool knows of a call. */
export interface ToolContext {
  /** The call's id, unique within the session. */
  readonly callId: string;
  /** The session that asks. */
  readonly sessionId: string;
  /** From the root of the tree to the agent that calls. */
  readonly agentPath: readonly string[];
  /** Aborted when nobody waits for the call any more: it was cancelled or took too long, or the run is over. */
  readonly signal: AbortSignal;
  /**
   * Sets a key of the session's state, to the value as it is now. It is written together with the result, and not at all if the
   * tool fails. A value that JSON does not have, such as undefined, is an error.
   */
  setState(key: string, value: JsonValue): void;
}

/** ToolDefinition describes a tool. */
export interface ToolDefinition<S extends Schema = Schema> {
  /** What it does, for the model; at most 16,384 bytes. */
  description: string;
  /**
   * Its arguments, an object: a schema of a library that implements Standard JSON Schema, such as zod, or a JSON Schema as
   * plain data, see jsonSchema. Arguments that the library refuses are answered with an error that tells the model why; a
   * plain JSON Schema refuses none.
   */
  input?: S;
  /**
   * Runs the tool, also several times at once. A string is the result as it is, anything else is sent as JSON; a ToolOutput has
   * one of these and images or other files behind it. What it throws becomes an error that the model sees, with its message.
   */
  run: (input: OutputOf<S>, context: ToolContext) => unknown;
  /** How long a call may take, in milliseconds, at most a day; left out: what the run says for all tools, or the server. */
  timeoutMs?: number;
  /** Whether a person has to approve each call first, see Prompter. */
  needsApproval?: boolean;
  /**
   * Whether the model is told of the tool only when it has looked for it: with the builtin tool tool_search, which some providers
   * run, or with another tool that answers with its name, see ResultPart, which works with all models. The agent then needs one of
   * the two. For agents with many tools.
   */
  deferred?: boolean;
}

/** Asked is one call of a tool. */
export interface Asked {
  callId: string;
  sessionId: string;
  agentPath: readonly string[];
  input: string;
}

/** Answer is what the model sees of a call. */
export interface Answer {
  result: { case: "output" | "error"; value: string };
  parts?: PartMessage[];
  stateDelta?: JsonObject;
}

const namePattern = /^[A-Za-z_][A-Za-z0-9_.:-]{0,63}$/;
const maxDescription = 16_384;
/** How much longer than the tool the server waits, so that the answer arrives which says that its time is over. */
const answerWayMs = 2_000;

/** Tool is a tool that was added; it does not change. */
export class Tool {
  /** What the server is told of it. */
  readonly declaration: ToolMessage;
  readonly #definition: ToolDefinition;

  constructor(name: string, definition: ToolDefinition) {
    const wrong = problemOf(name, definition);
    if (wrong !== undefined) {
      throw new AgentdError("INVALID_REQUEST", wrong);
    }
    const { description, input, timeoutMs, needsApproval = false, deferred = false } = definition;
    const bounds = { least: 1, most: dayMs };
    const waits = timeoutMs === undefined ? undefined : Math.min(amountOf(`tool ${name}: timeoutMs`, timeoutMs, bounds) + answerWayMs, dayMs);
    const timeout = timeOf("timeoutMs", waits, bounds);
    this.#definition = definition;
    this.declaration = create(ToolSchema, {
      name,
      description: wellFormed(description),
      needsApproval,
      deferred,
      ...(input === undefined ? {} : { inputSchema: schemaText(input, `the input of tool ${name}`) }),
      ...(timeout === undefined ? {} : { timeout }),
    });
  }

  /** call runs the tool. It never throws, but the signal's reason when that is aborted. */
  async call(asked: Asked, signal: AbortSignal): Promise<Answer> {
    const { controller, release } = follows(signal);
    const timeoutMs = this.#definition.timeoutMs;
    const late = new Error(`the tool took longer than ${timeoutMs} ms`);
    const timer = timeoutMs === undefined ? undefined : setTimeout(() => controller.abort(late), timeoutMs);
    try {
      return await orAborted(this.#answer(asked, controller.signal), controller.signal);
    } catch (thrown) {
      signal.throwIfAborted();
      return failed(messageOf(thrown));
    } finally {
      clearTimeout(timer);
      release();
    }
  }

  async #answer(asked: Asked, signal: AbortSignal): Promise<Answer> {
    let input: unknown;
    try {
      input = JSON.parse(asked.input === "" ? "{}" : asked.input);
    } catch (thrown) {
      return failed(`the arguments are no JSON: ${messageOf(thrown)}`);
    }
    const schema = this.#definition.input;
    if (schema !== undefined) {
      const result = await validated(schema, input);
      if (result.issues !== undefined) {
        return failed(`the arguments do not fit the schema of ${this.declaration.name}:\n${listOf(result.issues)}`);
      }
      input = result.value;
    }
    const delta: JsonObject = {};
    const { callId, sessionId, agentPath } = asked;
    const setState = (key: string, value: JsonValue) => {
      delta[key] = asJson(value);
    };
    const result = await this.#definition.run(input, { callId, sessionId, agentPath, signal, setState });
    const { output, parts } = result instanceof ToolOutput ? result : new ToolOutput(result, []);
    const value = output === undefined && parts.length > 0 ? "" : textOf(output);
    const answer: Answer = { result: { case: "output", value } };
    if (parts.length > 0) {
      answer.parts = messagesOf(parts);
    }
    if (Object.keys(delta).length > 0) {
      answer.stateDelta = delta;
    }
    return answer;
  }
}

/** How many characters of an error the model is told. */
const maxErrorText = 16_384;

/** failed is the answer of a tool that has failed. */
export function failed(why: string): Answer {
  const text = why.length > maxErrorText ? `${why.slice(0, maxErrorText)} [cut]` : why;
  return { result: { case: "error", value: wellFormed(text) } };
}

function textOf(result: unknown): string {
  return wellFormed(typeof result === "string" ? result : (JSON.stringify(result) ?? "null"));
}

function problemOf(name: string, { description, run }: ToolDefinition): string | undefined {
  if (!namePattern.test(name)) {
    return `tool name ${JSON.stringify(name.slice(0, 80))} must match ${namePattern.source}`;
  }
  if (description === "") {
    return `tool ${name} needs a description: the model chooses by it`;
  }
  if (byteLength(description) > maxDescription) {
    return `tool ${name}: the description has ${byteLength(description)} bytes, at most ${maxDescription} are allowed`;
  }
  if (typeof run !== "function") {
    return `tool ${name} has no function run`;
  }
  return undefined;
}
