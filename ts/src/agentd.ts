// The client.
import { createClient, type Client } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { amountOf, waitOf } from "./amounts.js";
import { Answers } from "./answers.js";
import { persist, policyOf, type ReconnectPolicy } from "./backoff.js";
import { AgentdError } from "./errors.js";
import { SessionService, type GetCapabilitiesResponse, type ListModelsResponse } from "./gen/agentd/v1/sessions_pb.js";
import { Interactions } from "./interactions.js";
import { headersOf, keyHeaders, requestOf, seqOf, visibilityOf, type AgentdOptions, type AttachOptions, type RunOptions } from "./options.js";
import type { Prompter } from "./prompts.js";
import { addressOf, reaching } from "./reach.js";
import { limitsOf, type ResultLimits } from "./resultsize.js";
import { Run, type Place, type RunConfig } from "./run.js";
import type { Schema } from "./schema.js";
import { Sessions } from "./sessions.js";
import { Tool, type ToolDefinition } from "./tool.js";
import { toolsOf } from "./tree.js";
import { Turns } from "./turns.js";
import { unary, type Unary } from "./unary.js";
import { Gate } from "./wait.js";

const defaultSilenceMs = 45_000;
const defaultRequestTimeoutMs = 30_000;
const defaultTools = 16;

/** Part is which part a run takes in its turn. */
type Part = Pick<RunConfig, "tools" | "prompter" | "observe" | "nameless">;

/** The protocol's bound of tools of one client. */
const maxTools = 512;

/**
 * Agentd speaks to one server. Agents run there, tools run here, next to the caller's own data.
 *
 * A client remembers, within bounds, how it answered tool calls: one that the server asks again under the same id, also in a
 * later run, is answered from memory, so that its tool runs once per page. A call that was interrupted by the end of its run has
 * no answer; it runs again when it is asked again.
 */
export class Agentd {
  /** Sessions: conversations of many turns. */
  readonly sessions: Sessions;
  /** Turns: what one prompt sets off. */
  readonly turns: Turns;
  /** Interactions: what turns ask people. */
  readonly interactions: Interactions;

  readonly #client: Client<typeof SessionService>;
  readonly #prompter: Prompter | undefined;
  readonly #silenceMs: number;
  readonly #requestTimeoutMs: number;
  readonly #headers: Headers;
  readonly #reconnect: ReconnectPolicy;
  readonly #unary: Unary;
  readonly #tools = new Map<string, Tool>();
  readonly #answers = new Answers();
  readonly #gate: Gate;
  readonly #limits: ResultLimits;

  /**
   * Makes a client of the server at a URL, such as `http://127.0.0.1:8080`. Nothing is sent before it is used. In a page
   * it may be relative. It throws INVALID_REQUEST for anything else, and for options that cannot be.
   */
  constructor(baseUrl: string, options: AgentdOptions = {}) {
    this.#prompter = options.prompter;
    this.#headers = headersOf(keyHeaders(options.keys), options.headers);
    this.#reconnect = policyOf(options.reconnect);
    this.#silenceMs = waitOf("silenceMs", options.silenceMs, defaultSilenceMs);
    this.#requestTimeoutMs = waitOf("requestTimeoutMs", options.requestTimeoutMs, defaultRequestTimeoutMs);
    this.#gate = new Gate(amountOf("maxConcurrentTools", options.maxConcurrentTools ?? defaultTools, { least: 1, whole: true }));
    this.#limits = limitsOf(options);
    const transport =
      options.transport ??
      createConnectTransport({ baseUrl: addressOf(baseUrl), fetch: reaching(baseUrl, options.fetch) });
    this.#client = createClient(SessionService, transport);
    this.#unary = unary(this.#headers, this.#requestTimeoutMs);
    this.sessions = new Sessions(this.#client, this.#unary);
    this.turns = new Turns(this.#client, this.#unary);
    this.interactions = new Interactions(this.#client, this.#unary);
  }

  /**
   * addTool offers a tool to agents that list its name. Runs that begin later see it. It throws INVALID_REQUEST for a name that
   * does not match [A-Za-z_][A-Za-z0-9_.:-]{0,63} or is taken, and for a description or a schema that the protocol does not take.
   */
  addTool<S extends Schema>(name: string, definition: ToolDefinition<S>): this {
    if (this.#tools.has(name)) {
      throw new AgentdError("INVALID_REQUEST", `tool ${name} is added twice`);
    }
    if (this.#tools.size === maxTools) {
      throw new AgentdError("INVALID_REQUEST", `tool ${name} is one too many: a client has at most ${maxTools}`);
    }
    this.#tools.set(name, new Tool(name, definition as unknown as ToolDefinition));
    return this;
  }

  /** run starts a turn, once its events or its result are asked for, and follows it. */
  run(options: RunOptions): Run {
    const tools = new Map(this.#tools);
    const used = options.agent === undefined ? [] : [...toolsOf(options.agent, new Set(tools.keys()))];
    const execute = requestOf(options, used.map((name) => tools.get(name)!.declaration));
    const headers = headersOf(this.#headers, options.headers);
    const timeoutMs = this.#requestTimeoutMs;
    const begin = async (signal: AbortSignal): Promise<Place> => {
      // The key has a repeat find the turn that the first request has started.
      const policy = { ...this.#reconnect, maxElapsedMs: this.#reconnect.startElapsedMs };
      const { turn } = await persist(policy, signal, () => this.#client.createTurn({ execute }, { signal, headers, timeoutMs }));
      if (turn === undefined) {
        throw new AgentdError("INTERNAL", "the server did not name the turn");
      }
      return { sessionId: turn.sessionId, turnId: turn.id, afterSeq: undefined };
    };
    const prompter = options.prompter === undefined ? this.#prompter : options.prompter;
    return this.#run(begin, options, { tools, prompter: prompter ?? undefined, observe: false, nameless: options.idempotencyKey === undefined });
  }

  /**
   * attach follows a turn that there is, such as after a reload of the page: from its beginning, or behind the last event that
   * the caller has. Calls without a result are asked again. A person is asked only where options hold a prompter.
   */
  attach(sessionId: string, options: AttachOptions = {}): Run {
    const { turnId = "", afterSeq, visibility } = options;
    const prompter = options.prompter ?? undefined;
    const observe = options.observe === true || options.watchOnly === true;
    if (visibility !== undefined && !observe) {
      throw new AgentdError("INVALID_REQUEST", "visibility needs observe: who is asked for tools has to see all events");
    }
    if (prompter !== undefined && observe) {
      throw new AgentdError("INVALID_REQUEST", "observe only watches: it does not go with a prompter");
    }
    const place = { sessionId, turnId, afterSeq: afterSeq === undefined ? undefined : seqOf(afterSeq) };
    const tools = new Map(observe ? [] : this.#tools);
    return this.#run(() => Promise.resolve(place), options, { tools, prompter, observe, nameless: false });
  }

  /** capabilities says what the server is and allows. */
  capabilities(): Promise<GetCapabilitiesResponse> {
    return this.#unary((o) => this.#client.getCapabilities({}, o));
  }

  /** models lists the models that the server knows by name; providers serve others too. */
  models(): Promise<ListModelsResponse> {
    return this.#unary((o) => this.#client.listModels({}, o));
  }

  #run(begin: (signal: AbortSignal) => Promise<Place>, options: AttachOptions, part: Part): Run {
    return new Run({
      client: this.#client,
      begin,
      ...part,
      answers: this.#answers,
      gate: this.#gate,
      limits: this.#limits,
      headers: headersOf(this.#headers, options.headers),
      reconnect: this.#reconnect,
      silenceMs: this.#silenceMs,
      requestTimeoutMs: this.#requestTimeoutMs,
      display: options.display ?? false,
      visibility: visibilityOf(options.visibility),
      signal: options.signal,
      cancelOnAbort: options.cancelOnAbort ?? false,
    });
  }
}
