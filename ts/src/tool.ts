// One tool: how it is declared, and how a call of it becomes a result.
import { amountOf, dayMs, timeOf } from "./amounts.js";
import { AgentdError } from "./errors.js";
import type { PartJson, ToolJson } from "./gen/agentd/v1/types_pb.js";
import { enumOf, given, type JsonObject, type JsonValue } from "./json.js";
import { messagesOf, ToolOutput } from "./parts.js";
import { listOf, schemaText, validated } from "./schema.js";
import { asJson, byteLength, jsonText, jsonValue, messageOf, wellFormed } from "./text.js";
import type { ToolDefinition } from "./toolset.js";
import { follows, orAborted } from "./wait.js";

/** Asked is one call of a tool. */
export interface Asked {
  toolCallId: string;
  sessionId: string;
  agentPath: readonly string[];
  toolInput: string;
  traceparent?: string;
  tracestate?: string;
  metadata?: Readonly<Record<string, string>>;
  /** The session's state as the run has seen it. */
  state: Readonly<JsonObject>;
}

/** ToolResult is what the model sees of a call: an output, or an error. */
export interface ToolResult {
  output?: string;
  error?: string;
  parts?: PartJson[];
  /** Keys of the session's state to write, as JSON text. */
  stateDeltaJson?: string;
}

const namePattern = /^[A-Za-z_][A-Za-z0-9_.:-]{0,63}$/;
const maxDescription = 16_384;
/** How much longer than the tool the server waits, so that the result arrives which says that its time is over. */
const resultWayMs = 2_000;

/** Tool is a tool that was added; it does not change. */
export class Tool {
  /** What the server is told of it. */
  readonly declaration: ToolJson;
  readonly #definition: ToolDefinition;
  readonly #timeoutMs: number; // 0 is none

  constructor(name: string, definition: ToolDefinition) {
    const wrong = problemOf(name, definition);
    if (wrong !== undefined) {
      throw new AgentdError("INVALID_REQUEST", wrong);
    }
    const { description, input, timeoutMs, needsApproval, deferred, effect } = definition;
    const most =
      timeoutMs === undefined ? 0 : amountOf(`tool ${name}: timeoutMs`, timeoutMs, { least: 1, most: dayMs });
    const timeout = timeOf("timeoutMs", most === 0 ? 0 : Math.min(most + resultWayMs, dayMs), { most: dayMs });
    this.#timeoutMs = most;
    this.#definition = definition;
    this.declaration = given<ToolJson>({
      name,
      description: wellFormed(description),
      needsApproval,
      deferred,
      effect: enumOf("EFFECT_", effect),
      inputSchema: input === undefined ? undefined : schemaText(input, `the input of tool ${name}`),
      timeout,
    });
  }

  /** call runs the tool. It never throws, but the signal's reason when that is aborted. */
  async call(asked: Asked, signal: AbortSignal): Promise<ToolResult> {
    const { controller, release } = follows(signal);
    const timeoutMs = this.#timeoutMs;
    const late = new Error(`the tool took longer than ${timeoutMs} ms`);
    const timer = timeoutMs === 0 ? undefined : setTimeout(() => controller.abort(late), timeoutMs);
    try {
      return await orAborted(this.#run(asked, controller.signal), controller.signal);
    } catch (thrown) {
      signal.throwIfAborted();
      return failed(messageOf(thrown));
    } finally {
      clearTimeout(timer);
      release();
    }
  }

  async #run(asked: Asked, signal: AbortSignal): Promise<ToolResult> {
    let input: unknown;
    try {
      input = JSON.parse(asked.toolInput === "" ? "{}" : asked.toolInput);
    } catch (thrown) {
      return failed(`the arguments are no JSON: ${messageOf(thrown)}`);
    }
    const schema = this.#definition.input;
    if (schema !== undefined) {
      const checked = await validated(schema, input);
      if (checked.issues !== undefined) {
        return failed(`the arguments do not fit the schema of ${this.declaration.name}:\n${listOf(checked.issues)}`);
      }
      input = checked.value;
    }
    const delta = new Map<string, string>(); // values as JSON text
    const { toolCallId, sessionId, agentPath, state, traceparent, tracestate, metadata = {} } = asked;
    const trace = { ...(traceparent && { traceparent }), ...(tracestate && { tracestate }) };
    const getState = (key: string) => {
      const text = delta.get(key);
      const value = text !== undefined ? jsonValue(text) : Object.hasOwn(state, key) ? state[key] : undefined;
      return value === undefined || value === null ? undefined : asJson(value);
    };
    const setState = (key: string, value: JsonValue) => {
      delta.set(key, jsonText(value));
    };
    const returned = await this.#definition.run(input, { toolCallId, sessionId, agentPath, metadata, ...trace, signal, getState, setState });
    const { output, parts } = returned instanceof ToolOutput ? returned : new ToolOutput(returned, []);
    const value = output === undefined && parts.length > 0 ? "" : textOf(output);
    const result: ToolResult = { output: value };
    if (parts.length > 0) {
      result.parts = messagesOf(parts);
    }
    if (delta.size > 0) {
      result.stateDeltaJson = `{${[...delta].map(([key, text]) => `${JSON.stringify(key)}:${text}`).join(",")}}`;
    }
    return result;
  }
}

/** How many characters of an error the model is told. */
const maxErrorText = 16_384;

/** failed is the result of a tool that has failed. */
export function failed(why: string): ToolResult {
  const text = why.length > maxErrorText ? `${why.slice(0, maxErrorText)} [cut]` : why;
  return { error: wellFormed(text) };
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
