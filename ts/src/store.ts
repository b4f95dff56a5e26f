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
import type { SessionEvent } from "./sessions.js";
import { TurnView, type SessionMessage, type SessionToolCall } from "./turnview.js";
import type { Interaction, Resolution, Turn } from "./types.js";
import { follows, orAborted } from "./wait.js";

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
const ended: ReadonlySet<string> = new Set(["succeeded", "failed", "canceled"]);

/**
 * SessionStore follows a session for a user interface: `subscribe` and `getSnapshot` are what React's
 * useSyncExternalStore and its like take. While somebody has subscribed, it reads the session's last turns and follows
 * what runs, with the tools of its client; it begins when the first one does, also again, and ends with the last one,
 * without ending the turn. Turns that others start are followed as well, as soon as they run. It holds one stream at a
 * time: that of the turn that runs, else that of the session.
 */
export class SessionStore {
  readonly #agentd: Agentd;
  readonly #listeners = new Set<() => void>();
  #options: SessionStoreOptions;
  #sessionId: string | undefined;
  #views: TurnView[] = []; // oldest first
  #shown: TurnView[] | undefined; // in place of them, while they are read
  readonly #runs = new Map<TurnView, Run>(); // what is followed
  readonly #past = new Set<TurnView>(); // turns that were over when they were noticed: the session tells them
  readonly #settled = new Set<TurnView>(); // all of them is told
  readonly #others = new Set<string>(); // turns that are not shown, such as older ones
  #telling: TurnView | undefined; // the one of the past that the session is in the middle of
  #cursor = ""; // of the session, where no turn is in the middle of being told
  #listed = false;
  #loader: AbortSignal | undefined; // of the load that goes on
  #reading: AbortController | undefined; // of the session's stream
  readonly #idle: (() => void)[] = []; // called when nothing is followed
  readonly #readers: (() => void)[] = []; // called when what there is is read, or nobody looks any more
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
        this.#readers.splice(0).forEach((resolve) => resolve());
      }
    };
  };

  /** getSnapshot is how the session is now; the same object until something changes. */
  readonly getSnapshot = (): SessionSnapshot => {
    const views = this.#shown ?? this.#views;
    this.#snapshot ??= {
      sessionId: this.#sessionId,
      status: this.#loading ? "loading" : views.some((view) => !view.over) ? "running" : "ready",
      connection: this.#connection,
      messages: views.flatMap((view) => view.messages),
      toolCalls: views.flatMap((view) => view.toolCalls),
      interactions: views.flatMap((view) => view.interactions),
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
    // A new session has no other name than what its first turn returns: it is waited for, also if nobody looks any
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
    const followed = this.#follow(view, run, this.#following?.signal);
    this.#reading?.abort(); // it goes on when the turn is over
    await followed;
    if (this.#following !== undefined) {
      void this.#load(this.#following.signal); // of a session that is new, or could not be read
    }
  };

  /** resolve answers what a person is asked. It throws FAILED_PRECONDITION if somebody else was faster. */
  readonly resolve = async (interactionId: string, resolution: Resolution): Promise<void> => {
    await this.#agentd.interactions.resolve(this.#named(), interactionId, resolution);
  };

  /** cancel cancels the turn that runs, and returns when nothing of it runs any more. */
  readonly cancel = async (reason = ""): Promise<void> => {
    const running = this.#views.find((view) => !view.over && !this.#past.has(view) && view.turnId !== "");
    if (running !== undefined) {
      await this.#agentd.turns.cancel(this.#named(), running.turnId, reason);
      return;
    }
    await Promise.all([...this.#runs.values()].map((run) => run.cancel(reason))); // one whose name has not come yet
  };

  /** refresh reads the session again, such as after an error. It returns when what there is is read. */
  readonly refresh = async (): Promise<void> => {
    if (this.#following !== undefined) {
      this.#following.abort(new AgentdError("UNSPECIFIED", "the session is read again"));
      this.#following = new AbortController();
      this.#listed = false;
      void this.#load(this.#following.signal);
      while (this.#loading && this.#following !== undefined) {
        await new Promise<void>((resolve) => this.#readers.push(resolve));
      }
    }
  };

  #named(): string {
    if (this.#sessionId === undefined) {
      throw new AgentdError("INVALID_REQUEST", "there is no session yet: its first turn makes it");
    }
    return this.#sessionId;
  }

  /** load reads the last turns and follows the session, until nobody looks any more. */
  async #load(signal: AbortSignal): Promise<void> {
    const sessionId = this.#sessionId;
    if (sessionId === undefined || this.#loader === signal) {
      return;
    }
    this.#loader = signal;
    try {
      if (!this.#listed) {
        await this.#list(sessionId, signal);
      }
      while (!signal.aborted) {
        const live = await this.#read(sessionId, signal);
        if (live !== undefined && !signal.aborted) {
          const again = new TurnView(live.turnId, live.prompt, live.parts);
          this.#views = this.#views.map((one) => (one === live ? again : one));
          await this.#follow(again, () => this.#agentd.attach(sessionId, { turnId: live.turnId }), signal);
        }
      }
    } catch (thrown) {
      if (!signal.aborted) {
        this.#past.forEach((view) => view.end()); // nothing more is told of them
      }
      this.#fail(thrown, signal);
      if (this.#loader === signal) {
        this.#loader = undefined;
      }
    }
  }

  /** list has the last turns be what is shown, once the session has told them. */
  async #list(sessionId: string, signal: AbortSignal): Promise<void> {
    this.#shown ??= this.#views;
    this.#loading = true;
    this.#changed();
    const turns: Turn[] = [];
    for await (const turn of this.#agentd.turns.list({ sessionId })) {
      if (turn.injectedInto === "") {
        turns.push(turn); // others are told by the turn that took them up
      }
      if (turns.length === historyOf(this.#options)) {
        break;
      }
    }
    if (signal.aborted) {
      return;
    }
    const own = this.#views.filter((view) => this.#runs.has(view));
    const listed = turns.filter(({ id }) => !own.some(({ turnId }) => turnId === id)).reverse();
    this.#past.clear();
    this.#settled.clear();
    this.#others.clear();
    this.#views = [...listed.map((turn) => this.#viewOf(turn)), ...own];
    this.#cursor = "";
    this.#telling = undefined;
    this.#state = {};
    this.#error = undefined;
    this.#connection = "ok";
    this.#listed = true;
    this.#caughtUp(false);
  }

  #viewOf(turn: Turn): TurnView {
    const view = new TurnView(turn.id, turn.userPrompt, turn.userParts);
    if (ended.has(turn.status)) {
      this.#past.add(view);
    }
    return view;
  }

  /**
   * read takes up what the session tells, when this store follows no turn. It returns a turn that runs, or undefined
   * when the store begins to follow one of its own, or nobody looks any more.
   */
  async #read(sessionId: string, signal: AbortSignal): Promise<TurnView | undefined> {
    while (this.#runs.size > 0) {
      await orAborted(new Promise<void>((resolve) => this.#idle.push(resolve)), signal);
    }
    if (this.#telling !== undefined) {
      const { turnId, prompt, parts } = this.#telling; // what it has is told again
      const again = new TurnView(turnId, prompt, parts);
      this.#past.add(again);
      this.#views = this.#views.map((one) => (one === this.#telling ? again : one));
      this.#telling = undefined;
    }
    const { controller, release } = follows(signal);
    this.#reading = controller;
    try {
      const options = { cursor: this.#cursor, signal: controller.signal };
      for await (const event of this.#agentd.sessions.watch(sessionId, options)) {
        const live = await this.#hear(sessionId, event);
        if (controller.signal.aborted || live !== undefined) {
          return controller.signal.aborted ? undefined : live;
        }
      }
    } catch (thrown) {
      if (!controller.signal.aborted) {
        throw thrown;
      }
    } finally {
      release();
    }
    return undefined;
  }

  /** hear takes up an event of the session. It returns its turn, if that runs. */
  async #hear(sessionId: string, event: SessionEvent): Promise<TurnView | undefined> {
    const { turnId, type } = event;
    if (turnId === "") {
      this.#connectionIs(event);
      return undefined;
    }
    const view = this.#views.find((one) => one.turnId === turnId) ?? (await this.#notice(sessionId, turnId));
    if (view !== undefined && !this.#settled.has(view) && !this.#past.has(view) && !view.over) {
      if (type !== "turn_queued" && type !== "end") {
        this.#caughtUp(true);
        return view;
      }
    } else if (view === undefined || !this.#settled.has(view)) {
      this.#tell(view, event);
    }
    if (type === "end" && (this.#telling === undefined || this.#telling === view)) {
      this.#cursor = event.cursor;
      this.#telling = undefined;
    }
    if (type === "end" && view !== undefined && !view.over) {
      view.end(); // a prompt that never became a turn
      this.#changed();
    }
    this.#caughtUp(!event.replayed);
    return undefined;
  }

  /** tell takes up an event of a turn of the past, or of one that is not shown. */
  #tell(view: TurnView | undefined, event: SessionEvent): void {
    if (event.type === "state_update") {
      this.#merge(event.stateDelta);
    }
    if (view !== undefined && event.type !== "turn_queued") {
      this.#telling ??= view;
      view.add(event);
    }
    if (view !== undefined && event.type === "end") {
      this.#settled.add(view);
    }
    this.#changed();
  }

  /** notice has a turn be shown that is new to this store; undefined for one that is not to be. */
  async #notice(sessionId: string, turnId: string): Promise<TurnView | undefined> {
    if (this.#others.has(turnId)) {
      return undefined;
    }
    let turn: Turn | undefined;
    if (!this.#loading) {
      turn = await this.#agentd.turns.get(sessionId, turnId, { userParts: true }).catch((thrown: unknown) => {
        if (fromThrown(thrown).code !== "NOT_FOUND") {
          throw thrown;
        }
        return undefined; // of the session that this one is a fork of
      });
    }
    if (turn === undefined || turn.injectedInto !== "") {
      this.#others.add(turnId); // older than what is shown, or told by another turn
      return undefined;
    }
    const view = this.#viewOf(turn);
    this.#views = [...this.#views, view];
    this.#changed();
    return view;
  }

  /** caughtUp ends the loading when the session has told all that was there, or certainly has. */
  #caughtUp(certainly: boolean): void {
    const awaited = this.#views.some((view) => !this.#settled.has(view) && !this.#runs.has(view));
    if (this.#loading && (certainly || !awaited)) {
      this.#loading = false;
      this.#shown = undefined;
      this.#changed();
      this.#readers.splice(0).forEach((resolve) => resolve());
    }
  }

  #connectionIs({ type }: Event): void {
    if (type === "connection_lost" || type === "connection_restored") {
      this.#connection = type === "connection_lost" ? "lost" : "ok";
      this.#changed();
    }
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
      if (view.over) {
        this.#settled.add(view);
      }
      if (this.#runs.size === 0) {
        this.#idle.splice(0).forEach((resolve) => resolve());
      }
    }
  }

  /** begun takes up what a run is called, once it is known. */
  #begun(view: TurnView, run: Run): void {
    view.turnId ||= run.turnId ?? "";
    if (this.#sessionId === undefined && run.sessionId !== undefined) {
      this.#sessionId = run.sessionId;
      this.#listed = true; // there is nothing else in it
      this.#options.onSessionId?.(run.sessionId);
    }
    this.#changed();
  }

  #take(view: TurnView, event: Event): void {
    this.#connectionIs(event);
    if (event.type === "error") {
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
      this.#connection = "ok";
      this.#caughtUp(true);
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
