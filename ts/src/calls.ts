// The tool calls of one run.
import { persist, type ReconnectPolicy } from "./backoff.js";
import { AgentdError, fromThrown, isLost } from "./errors.js";
import type { ToolCall } from "./events.js";
import { errorOf } from "./fromjson.js";
import type { JsonObject } from "./json.js";
import type { ResultCache } from "./resultcache.js";
import { fitting, type ResultLimits } from "./resultsize.js";
import { failed, type Tool, type ToolResult } from "./tool.js";
import type { Gate } from "./wait.js";
import type { Wire } from "./wire.js";

/** Call is a call that a turn asks for. */
export interface Call extends ToolCall {
  sessionId: string;
  turnId: string;
}

/** CallsOptions is what the calls of a run need. */
export interface CallsOptions {
  wire: Wire;
  tools: ReadonlyMap<string, Tool>;
  results: ResultCache;
  /** Bounds how many tools run at once. */
  gate: Gate;
  /** Bounds what a tool returns. */
  limits: ResultLimits;
  headers: Headers;
  reconnect: ReconnectPolicy;
  requestTimeoutMs: number;
  /** The session's state as the run has seen it; it changes with the run. */
  state: Readonly<JsonObject>;
  /** Aborted at the end of the run: tools stop, results are no longer sent. */
  signal: AbortSignal;
  /** Told of what went wrong without ending the turn. */
  report: (error: AgentdError) => void;
}

/** Calls runs the tools that a turn asks for, next to each other, and sends their results. */
export class Calls {
  readonly #o: CallsOptions;
  readonly #open = new Map<string, AbortController>(); // by call id: tools that run, and results on their way

  constructor(options: CallsOptions) {
    this.#o = options;
    const { signal } = options;
    const stop = () => this.#open.forEach((controller) => controller.abort(signal.reason));
    signal.addEventListener("abort", stop, { once: true }); // one for all calls: Node.js warns of many
  }

  /** start sees to a call, unless that is being done. */
  start(call: Call): void {
    if (this.#open.has(call.toolCallId) || this.#o.signal.aborted) {
      return;
    }
    const controller = new AbortController();
    this.#open.set(call.toolCallId, controller);
    void this.#serve(call, controller.signal)
      .catch((thrown: unknown) => {
        if (!controller.signal.aborted) {
          this.#o.report(fromThrown(thrown));
        }
      })
      .finally(() => this.#open.delete(call.toolCallId));
  }

  /** stop aborts the tool of a call that nobody waits for any more. */
  stop(callId: string, reason: string): void {
    this.#open.get(callId)?.abort(new AgentdError("UNSPECIFIED", reason));
  }

  async #serve(call: Call, signal: AbortSignal): Promise<void> {
    const { results } = this.#o;
    const result = await results.resultOf(call.sessionId, call.toolCallId, signal, () => this.#run(call, signal));
    const refused = await this.#submit(call, result, signal);
    if (refused === undefined) {
      return;
    }
    this.#o.report(refused);
    if (result.output !== undefined && !isLost(refused)) {
      // The call would wait for ever for a result that does not arrive, such as one that is too large.
      const instead = failed(`the tool ran, but its result was refused: ${refused.message}`);
      await this.#submit(call, instead, signal);
    }
  }

  async #run(call: Call, signal: AbortSignal): Promise<ToolResult> {
    const tool = this.#o.tools.get(call.toolName);
    if (tool === undefined) {
      return failed(`this client has no tool ${call.toolName}`);
    }
    await this.#o.gate.enter(signal);
    try {
      const result = await tool.call({ ...call, state: this.#o.state }, signal);
      return fitting(result, this.#o.limits);
    } finally {
      this.#o.gate.leave();
    }
  }

  /** submit sends a result until it is taken or refused; it returns why it was refused. */
  async #submit(call: Call, result: ToolResult, signal: AbortSignal): Promise<AgentdError | undefined> {
    const { wire, headers, reconnect, requestTimeoutMs } = this.#o;
    const { sessionId, turnId, toolCallId, toolName } = call;
    try {
      return await persist(reconnect, signal, async () => {
        const { refused = [] } = await wire.call(
          "SubmitToolResults",
          { sessionId, turnId, results: [{ toolCallId, toolName, ...result }] },
          { signal, headers, timeoutMs: requestTimeoutMs },
        );
        const error = refused[0]?.error;
        const why = error === undefined ? undefined : errorOf(error, { sessionId, turnId });
        if (why !== undefined && isLost(why)) {
          throw why; // the server cannot take it now
        }
        return why;
      });
    } catch (thrown) {
      signal.throwIfAborted();
      return fromThrown(thrown);
    }
  }
}
