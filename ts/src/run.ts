// One turn, from its start or from any event to its end.
import type { JsonValue } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import type { Answers } from "./answers.js";
import { persist, type ReconnectPolicy } from "./backoff.js";
import { Calls } from "./calls.js";
import { AgentdError, fromThrown } from "./errors.js";
import { eventOf, ownEvent, structuredOf, type Event } from "./events.js";
import { follow, type Followed } from "./follow.js";
import type { Display_Visibility } from "./gen/agentd/v1/service_pb.js";
import { TurnStatus, type SessionService, type Turn } from "./gen/agentd/v1/sessions_pb.js";
import type { ProviderTools } from "./modelevents.js";
import { Prompts, type Prompter } from "./prompts.js";
import type { Tool } from "./tool.js";
import type { ResultLimits } from "./resultsize.js";
import { Transcript, type Message } from "./transcript.js";
import { usageOf, type Usage } from "./usage.js";
import { follows, Mailbox, orAborted, type Gate } from "./wait.js";

/** Result is a whole turn. */
export interface Result {
  /** What all agents said, see {@link Transcript.text}. */
  readonly text: string;
  /** The same, message by message. */
  readonly messages: readonly Message[];
  /** What the models' providers have run, and what messages cite, in order. */
  readonly providerToolsUsed: readonly ProviderTools[];
  /** Whether the agent tree finished naturally; false when somebody has stopped the turn. */
  readonly completed: boolean;
  /** The last answer as a value, when the agent that gave it has an output schema: JSON.parse of structuredText. */
  readonly structuredOutput: JsonValue | undefined;
  /** The same as the model wrote it, for readers to whom the numbers of JavaScript are not enough. */
  readonly structuredText: string | undefined;
  /** What the turn used. */
  readonly usage: Usage | undefined;
  /** The turn as the server has it. */
  readonly turn: Turn;
}

/** Place is a turn and a position in it. */
export interface Place {
  sessionId: string;
  /** Empty is the session's last turn. */
  turnId: string;
  afterSeq: bigint | undefined;
}

/** RunConfig is what a run is made of. */
export interface RunConfig {
  client: Client<typeof SessionService>;
  /** Finds the turn to follow, or starts it. */
  begin: (signal: AbortSignal) => Promise<Place>;
  /** begin starts a turn that only its answer names: nobody finds it without. */
  nameless: boolean;
  /** The tools to be asked for. */
  tools: ReadonlyMap<string, Tool>;
  answers: Answers;
  gate: Gate;
  limits: ResultLimits;
  prompter: Prompter | undefined;
  /** Only watches. */
  observe: boolean;
  headers: Headers;
  reconnect: ReconnectPolicy;
  silenceMs: number;
  requestTimeoutMs: number;
  display: boolean;
  visibility: Display_Visibility;
  signal: AbortSignal | undefined;
  cancelOnAbort: boolean;
}

/**
 * Run is a turn that is followed: an iterable of its events that can be iterated once. Nothing happens before that. The run ends
 * with its iteration: then its tools are aborted and nothing is fetched any more. The turn itself goes on if it is only left.
 */
export class Run implements AsyncIterable<Event> {
  readonly #c: RunConfig;
  #taken = false;
  #sessionId: string | undefined;
  #turnId: string | undefined;
  #cancelling: Promise<void> | undefined;

  constructor(config: RunConfig) {
    this.#c = config;
  }

  /** sessionId names the session, once it is known: from the first event on. */
  get sessionId(): string | undefined {
    return this.#sessionId;
  }

  /** turnId names the turn, once it is known. */
  get turnId(): string | undefined {
    return this.#turnId;
  }

  /**
   * Yields the events in order, each once. Throws an AgentdError when the turn has failed or cannot be followed any further, and
   * the reason of a signal that was aborted.
   */
  [Symbol.asyncIterator](): AsyncIterator<Event, void, undefined> {
    if (this.#taken) {
      throw new AgentdError("INVALID_REQUEST", "a run can be iterated once; attach follows its turn again");
    }
    this.#taken = true;
    const { controller, release } = follows(this.#c.signal);
    const events = this.#events(controller.signal);
    const left = new AgentdError("UNSPECIFIED", "the run is over");
    // At once, for the caller may be busy with an event, or leave.
    const cancel = () => void this.#cancelIfAborted();
    this.#c.signal?.addEventListener("abort", cancel, { once: true });
    const close = () => {
      this.#c.signal?.removeEventListener("abort", cancel);
      release();
      controller.abort(left);
    };
    return {
      next: async () => {
        try {
          const next = await events.next();
          if (next.done === true) {
            close();
          }
          return next;
        } catch (thrown) {
          close();
          if (thrown === left) {
            return { done: true, value: undefined }; // return was called meanwhile
          }
          throw thrown;
        }
      },
      return: async () => {
        close();
        await events.return().catch(() => {});
        return { done: true, value: undefined };
      },
    };
  }

  /** result iterates the run to its end and gathers it, from where the run began. It throws what the iteration throws. */
  async result(): Promise<Result> {
    const { client, reconnect, requestTimeoutMs, headers } = this.#c;
    const transcript = new Transcript();
    const providerToolsUsed: ProviderTools[] = [];
    let end: (Event & { type: "end" }) | undefined;
    for await (const event of this) {
      transcript.add(event);
      if (event.type === "end") {
        end = event;
      } else if (event.type === "provider_tools_used") {
        const { messageId, agentPath, uses, citations } = event;
        providerToolsUsed.push({ messageId, agentPath, uses, citations });
      }
    }
    const named = { sessionId: this.#sessionId ?? "", turnId: this.#turnId ?? "" };
    const signal = this.#c.signal ?? new AbortController().signal;
    const { turn } = await persist(reconnect, signal, () => client.getTurn(named, { signal, headers, timeoutMs: requestTimeoutMs }));
    if (turn === undefined) {
      throw new AgentdError("INTERNAL", "the server said nothing of the turn", named);
    }
    return {
      text: transcript.text,
      messages: transcript.messages,
      providerToolsUsed,
      completed: end?.completed ?? turn.status === TurnStatus.SUCCEEDED,
      ...structuredOf(turn.structuredOutput),
      usage: turn.usage === undefined ? end?.usage : usageOf(turn.usage),
      turn,
    };
  }

  async *#events(signal: AbortSignal): AsyncGenerator<Event, void, undefined> {
    let place: Place;
    try {
      place = await this.#begin(signal);
    } catch (thrown) {
      signal.throwIfAborted();
      throw fromThrown(thrown);
    }
    this.#sessionId = place.sessionId;
    this.#turnId = place.turnId || undefined;
    try {
      yield* this.#follow(place, signal);
    } finally {
      await this.#cancelIfAborted();
    }
  }

  /**
   * begin begins. Where an abort is to cancel the turn, its name is waited for. A turn without another name is cancelled behind the
   * back of a caller who has left before it was known: nobody could find it.
   */
  async #begin(signal: AbortSignal): Promise<Place> {
    signal.throwIfAborted();
    const { begin, cancelOnAbort, nameless } = this.#c;
    if (!cancelOnAbort && !nameless) {
      return begin(signal);
    }
    const starting = begin(new AbortController().signal);
    if (cancelOnAbort) {
      return starting;
    }
    return orAborted(starting, signal).catch((thrown: unknown) => {
      if (signal.aborted) {
        starting.then(
          (place) => this.#cancel(place),
          () => {},
        );
      }
      throw thrown;
    });
  }

  /** cancelIfAborted cancels the turn, once, if its caller wants that and it is known. */
  #cancelIfAborted(): Promise<void> {
    const { cancelOnAbort, signal } = this.#c;
    if (!cancelOnAbort || signal?.aborted !== true || this.#sessionId === undefined) {
      return Promise.resolve();
    }
    return this.#cancel({ sessionId: this.#sessionId, turnId: this.#turnId ?? "" });
  }

  /** cancel cancels the turn, once. The caller has gone: what fails is nobody's business. */
  #cancel({ sessionId, turnId }: Pick<Place, "sessionId" | "turnId">): Promise<void> {
    const { client, headers, requestTimeoutMs, reconnect } = this.#c;
    const options = { headers, timeoutMs: requestTimeoutMs };
    this.#cancelling ??= persist(reconnect, AbortSignal.timeout(requestTimeoutMs), async () => {
      const last = turnId === "" ? (await client.getTurn({ sessionId }, options)).turn?.id : undefined; // of an attach without a name
      return client.cancelTurn({ sessionId, turnId: last ?? turnId }, options);
    }).then(
      () => {},
      () => {},
    );
    return this.#cancelling;
  }

  async *#follow(place: Place, signal: AbortSignal): AsyncGenerator<Event, void, undefined> {
    const c = this.#c;
    const faults = new Mailbox<AgentdError>();
    const shared = { ...c, signal, report: (error: AgentdError) => faults.put(error) };
    const calls = new Calls(shared);
    const prompts = c.prompter === undefined ? undefined : new Prompts({ ...shared, prompter: c.prompter });
    const messages = follow({ ...c, ...place, toolNames: [...c.tools.keys()], signal });
    let why: AgentdError | undefined; // an error that stands in the log is the reason of the turn's end
    let pending: Promise<IteratorResult<Followed, void>> | undefined;
    try {
      for (;;) {
        pending ??= messages.next();
        await Promise.race([pending, faults.filled()]);
        for (let error = faults.take(); error !== undefined; error = faults.take()) {
          yield ownEvent(this.#turnId ?? "", { type: "error", error });
        }
        const next = await Promise.race([pending, undefined]);
        if (next === undefined) {
          continue;
        }
        pending = undefined;
        if (next.done === true) {
          return;
        }
        const event = this.#take(next.value, calls, prompts);
        if (event?.type === "error") {
          why = event.error;
        } else if (event?.type === "end" && !event.completed && why !== undefined) {
          throw why.with({ sessionId: this.#sessionId, turnId: this.#turnId, usage: event.usage });
        } else if (event !== undefined) {
          yield event;
        }
      }
    } finally {
      pending?.catch(() => {});
      void messages.return().catch(() => {});
    }
  }

  /** take sees to what a message asks for, and returns the event that it is. */
  #take({ message, again }: Followed, calls: Calls, prompts: Prompts | undefined): Event | undefined {
    const { response } = message;
    if (this.#turnId === undefined && response.case !== "turnQueued" && message.turnId !== "") {
      this.#turnId = message.turnId; // a prompt that waits may be another turn's
    }
    switch (response.case) {
      case "execute":
        this.#sessionId = response.value.sessionId;
        break;
      case "toolCall":
        calls.start(response.value, message.turnId);
        break;
      case "toolCallCanceled":
        calls.stop(response.value.toolCallId, `the tool call was cancelled: ${response.value.reason}`);
        break;
      case "toolCallAnswered": // this client's, or another one's that was faster
        calls.stop(response.value.toolCallId, "the tool call is answered");
        break;
      case "interactionRequested":
        if (response.value.interaction !== undefined) {
          prompts?.start({ ...response.value.interaction, sessionId: this.#sessionId ?? "" }, message.replayed);
        }
        break;
      case "interactionResolved":
        prompts?.settled(response.value.interaction?.id ?? "");
        break;
      default:
    }
    return again ? undefined : eventOf(message);
  }
}
