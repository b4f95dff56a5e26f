// What model calls took.
import type { Usage as UsageMessage, UsageSummary } from "./gen/agentd/v1/types_pb.js";

/** Usage is what model calls took. It means the same for every provider. Counts are safe integers: what is beyond comes as the greatest. */
export interface Usage {
  /** Tokens of the whole requests. */
  readonly promptTokens: number;
  /** Tokens of the whole answers. */
  readonly completionTokens: number;
  /** Those of promptTokens that were read from a provider's cache. */
  readonly cachedTokens: number;
  /** Those of promptTokens that were written into a provider's cache, where it says so. */
  readonly cacheWriteTokens: number;
  /** Those of completionTokens that are the models' thinking, where their providers say so. */
  readonly thoughtsTokens: number;
  /** promptTokens and completionTokens together. */
  readonly totalTokens: number;
  /** How many tries of calls said what they took. */
  readonly modelCalls: number;
  /** US dollars at the server's price table, of the calls whose price is known; undefined when no price is known of any. */
  readonly costUsd: number | undefined;
  /** How many of modelCalls have no known price: unless it is 0, the whole cost is not known. */
  readonly unpricedCalls: number;
}

const safe = (count: bigint): number => Math.min(Number(count), Number.MAX_SAFE_INTEGER);

/** usageOf translates the usage of a message, such as that of a Turn or a Session. */
export function usageOf(u: UsageMessage): Usage {
  return {
    promptTokens: safe(u.promptTokens),
    completionTokens: safe(u.completionTokens),
    cachedTokens: safe(u.cachedTokens),
    cacheWriteTokens: safe(u.cacheWriteTokens),
    thoughtsTokens: safe(u.thoughtsTokens),
    totalTokens: safe(u.totalTokens),
    modelCalls: safe(u.modelCalls),
    costUsd: u.costUsd,
    unpricedCalls: safe(u.unpricedCalls),
  };
}

/** usageOfEnd translates the usage of an end, whose counts are at most 2,147,483,647. */
export function usageOfEnd({ totalUsage, llmCalls, estimatedCost, unpricedCalls }: UsageSummary): Usage {
  return {
    promptTokens: totalUsage?.promptTokens ?? 0,
    completionTokens: totalUsage?.completionTokens ?? 0,
    cachedTokens: totalUsage?.cachedTokens ?? 0,
    cacheWriteTokens: totalUsage?.cacheWriteTokens ?? 0,
    thoughtsTokens: totalUsage?.thoughtsTokens ?? 0,
    totalTokens: totalUsage?.totalTokens ?? 0,
    modelCalls: llmCalls,
    costUsd: unpricedCalls === 0 || unpricedCalls < llmCalls ? estimatedCost : undefined,
    unpricedCalls,
  };
}
