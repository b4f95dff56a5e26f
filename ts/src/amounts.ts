// Numbers among the options. All of them pass here: undefined is an option that is not set, and what is no such number is refused.
import type { Duration } from "@bufbuild/protobuf/wkt";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { AgentdError } from "./errors.js";

/** The longest wait of a timer in milliseconds, 24.8 days: JavaScript fires a timer at once that is to wait for longer. */
export const longestWaitMs = 2 ** 31 - 1;

/** The protocol's longest time for a tool, and for a client to come back: a day in milliseconds. */
export const dayMs = 86_400_000;

/** Bounds of a number, both inclusive. */
export interface Bounds {
  least: number;
  /** Left out: Infinity is taken too. */
  most?: number;
  /** Only whole numbers, and Infinity. */
  whole?: boolean;
}

/** amountOf checks a number. It throws INVALID_REQUEST, also for what is no number at all. */
export function amountOf(name: string, value: number, { least, most = Infinity, whole = false }: Bounds): number {
  const fits = typeof value === "number" && value >= least && value <= most && (!whole || value === Infinity || Number.isSafeInteger(value));
  if (!fits) {
    const kind = whole ? "a whole number" : "a number";
    const range = most === Infinity ? `of at least ${least}` : `from ${least} to ${most}`;
    throw new AgentdError("INVALID_REQUEST", `${name} is ${shown(value)}, must be ${kind} ${range}; leave it out for the default`);
  }
  return value;
}

function shown(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value.slice(0, 80)) : String(value).slice(0, 80);
}

/** waitOf is how long to wait for something, in milliseconds: at least 1. What is longer than a timer can wait is as long as it can. */
export function waitOf(name: string, value: number | undefined, byDefault: number): number {
  return Math.min(amountOf(name, value === undefined ? byDefault : value, { least: 1 }), longestWaitMs);
}

/** timeOf is a time for the wire, in whole milliseconds; undefined is none. */
export function timeOf(name: string, value: number | undefined, bounds: Bounds): Duration | undefined {
  return value === undefined ? undefined : durationFromMs(Math.ceil(amountOf(name, value, bounds)));
}

/** countOf is a whole number for the wire; undefined is 0, which stands for the server's own. */
export function countOf(name: string, value: number | undefined): number {
  return value === undefined ? 0 : amountOf(name, value, { least: 0, most: longestWaitMs, whole: true });
}

/** The protocol's longest page. */
const maxPage = 1000;

/** pageSizeOf is the size of a page for the wire; undefined is 0, which stands for the server's own. */
export function pageSizeOf(value: number | undefined): number {
  return value === undefined ? 0 : amountOf("pageSize", value, { least: 0, most: maxPage, whole: true });
}

/** sumOf is a bound of at least 1 for the wire; undefined is 0, which is no bound. */
export function sumOf(name: string, value: number | undefined): bigint {
  return value === undefined ? 0n : BigInt(amountOf(name, value, { least: 1, most: Number.MAX_SAFE_INTEGER, whole: true }));
}
