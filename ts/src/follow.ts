// Following one turn over as many streams as it takes.
import { Outage, type ReconnectPolicy } from "./backoff.js";
import { AgentdError, fromThrown, isLost } from "./errors.js";
import type { EventBody } from "./events.js";
import { errorOf } from "./fromjson.js";
import type {
  Display_VisibilityJson,
  RunResponse_OutputChunkJson,
  RunResponseJson,
} from "./gen/agentd/v1/service_pb.js";
import type { WatchTurnRequestJson } from "./gen/agentd/v1/sessions_pb.js";
import { given, numberOf } from "./json.js";
import { byteLength } from "./text.js";
import { follows, orAborted, sleep } from "./wait.js";
import type { Wire } from "./wire.js";

/** FollowOptions says which turn to follow, and how. */
export interface FollowOptions {
  wire: Wire;
  sessionId: string;
  /** Empty is the session's last turn. */
  turnId: string;
  /** The seq of the last message that the caller has; undefined: the turn from its beginning. */
  afterSeq: string | undefined;
  toolNames: string[];
  /** Only watches. */
  observe: boolean;
  display: boolean;
  visibility: Display_VisibilityJson | undefined;
  headers: Headers;
  reconnect: ReconnectPolicy;
  /** How long a stream may be silent, in milliseconds; the server sends heartbeats. */
  silenceMs: number;
  /** Ends it all. */
  signal: AbortSignal;
}

/** Followed is what comes of following a turn. */
export type Followed =
  /** A message, and whether the caller has had it: then it is a tool call that is asked again. */
  | { message: RunResponseJson; again: boolean }
  /** How the connection is. */
  | { connection: EventBody };

/**
 * follow yields the messages of a turn in order, each once, up to its end; heartbeats and what only ends a stream are
 * not among them. A stream that breaks or is silent is replaced by another one that begins where it ended, which is
 * told. It returns early when nothing comes after afterSeq. It throws an AgentdError when the turn cannot be followed
 * any further, or the signal's reason.
 */
export async function* follow(options: FollowOptions): AsyncGenerator<Followed, void, undefined> {
  const state = new Position(options);
  const outage = new Outage(options.reconnect);
  for (;;) {
    options.signal.throwIfAborted();
    const failure = yield* stream(options, state, outage);
    if (failure === undefined) {
      return;
    }
    const error = failure.with({ sessionId: options.sessionId, turnId: state.turnId || undefined });
    const wait = isLost(failure) ? outage.next(failure.retryAfterMs) : undefined;
    if (wait === undefined) {
      if (state.lost !== undefined) {
        yield { connection: { type: "connection_abandoned", ...sinceOf(state.lost), error } };
      }
      throw error;
    }
    if (state.lost === undefined) {
      state.lost = { at: performance.now(), attempts: 0 };
      yield { connection: { type: "connection_lost", error } };
    }
    state.lost.attempts++;
    await sleep(wait, options.signal);
  }
}

/** stream follows the turn over one stream. It returns why that ended, undefined when there is no more to come. */
async function* stream(
  o: FollowOptions,
  state: Position,
  outage: Outage,
): AsyncGenerator<Followed, AgentdError | undefined, undefined> {
  const { controller, release } = follows(o.signal);
  const request = {
    ...given<WatchTurnRequestJson>({
      sessionId: o.sessionId,
      turnId: state.turnId,
      toolNames: o.toolNames,
      observe: o.observe,
      display: o.display,
      visibility: o.visibility,
    }),
    ...(state.cursor === undefined ? {} : { afterSeq: state.cursor }),
  };
  let answered: number | undefined; // when the server took the stream
  const onHeader = () => void (answered = performance.now());
  const messages = o.wire.watch(request, { signal: controller.signal, headers: o.headers, onHeader });
  const giveUp = () =>
    controller.abort(new AgentdError("UNAVAILABLE", `nothing came for ${o.silenceMs} ms, not even a heartbeat`));
  state.reconnected();
  let closing: AgentdError | undefined;
  try {
    for (;;) {
      const silent = setTimeout(giveUp, o.silenceMs);
      let next;
      try {
        next = await orAborted(messages.next(), controller.signal);
      } catch (thrown) {
        o.signal.throwIfAborted();
        if (answered !== undefined && performance.now() - answered > o.reconnect.capMs) {
          outage.over(); // a quiet turn, of which nothing was to be told
        }
        return closing ?? fromThrown(thrown);
      } finally {
        clearTimeout(silent);
      }
      if (next.done === true) {
        if (closing === undefined && !state.nothingCame()) {
          return new AgentdError("UNAVAILABLE", "the server closed the stream before the end of the turn");
        }
        return closing;
      }
      const message = next.value.event;
      if (message?.error !== undefined && message.seq === undefined) {
        closing = errorOf(message.error); // of the stream; it says why it ends
        continue;
      }
      if (message === undefined) {
        continue;
      }
      if (state.lost !== undefined) {
        const since = sinceOf(state.lost);
        state.lost = undefined;
        yield { connection: { type: "connection_restored", ...since } };
      }
      const taken = state.take(message);
      if (message.heartbeat !== undefined || taken === "new") {
        outage.over();
      }
      if (message.heartbeat !== undefined || taken === "old") {
        continue;
      }
      yield { message, again: taken === "again" };
      if (message.end !== undefined) {
        return undefined;
      }
    }
  } finally {
    release();
    controller.abort(new AgentdError("UNSPECIFIED", "the stream is no longer wanted"));
  }
}

function sinceOf({ at, attempts }: { at: number; attempts: number }): { afterMs: number; attempts: number } {
  return { afterMs: Math.round(performance.now() - at), attempts };
}

/** Position is how far a caller has come. */
class Position {
  cursor: string | undefined;
  turnId: string;
  /** Since when the connection is lost, as was told, and how often it was tried. */
  lost: { at: number; attempts: number } | undefined;
  readonly #resumes: boolean;
  #news = false;
  #stream = 0;
  // By call: the last stream on which it was said; bounded by the turn's calls.
  readonly #unserved = new Map<string, number>();
  // Of a text that comes in several pieces only the last has a seq. After a lost connection all of them come again:
  // ahead is what the caller has had of it, skip how many bytes of that are still to come.
  #ahead: { of: string; bytes: number } = { of: "", bytes: 0 };
  #skip = 0;

  constructor(options: FollowOptions) {
    this.cursor = options.afterSeq;
    this.turnId = options.turnId;
    this.#resumes = options.afterSeq !== undefined;
  }

  /** reconnected says that a stream begins. */
  reconnected(): void {
    this.#stream++;
    this.#skip = this.#ahead.bytes;
  }

  /** nothingCame tells whether there is nothing after the position that the caller began with. */
  nothingCame(): boolean {
    return this.#resumes && !this.#news;
  }

  /** take tells what the caller has to see of a message: a new one, a call that is asked again, or nothing. */
  take(message: RunResponseJson): "new" | "again" | "old" {
    const { seq } = message;
    if (seq !== undefined && this.cursor !== undefined && numberOf(seq) <= numberOf(this.cursor)) {
      return message.toolCall === undefined ? "old" : "again";
    }
    if (seq !== undefined) {
      this.cursor = seq;
      this.#news = true;
      if (this.turnId === "" && message.turnQueued === undefined) {
        this.turnId = message.turnId ?? ""; // a prompt that waits may be another turn's
      }
    }
    if (message.toolCallUnserved !== undefined) {
      // It has no seq and is said again to whoever comes back.
      const { toolCallId = "" } = message.toolCallUnserved;
      const said = this.#unserved.get(toolCallId) ?? this.#stream;
      this.#unserved.set(toolCallId, this.#stream);
      return said === this.#stream ? "new" : "old";
    }
    if (message.outputChunk !== undefined) {
      return this.#cut(message.outputChunk, seq !== undefined) ? "new" : "old";
    }
    if (seq !== undefined) {
      this.#forget();
    }
    return "new";
  }

  /** cut takes off what the caller has had of a piece, and tells whether something is left. */
  #cut(chunk: RunResponse_OutputChunkJson, stored: boolean): boolean {
    const { content = "", last = false, isThought = false } = chunk;
    const of = JSON.stringify([chunk.messageId, isThought, chunk.agentPath]);
    if (this.#ahead.of !== of) {
      this.#ahead = { of, bytes: 0 };
      this.#skip = 0;
    }
    const size = byteLength(content);
    const skipped = Math.min(this.#skip, size);
    if (skipped > 0) {
      chunk.content = new TextDecoder().decode(new TextEncoder().encode(content).subarray(skipped));
    }
    this.#skip -= skipped;
    this.#ahead.bytes += size - skipped;
    if (stored) {
      this.#forget();
    }
    return skipped === 0 || chunk.content !== "" || last;
  }

  #forget(): void {
    this.#ahead = { of: "", bytes: 0 };
    this.#skip = 0;
  }
}
