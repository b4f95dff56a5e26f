// The client.
import { Agents } from "./agents.js";
import { amountOf, waitOf } from "./amounts.js";
import { persist, policyOf, type ReconnectPolicy } from "./backoff.js";
import { Credential } from "./credential.js";
import { AgentdError, fromThrown } from "./errors.js";
import { capabilitiesOf, modelsOf } from "./fromjson.js";
import type { AgentJson } from "./gen/agentd/v1/types_pb.js";
import { Interactions } from "./interactions.js";
import {
  headersOf,
  keyHeaders,
  requestOf,
  seqOf,
  visibilityOf,
  type AgentdOptions,
  type AttachOptions,
  type RunOptions,
} from "./options.js";
import type { Prompter } from "./prompts.js";
import { addressOf, reaching } from "./reach.js";
import { ResultCache } from "./resultcache.js";
import { limitsOf, type ResultLimits } from "./resultsize.js";
import { Run, type Place, type RunConfig } from "./run.js";
import type { Schema } from "./schema.js";
import { Sessions } from "./sessions.js";
import { SharedState } from "./sharedstate.js";
import type { Tool } from "./tool.js";
import { ToolSet, type ToolDefinition } from "./toolset.js";
import { resolved, withAttachments, type Attachments } from "./treewalk.js";
import { Turns } from "./turns.js";
import type { Capabilities, ModelList } from "./types.js";
import { unary, type Unary } from "./unary.js";
import { Gate } from "./wait.js";
import { Wire } from "./wire.js";

const defaultSilenceMs = 45_000;
const defaultRequestTimeoutMs = 30_000;
const defaultTools = 16;

/** Part is which part a run takes in its turn. */
type Part = Pick<RunConfig, "tools" | "prompter" | "observe" | "nameless" | "cancels">;

/** @internal Inner is what is inside of a client. */
export interface Inner {
  unary: Unary;
  wire: Wire;
  headers: Headers;
  tools: () => ReadonlyMap<string, Tool>;
  attachments: Attachments;
}

/**
 * Agentd speaks to one server. Agents run there, tools run here, next to the caller's own data.
 *
 * A client remembers, within bounds, the results of tool calls: one that the server asks again under the same id, also
 * in a later run, gets its result from memory, so that its tool runs once per page. A call that was interrupted by the
 * end of its run has no result; it runs again when it is asked again.
 */
export class Agentd {
  /** Sessions: conversations of many turns. */
  readonly sessions: Sessions;
  /** Turns: what one prompt sets off. */
  readonly turns: Turns;
  /** Interactions: what turns ask people. */
  readonly interactions: Interactions;
  /** State that sessions share, for operators. */
  readonly sharedState: SharedState;
  /** Agent trees that the server keeps. */
  readonly agents: Agents;

  readonly #wire: Wire;
  readonly #prompter: Prompter | undefined;
  readonly #silenceMs: number;
  readonly #requestTimeoutMs: number;
  readonly #headers: Headers;
  readonly #reconnect: ReconnectPolicy;
  readonly #unary: Unary;
  readonly #tools = new ToolSet();
  readonly #attachments: Attachments;
  readonly #results = new ResultCache();
  readonly #gate: Gate;
  readonly #limits: ResultLimits;

  /**
   * Makes a client of the server at a URL, such as `http://127.0.0.1:8080`. Nothing is sent before it is used. In a
   * page it may be relative. It throws INVALID_REQUEST for anything else, and for options that cannot be.
   */
  constructor(baseUrl: string, options: AgentdOptions = {}) {
    this.#prompter = options.prompter;
    this.#headers = headersOf(keyHeaders(options.keys), options.headers);
    this.#reconnect = policyOf(options.reconnect);
    this.#silenceMs = waitOf("silenceMs", options.silenceMs, defaultSilenceMs);
    this.#requestTimeoutMs = waitOf("requestTimeoutMs", options.requestTimeoutMs, defaultRequestTimeoutMs);
    this.#gate = new Gate(
      amountOf("maxConcurrentTools", options.maxConcurrentTools ?? defaultTools, { least: 1, whole: true }),
    );
    this.#limits = limitsOf(options);
    this.#attachments = { ...options.attachments };
    const credential = new Credential(options.token, this.#requestTimeoutMs);
    credential.mustBeAlone(this.#headers);
    this.#wire = new Wire(addressOf(baseUrl), reaching(baseUrl, options.fetch), credential);
    this.#unary = unary(this.#wire, this.#headers, this.#requestTimeoutMs);
    const [wire, headers, reconnect, silenceMs] = [this.#wire, this.#headers, this.#reconnect, this.#silenceMs];
    this.sessions = new Sessions(this.#unary, { wire, headers, reconnect, silenceMs });
    this.turns = new Turns(this.#unary);
    this.interactions = new Interactions(this.#unary);
    this.sharedState = new SharedState(this.#unary);
    this.agents = new Agents(this.#unary, () => this.#tools.tools, this.#attachments);
  }

  /**
   * addTool offers a tool to agents that list its name. Runs that begin later see it. It throws INVALID_REQUEST for a
   * name that does not match [A-Za-z_][A-Za-z0-9_.:-]{0,63} or is taken, and for a description or a schema that the
   * protocol does not take.
   */
  addTool<S extends Schema>(name: string, definition: ToolDefinition<S>): this {
    this.#tools.addTool(name, definition);
    return this;
  }

  /** run starts a turn, once its events or its result are asked for, and follows it. */
  run(options: RunOptions): Run {
    const own = this.#tools.tools;
    const tree = options.agent === undefined ? undefined : resolved(options.agent as AgentJson, own, this.#attachments);
    const tools = tree === undefined ? withAttachments(own, this.#attachments) : new Map([...own, ...tree.used]);
    const declared = [...(tree?.used.values() ?? [])].map(({ declaration }) => declaration);
    const execute = requestOf(options, tree?.agent, declared);
    const headers = headersOf(this.#headers, options.headers);
    const timeoutMs = this.#requestTimeoutMs;
    const begin = async (signal: AbortSignal): Promise<Place> => {
      // The key has a repeat find the turn that the first request has started.
      const policy = { ...this.#reconnect, maxElapsedMs: this.#reconnect.startElapsedMs };
      const { turn } = await persist(policy, signal, () =>
        this.#wire.call("CreateTurn", { execute }, { signal, headers, timeoutMs }),
      ).catch((thrown: unknown) => {
        throw signal.aborted ? thrown : named(fromThrown(thrown), options.sessionId);
      });
      if (turn === undefined) {
        throw new AgentdError("INTERNAL", "the server did not name the turn");
      }
      return { sessionId: turn.sessionId ?? "", turnId: turn.id ?? "", afterSeq: undefined };
    };
    const prompter = options.prompter === undefined ? this.#prompter : options.prompter;
    const cancels = cancelsOf(options, "cancel");
    const nameless = (options.idempotencyKey ?? "") === "";
    return this.#run(begin, options, { tools, prompter: prompter ?? undefined, observe: false, nameless, cancels });
  }

  /**
   * attach follows a turn that there is, such as after a reload of the page: from its beginning, or behind the last
   * event that the caller has. Calls without a result are asked again. A person is asked only where options hold a
   * prompter.
   */
  attach(sessionId: string, options: AttachOptions = {}): Run {
    const { turnId = "", afterSeq, visibility, observe = false } = options;
    const prompter = options.prompter ?? undefined;
    const cancels = cancelsOf(options, "detach");
    if (visibility !== undefined && !observe) {
      throw new AgentdError(
        "INVALID_REQUEST",
        "visibility needs observe: who is asked for tools has to see all events",
      );
    }
    if ((prompter !== undefined || cancels) && observe) {
      throw new AgentdError(
        "INVALID_REQUEST",
        'observe only watches: it does not go with a prompter, nor with onLeave "cancel"',
      );
    }
    const place = { sessionId, turnId, afterSeq: afterSeq === undefined ? undefined : seqOf(afterSeq) };
    const tools = observe ? new Map() : withAttachments(this.#tools.tools, this.#attachments);
    return this.#run(() => Promise.resolve(place), options, { tools, prompter, observe, nameless: false, cancels });
  }

  /** @internal inner is what those need that a page takes by themselves: Goals, Schedules, EventLog. */
  inner(): Inner {
    const [unary, wire, headers, attachments] = [this.#unary, this.#wire, this.#headers, this.#attachments];
    return { unary, wire, headers, attachments, tools: () => this.#tools.tools };
  }

  /** capabilities says what the server is and allows. */
  async capabilities(): Promise<Capabilities> {
    return capabilitiesOf(await this.#unary("GetCapabilities", {}));
  }

  /** models lists the models that the server knows by name; providers serve others too. */
  async models(): Promise<ModelList> {
    return modelsOf(await this.#unary("ListModels", {}));
  }

  #run(begin: (signal: AbortSignal) => Promise<Place>, options: AttachOptions, part: Part): Run {
    return new Run({
      wire: this.#wire,
      begin,
      ...part,
      results: this.#results,
      gate: this.#gate,
      limits: this.#limits,
      headers: headersOf(this.#headers, options.headers),
      reconnect: this.#reconnect,
      silenceMs: this.#silenceMs,
      requestTimeoutMs: this.#requestTimeoutMs,
      display: options.display ?? false,
      visibility: visibilityOf(options.visibility),
      signal: options.signal,
    });
  }
}

/** named is an error that says of which session it is, as far as that is known. */
function named(error: AgentdError, sessionId: string | undefined): AgentdError {
  return error.sessionId === undefined && sessionId ? error.with({ sessionId }) : error;
}

/** cancelsOf tells whether a turn that is left is cancelled. */
function cancelsOf({ onLeave }: AttachOptions, byDefault: "cancel" | "detach"): boolean {
  const what = onLeave ?? byDefault;
  if (what !== "cancel" && what !== "detach") {
    throw new AgentdError("INVALID_REQUEST", `onLeave is ${JSON.stringify(what)}, must be "cancel" or "detach"`);
  }
  return what === "cancel";
}
