// Following one turn over as many streams as it takes.
import type { Client } from "@connectrpc/connect";
import { Outage, type ReconnectPolicy } from "./backoff.js";
import { AgentdError, fromResponse, fromThrown, isLost } from "./errors.js";
import type { Display_Visibility, RunResponse, RunResponse_OutputChunk } from "./gen/agentd/v1/service_pb.js";
import type { SessionService } from "./gen/agentd/v1/sessions_pb.js";
import { byteLength } from "./text.js";
import { follows, orAborted, sleep } from "./wait.js";

/** FollowOptions says which turn to follow, and how. */
export interface FollowOptions {
  client: Client<typeof SessionService>;
  sessionId: string;
  /** Empty is the session's last turn. */
  turnId: string;
  /** The seq of the last message that the caller has; undefined: the turn from its beginning. */
  afterSeq: bigint | undefined;
  toolNames: string[];
  /** Only watches. */
  observe: boolean;
  display: boolean;
  visibility: Display_Visibility;
  headers: Headers;
  reconnect: ReconnectPolicy;
  /** How long a stream may be silent, in milliseconds; the server sends heartbeats. */
  silenceMs: number;
  /** Ends it all. */
  signal: AbortSignal;
}

/** Followed is a message, and whether the caller has had it: then it is a tool call that is asked again. */
export interface Followed {
  message: RunResponse;
  again: boolean;
}

/**
 * follow yields the messages of a turn in order, each once, up to its end; heartbeats and what only ends a stream are not among
 * them. A stream that breaks or is silent is replaced by another one that begins where it ended. It returns early when nothing
 * comes after afterSeq. It throws an AgentdError when the turn cannot be followed any further, or the signal's reason.
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
    const wait = isLost(failure) ? outage.next(failure.retryAfterMs) : undefined;
    if (wait === undefined) {
      throw failure.with({ sessionId: options.sessionId, turnId: state.turnId || undefined });
    }
    await sleep(wait, options.signal);
  }
}

/** stream follows the turn over one stream. It returns why that ended, undefined when there is no more to come. */
async function* stream(o: FollowOptions, state: Position, outage: Outage): AsyncGenerator<Followed, AgentdError | undefined, undefined> {
  const { controller, release } = follows(o.signal);
  const request = {
    sessionId: o.sessionId,
    turnId: state.turnId,
    toolNames: o.toolNames,
    observe: o.observe,
    display: o.display,
    visibility: o.visibility,
    ...(state.cursor === undefined ? {} : { afterSeq: state.cursor }),
  };
  let answered: number | undefined; // when the server took the stream
  const onHeader = () => void (answered = performance.now());
  const messages = o.client
    .watchTurn(request, { signal: controller.signal, headers: o.headers, timeoutMs: 0, onHeader })
    [Symbol.asyncIterator]();
  const giveUp = () => controller.abort(new AgentdError("UNAVAILABLE", `nothing came for ${o.silenceMs} ms, not even a heartbeat`));
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
      if (message?.response.case === "error" && message.seq === 0n) {
        closing = fromResponse(message.response.value); // of the stream; it says why it ends
        continue;
      }
      if (message === undefined) {
        continue;
      }
      const taken = state.take(message);
      if (message.response.case === "heartbeat" || taken === "new") {
        outage.over();
      }
      if (message.response.case === "heartbeat" || taken === "old") {
        continue;
      }
      yield { message, again: taken === "again" };
      if (message.response.case === "end") {
        return undefined;
      }
    }
  } finally {
    release();
    controller.abort(new AgentdError("UNSPECIFIED", "the stream is no longer wanted"));
  }
}

/** Position is how far a caller has come. */
class Position {
  cursor: bigint | undefined;
  turnId: string;
  readonly #resumes: boolean;
  #news = false;
  #stream = 0;
  readonly #unserved = new Map<string, number>(); // by call: the last stream on which it was said; bounded by the turn's calls
  // Of a text that comes in several pieces only the last has a seq. After a lost connection all of them come again: ahead is
  // what the caller has had of it, skip how many bytes of that are still to come.
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
  take(message: RunResponse): "new" | "again" | "old" {
    const { seq, response } = message;
    if (seq > 0n && this.cursor !== undefined && seq <= this.cursor) {
      return response.case === "toolCall" ? "again" : "old";
    }
    if (seq > 0n) {
      this.cursor = seq;
      this.#news = true;
      if (this.turnId === "" && response.case !== "turnQueued") {
        this.turnId = message.turnId; // a prompt that waits may be another turn's
      }
    }
    if (response.case === "toolCallUnserved") {
      // It has no seq and is said again to whoever comes back.
      const said = this.#unserved.get(response.value.toolCallId) ?? this.#stream;
      this.#unserved.set(response.value.toolCallId, this.#stream);
      return said === this.#stream ? "new" : "old";
    }
    if (response.case === "outputChunk") {
      return this.#cut(response.value, seq) ? "new" : "old";
    }
    if (seq > 0n) {
      this.#forget();
    }
    return "new";
  }

  /** cut takes off what the caller has had of a piece, and tells whether something is left. */
  #cut(chunk: RunResponse_OutputChunk, seq: bigint): boolean {
    const of = JSON.stringify([chunk.messageId, chunk.isThought, chunk.agentPath]);
    if (this.#ahead.of !== of) {
      this.#ahead = { of, bytes: 0 };
      this.#skip = 0;
    }
    const size = byteLength(chunk.content);
    const skipped = Math.min(this.#skip, size);
    if (skipped > 0) {
      chunk.content = new TextDecoder().decode(new TextEncoder().encode(chunk.content).subarray(skipped));
    }
    this.#skip -= skipped;
    this.#ahead.bytes += size - skipped;
    if (seq > 0n) {
      this.#forget();
    }
    return skipped === 0 || chunk.content !== "" || chunk.last;
  }

  #forget(): void {
    this.#ahead = { of: "", bytes: 0 };
    this.#skip = 0;
  }
}
