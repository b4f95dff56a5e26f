// A session as a page shows it: a store that tells its listeners when there is something new.
import type { Agentd } from "./agentd.js";
import { countOf } from "./amounts.js";
import { AgentdError, fromThrown } from "./errors.js";
import type { Event } from "./events.js";
import type { JsonObject } from "./json.js";
import type { RunOptions } from "./options.js";
import type { Part } from "./parts.js";
import type { Run } from "./run.js";
import type { Agent } from "./tree.js";
import { TurnView, type SessionMessage, type SessionToolCall } from "./turnview.js";
import type { Interaction, Resolution, Turn } from "./types.js";

/**
 * SessionSnapshot is how a session is at a moment. It does not change; what has not changed since the one before is the
 * same object.
 */
export interface SessionSnapshot {
  /** Undefined until the first turn has begun. */
  readonly sessionId: string | undefined;
  /** What is read of the past, what runs, or neither. */
  readonly status: "loading" | "ready" | "running";
  /** Whether the connection to a turn that runs is lost; it is tried again. */
  readonly connection: "ok" | "lost";
  /** What users and agents have said, oldest first. */
  readonly messages: readonly SessionMessage[];
  /** The calls of tools, oldest first. */
  readonly toolCalls: readonly SessionToolCall[];
  /** What people are asked and have not answered: approvals of calls, and questions of agents. */
  readonly interactions: readonly Interaction[];
  /** The session's state, as the turns have told it. */
  readonly state: Readonly<JsonObject>;
  /** Why the last turn has failed, or could not be started or read. */
  readonly error: AgentdError | undefined;
}

/** SessionStoreOptions says what a store is of. */
export interface SessionStoreOptions {
  /** The session; left out: a new one, made by the first turn. */
  sessionId?: string | undefined;
  /** The tree for the turns that begin here; may be left out for a session that has run before. */
  agent?: Agent | undefined;
  /** What else holds for each of these turns. */
  run?: Omit<RunOptions, "agent" | "sessionId" | "prompt" | "parts" | "signal" | "onLeave" | "prompter"> | undefined;
  /** How many of the last turns are read at the beginning; left out, or 0: 50. */
  history?: number | undefined;
  /** Told the id of a new session. */
  onSessionId?: ((sessionId: string) => void) | undefined;
}

const defaultHistory = 50;
/** How many turns of the past are read at once. */
const readers = 4;
const ended: ReadonlySet<string> = new Set(["succeeded", "failed", "canceled"]);

/**
 * SessionStore follows a session for a user interface: `subscribe` and `getSnapshot` are what React's
 * useSyncExternalStore and its like take. While somebody has subscribed, it reads the session's last turns and follows
 * what runs, with the tools of its client; it begins when the first one does, also again, and ends with the last one,
 * without ending the turn. Turns that others start meanwhile are seen when one of this store ends, and by `refresh`.
 */
export class SessionStore {
  readonly #agentd: Agentd;
  readonly #listeners = new Set<() => void>();
  #options: SessionStoreOptions;
  #sessionId: string | undefined;
  #views: TurnView[] = []; // oldest first
  #runs = new Map<TurnView, Run>(); // what is followed
  #state: JsonObject = {};
  #connection: "ok" | "lost" = "ok";
  #error: AgentdError | undefined;
  #loading = false;
  #following: AbortController | undefined; // while there are listeners
  #snapshot: SessionSnapshot | undefined;
  #notified = true;

  constructor(agentd: Agentd, options: SessionStoreOptions = {}) {
    historyOf(options);
    this.#agentd = agentd;
    this.#options = options;
    this.#sessionId = options.sessionId;
    this.#loading = options.sessionId !== undefined;
  }

  /** sessionId names the session, once it is known. */
  get sessionId(): string | undefined {
    return this.#sessionId;
  }

  /** configure changes what holds for turns that begin from now on; the session stays. */
  configure(options: SessionStoreOptions): void {
    this.#options = options;
  }

  /** subscribe has a function called when there is a new snapshot. It returns what ends that. */
  readonly subscribe = (listener: () => void): (() => void) => {
    const own = () => listener(); // the same function may subscribe twice
    this.#listeners.add(own);
    if (this.#listeners.size === 1) {
      this.#following = new AbortController();
      void this.#load(this.#following.signal);
    }
    return () => {
      if (this.#listeners.delete(own) && this.#listeners.size === 0) {
        this.#following?.abort(new AgentdError("UNSPECIFIED", "nobody looks at the session any more"));
        this.#following = undefined;
      }
    };
  };

  /** getSnapshot is how the session is now; the same object until something changes. */
  readonly getSnapshot = (): SessionSnapshot => {
    this.#snapshot ??= {
      sessionId: this.#sessionId,
      status: this.#loading ? "loading" : this.#views.some((view) => !view.over) ? "running" : "ready",
      connection: this.#connection,
      messages: this.#views.flatMap((view) => view.messages),
      toolCalls: this.#views.flatMap((view) => view.toolCalls),
      interactions: this.#views.flatMap((view) => view.interactions),
      state: this.#state,
      error: this.#error,
    };
    return this.#snapshot;
  };

  /**
   * send starts a turn and follows it. It returns when the turn is over, and throws nothing: see error of the snapshot.
   */
  readonly send = async (prompt: string, parts: readonly Part[] = []): Promise<void> => {
    const view = new TurnView("", prompt, parts);
    this.#views = [...this.#views, view];
    this.#error = undefined;
    this.#changed();
    // A new session has no other name than what its first turn answers with: it is waited for, also if nobody looks any
    // more.
    const run = () => {
      const { agent, run: more } = this.#options;
      const idempotencyKey = more?.idempotencyKey ?? crypto.getRandomValues(new Uint32Array(4)).join("-");
      const sessionId = this.#sessionId;
      return this.#agentd.run({
        ...more,
        agent,
        sessionId,
        prompt,
        parts,
        idempotencyKey,
        onLeave: "detach",
        prompter: null,
      });
    };
    await this.#follow(view, run, this.#following?.signal);
    const { signal } = this.#following ?? {};
    if (signal !== undefined) {
      await this.#followRest(signal).catch((thrown: unknown) => this.#fail(thrown, signal));
    }
  };

  /** resolve answers what a person is asked. It throws FAILED_PRECONDITION if somebody else was faster. */
  readonly resolve = async (interactionId: string, resolution: Resolution): Promise<void> => {
    await this.#agentd.interactions.resolve(this.#named(), interactionId, resolution);
  };

  /** cancel cancels the turn that runs, and returns when nothing of it runs any more. */
  readonly cancel = async (reason = ""): Promise<void> => {
    const running = this.#views.find((view) => !view.over && view.turnId !== "");
    if (running !== undefined) {
      await this.#agentd.turns.cancel(this.#named(), running.turnId, reason);
      return;
    }
    await Promise.all([...this.#runs.values()].map((run) => run.cancel(reason))); // one whose name has not come yet
  };

  /** refresh reads the session again, and follows what others have started meanwhile. */
  readonly refresh = async (): Promise<void> => {
    if (this.#following !== undefined) {
      this.#following.abort(new AgentdError("UNSPECIFIED", "the session is read again"));
      this.#following = new AbortController();
      await this.#load(this.#following.signal);
    }
  };

  #named(): string {
    if (this.#sessionId === undefined) {
      throw new AgentdError("INVALID_REQUEST", "there is no session yet: its first turn makes it");
    }
    return this.#sessionId;
  }

  /** load reads the last turns, then follows what runs. */
  async #load(signal: AbortSignal): Promise<void> {
    const sessionId = this.#sessionId;
    if (sessionId === undefined) {
      return;
    }
    this.#loading = true;
    this.#changed();
    try {
      const turns: Turn[] = [];
      for await (const turn of this.#agentd.turns.list({ sessionId })) {
        if (turn.injectedInto === "") {
          turns.push(turn); // others are told by the turn that took them up
        }
        if (turns.length === historyOf(this.#options)) {
          break;
        }
      }
      const views = await this.#read(turns.reverse());
      if (signal.aborted) {
        return;
      }
      this.#views = views;
      this.#error = undefined;
      this.#connection = "ok";
      this.#state = {};
      views.forEach((view) => this.#merge(view.state));
      this.#loading = false;
      this.#changed();
      await this.#followRest(signal);
    } catch (thrown) {
      this.#fail(thrown, signal);
    }
  }

  /** read makes views of turns, with what those hold that are over. */
  async #read(turns: readonly Turn[]): Promise<TurnView[]> {
    const views = turns.map((turn) => new TurnView(turn.id, turn.userPrompt, turn.userParts));
    const open = [...turns.entries()].filter(([, turn]) => ended.has(turn.status));
    const read = async () => {
      for (let next = open.shift(); next !== undefined; next = open.shift()) {
        const [i, turn] = next;
        for await (const event of this.#agentd.turns.events(turn.sessionId, { turnId: turn.id })) {
          views[i]!.add(event);
        }
        views[i]!.end();
      }
    };
    await Promise.all(Array.from({ length: readers }, read));
    return views;
  }

  /** followRest follows the turns that are not over, one after the other, and those that have come meanwhile. */
  async #followRest(signal: AbortSignal): Promise<void> {
    for (;;) {
      const view = this.#views.find((one) => !one.over && one.turnId !== "" && !this.#runs.has(one));
      if (view !== undefined) {
        const again = new TurnView(view.turnId, view.prompt, view.parts);
        this.#views = this.#views.map((one) => (one === view ? again : one));
        await this.#follow(again, () => this.#agentd.attach(this.#named(), { turnId: view.turnId }), signal);
      } else if (!(await this.#noticeOthers(signal))) {
        return;
      }
      if (signal.aborted) {
        return;
      }
    }
  }

  /** noticeOthers adds turns that others have started, and tells whether there are some. */
  async #noticeOthers(signal: AbortSignal): Promise<boolean> {
    const known = new Set(this.#views.map((view) => view.turnId));
    if (this.#runs.size > 0) {
      return false; // they are looked for when these are over
    }
    const others: Turn[] = [];
    for await (const turn of this.#agentd.turns.list({ sessionId: this.#named(), pageSize: 20 })) {
      if (known.has(turn.id) || signal.aborted || this.#runs.size > 0 || others.length === defaultHistory) {
        break;
      }
      if (turn.injectedInto === "") {
        others.unshift(turn);
      }
    }
    const views = signal.aborted || this.#runs.size > 0 ? [] : await this.#read(others);
    if (views.length === 0 || signal.aborted || this.#runs.size > 0) {
      return false;
    }
    this.#views = [...this.#views, ...views];
    this.#changed();
    return true;
  }

  /** follow takes up the events of a run until it is over or nobody looks any more. */
  async #follow(view: TurnView, start: () => Run, signal: AbortSignal | undefined): Promise<void> {
    let leave = () => {};
    try {
      const run = start();
      this.#runs.set(view, run);
      const events = run[Symbol.asyncIterator]();
      leave = () => void events.return?.();
      for (let first = true; ;) {
        const next = await events.next();
        if (first) {
          first = false;
          this.#begun(view, run);
          signal?.addEventListener("abort", leave, { once: true });
        }
        if (next.done === true || signal?.aborted === true) {
          return;
        }
        this.#take(view, next.value);
      }
    } catch (thrown) {
      view.end();
      this.#fail(thrown, signal);
    } finally {
      leave();
      signal?.removeEventListener("abort", leave);
      this.#runs.delete(view);
    }
  }

  /** begun takes up what a run is called, once it is known. */
  #begun(view: TurnView, run: Run): void {
    view.turnId ||= run.turnId ?? "";
    if (this.#sessionId === undefined && run.sessionId !== undefined) {
      this.#sessionId = run.sessionId;
      this.#options.onSessionId?.(run.sessionId);
    }
    this.#changed();
  }

  #take(view: TurnView, event: Event): void {
    if (event.type === "connection_lost" || event.type === "connection_restored") {
      this.#connection = event.type === "connection_lost" ? "lost" : "ok";
    } else if (event.type === "error") {
      this.#error = event.error;
    } else if (event.type === "state_update") {
      this.#merge(event.stateDelta);
    }
    view.add(event);
    this.#changed();
  }

  #merge(delta: Readonly<JsonObject>): void {
    const entries = Object.entries({ ...this.#state, ...delta }).filter(([, value]) => value !== null);
    this.#state = Object.fromEntries(entries);
  }

  /** fail tells why something did not work, if somebody still looks. */
  #fail(thrown: unknown, signal: AbortSignal | undefined): void {
    if (signal?.aborted !== true) {
      this.#error = fromThrown(thrown);
      this.#loading = false;
      this.#connection = "ok";
      this.#changed();
    }
  }

  /** changed has the listeners told, once for all that has changed until they are. */
  #changed(): void {
    this.#snapshot = undefined;
    if (!this.#notified) {
      return;
    }
    this.#notified = false;
    queueMicrotask(() => {
      this.#notified = true;
      this.#listeners.forEach((listener) => listener());
    });
  }
}

/** historyOf is how many turns to read. It throws INVALID_REQUEST for what is no such number. */
function historyOf({ history }: SessionStoreOptions): number {
  return countOf("history", history) || defaultHistory;
}
