// The tool calls of one run.
import type { Client } from "@connectrpc/connect";
import type { Answers } from "./answers.js";
import { persist, type ReconnectPolicy } from "./backoff.js";
import { AgentdError, fromResponse, fromThrown, isLost } from "./errors.js";
import type { RunResponse_ToolCallRequest } from "./gen/agentd/v1/service_pb.js";
import type { SessionService } from "./gen/agentd/v1/sessions_pb.js";
import { fitting, type ResultLimits } from "./resultsize.js";
import { failed, type Answer, type Tool } from "./tool.js";
import { follows, type Gate } from "./wait.js";

/** CallsOptions is what the calls of a run need. */
export interface CallsOptions {
  client: Client<typeof SessionService>;
  tools: ReadonlyMap<string, Tool>;
  answers: Answers;
  /** Bounds how many tools run at once. */
  gate: Gate;
  /** Bounds what a tool returns. */
  limits: ResultLimits;
  headers: Headers;
  reconnect: ReconnectPolicy;
  requestTimeoutMs: number;
  /** Aborted at the end of the run: tools stop, answers are no longer sent. */
  signal: AbortSignal;
  /** Told of what went wrong without ending the turn. */
  report: (error: AgentdError) => void;
}

/** Calls runs the tools that a turn asks for, next to each other, and sends their answers. */
export class Calls {
  readonly #o: CallsOptions;
  readonly #open = new Map<string, AbortController>(); // by call id: tools that run, and answers on their way

  constructor(options: CallsOptions) {
    this.#o = options;
  }

  /** start sees to a call, unless that is being done. */
  start(call: RunResponse_ToolCallRequest, turnId: string): void {
    if (this.#open.has(call.toolCallId) || this.#o.signal.aborted) {
      return;
    }
    const { controller, release } = follows(this.#o.signal);
    this.#open.set(call.toolCallId, controller);
    void this.#serve(call, turnId, controller.signal)
      .catch((thrown: unknown) => {
        if (!controller.signal.aborted) {
          this.#o.report(fromThrown(thrown));
        }
      })
      .finally(() => {
        release();
        this.#open.delete(call.toolCallId);
      });
  }

  /** stop aborts the tool of a call that nobody waits for any more. */
  stop(callId: string, reason: string): void {
    this.#open.get(callId)?.abort(new AgentdError("UNSPECIFIED", reason));
  }

  async #serve(call: RunResponse_ToolCallRequest, turnId: string, signal: AbortSignal): Promise<void> {
    const { answers } = this.#o;
    const answer = await answers.answer(call.sessionId, call.toolCallId, signal, () => this.#run(call, signal));
    const refused = await this.#submit(call, turnId, answer, signal);
    if (refused === undefined) {
      return;
    }
    this.#o.report(refused);
    if (answer.result.case === "output" && !isLost(refused)) {
      // The call would wait for ever for an answer that does not arrive, such as one that is too large.
      const instead = failed(`the tool ran, but its result was refused: ${refused.message}`);
      await this.#submit(call, turnId, instead, signal);
    }
  }

  async #run(call: RunResponse_ToolCallRequest, signal: AbortSignal): Promise<Answer> {
    const tool = this.#o.tools.get(call.toolName);
    if (tool === undefined) {
      return failed(`this client has no tool ${call.toolName}`);
    }
    await this.#o.gate.enter(signal);
    try {
      const { toolCallId, sessionId, agentPath, toolInput } = call;
      const answer = await tool.call({ callId: toolCallId, sessionId, agentPath, input: toolInput }, signal);
      return fitting(answer, this.#o.limits);
    } finally {
      this.#o.gate.leave();
    }
  }

  /** submit sends an answer until it is taken or refused; it returns why it was refused. */
  async #submit(call: RunResponse_ToolCallRequest, turnId: string, answer: Answer, signal: AbortSignal): Promise<AgentdError | undefined> {
    const { client, headers, reconnect, requestTimeoutMs } = this.#o;
    const { sessionId, toolCallId, toolName } = call;
    try {
      return await persist(reconnect, signal, async () => {
        const { refused } = await client.submitToolResults(
          { sessionId, turnId, results: [{ toolCallId, toolName, ...answer }] },
          { signal, headers, timeoutMs: requestTimeoutMs },
        );
        const error = refused[0]?.error;
        const why = error === undefined ? undefined : fromResponse(error, { sessionId, turnId });
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
