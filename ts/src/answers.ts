// How tool calls were answered.
import { sizeOf } from "./parts.js";
import type { Answer } from "./tool.js";
import { orAborted } from "./wait.js";

/** Bounds of the answers that are remembered. */
const maxAnswers = 1024;
const maxAnswerChars = 16 * 1024 * 1024;

/**
 * Answers remembers how calls were answered, so that one that is asked again, in the same run or in a later one, is
 * answered without running the tool twice. Of calls that are answered the oldest are forgotten beyond the bounds above;
 * runs bound the number of the others.
 */
export class Answers {
  readonly #working = new Map<string, Promise<Answer | undefined>>();
  readonly #answered = new Map<string, Answer>(); // in the order in which they were answered
  #chars = 0;

  /**
   * answer returns the remembered answer to a call, or waits for who works on it, or works. If work throws, nothing is
   * remembered; whoever waits then works itself. It throws what its own work has thrown, or the signal's reason.
   */
  async answer(sessionId: string, callId: string, signal: AbortSignal, work: () => Promise<Answer>): Promise<Answer> {
    const key = JSON.stringify([sessionId, callId]);
    for (;;) {
      const known = this.#answered.get(key);
      if (known !== undefined) {
        return known;
      }
      const other = this.#working.get(key);
      if (other === undefined) {
        break;
      }
      await orAborted(other, signal);
    }
    const working = work();
    this.#working.set(
      key,
      working.catch(() => undefined),
    );
    try {
      const answer = await working;
      this.#remember(key, answer);
      return answer;
    } finally {
      this.#working.delete(key);
    }
  }

  #remember(key: string, answer: Answer): void {
    this.#answered.set(key, answer);
    this.#chars += charsOf(answer);
    for (const [oldest, forgotten] of this.#answered) {
      if (this.#answered.size <= maxAnswers && (this.#chars <= maxAnswerChars || this.#answered.size === 1)) {
        break;
      }
      this.#answered.delete(oldest);
      this.#chars -= charsOf(forgotten);
    }
  }
}

function charsOf({ output = "", error = "", parts = [], stateDeltaJson = "" }: Answer): number {
  return output.length + error.length + sizeOf(parts) + stateDeltaJson.length;
}
