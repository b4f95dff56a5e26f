// What model calls took.

/**
 * Usage is what model calls took. It means the same for every provider. Counts are safe integers: what is beyond comes
 * as the greatest.
 */
export interface Usage {
  /** Tokens of the whole requests. */
  readonly promptTokens: number;
  /** Tokens of the whole responses. */
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
  /**
   * US dollars at the server's price table, of the calls whose price is known; undefined when no price is known of any.
   */
  readonly costUsd: number | undefined;
  /** How many of modelCalls have no known price: unless it is 0, the whole cost is not known. */
  readonly unpricedCalls: number;
}
