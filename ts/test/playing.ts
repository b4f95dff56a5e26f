// A server of the tests' own, in memory, for what a real one does not do on demand.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import { Agentd, type AgentdOptions } from "@apzuk3/agentd";
import {
  ErrorCode,
  InteractionKind,
  InteractionStatus,
  RunResponse_ErrorResponseSchema,
  SessionService,
  type ResolveInteractionRequest,
  type RunResponseSchema,
  type WatchTurnRequest,
} from "@apzuk3/agentd/proto";
import { serving } from "./serving.js";

export type Message = MessageInitShape<typeof RunResponseSchema>;
/** Stream is what a stream sends, and how it ends. */
export type Stream = { send: Message[]; fail?: ConnectError; hang?: boolean };
/** Play is what a server does besides. */
export interface Play {
  resolved?: ResolveInteractionRequest[];
  status?: InteractionStatus;
  refusal?: ErrorCode;
  methods?: Partial<ServiceImpl<typeof SessionService>>;
}

export const chunk = (seq: bigint, content: string, messageId = "m"): Message => ({ seq, turnId: "t", response: { case: "outputChunk", value: { content, messageId, agentPath: ["a"] } } });
export const end: Message = { seq: 1000n, turnId: "t", response: { case: "end", value: { completed: true } } };
export const error = (code: ErrorCode, seq = 0n): Message => ({ seq, response: { case: "error", value: { code, message: "said so", retryable: true } } });
export const lost = new ConnectError("connection reset", Code.Unknown);

/** playing returns a client of a server that plays streams one after the other, and what it was asked. */
export function playing(streams: Stream[], play: Play = {}, options: AgentdOptions = {}) {
  const asked: WatchTurnRequest[] = [];
  const fetch = serving(service(asked, streams, play));
  const agentd = new Agentd("http://unused", { fetch, reconnect: { baseMs: 1, capMs: 2, maxElapsedMs: 5_000 }, ...options });
  return { agentd, asked };
}

function service(asked: WatchTurnRequest[], streams: Stream[], play: Play): Partial<ServiceImpl<typeof SessionService>> {
  return {
    async *watchTurn(request, { signal }) {
      asked.push(request);
      const { send, fail, hang } = streams[asked.length - 1] ?? { send: [], fail: new ConnectError("no more streams", Code.Internal) };
      for (const event of send) {
        yield { event };
      }
      if (hang === true) {
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
      }
      if (fail !== undefined) {
        throw fail;
      }
    },
    getInteraction: () => ({ interaction: { status: play.status ?? InteractionStatus.PENDING } }),
    resolveInteraction(request) {
      play.resolved?.push(request);
      if (play.refusal !== undefined) {
        throw refusedWith(play.refusal);
      }
      return {};
    },
    ...play.methods,
  };
}

/** refusedWith is a refusal as the server makes it. */
export function refusedWith(code: ErrorCode): ConnectError {
  return new ConnectError("no", Code.FailedPrecondition, undefined, [
    { desc: RunResponse_ErrorResponseSchema, value: create(RunResponse_ErrorResponseSchema, { code, message: "no" }) },
  ]);
}

export const question = (status: InteractionStatus, seq: bigint, replayed = false): Message => ({
  seq,
  turnId: "t",
  replayed,
  response: {
    case: status === InteractionStatus.PENDING ? "interactionRequested" : "interactionResolved",
    value: { interaction: { id: "q", sessionId: "s", turnId: "t", kind: InteractionKind.INPUT, question: "which?", status } },
  },
});
