// Waiting that can be given up.
/** sleep waits. It throws the signal's reason when that is aborted before. */
export function sleep(ms, signal) {
    return new Promise((resolve, reject) => {
        if (signal.aborted) {
            reject(signal.reason);
            return;
        }
        const stop = () => {
            clearTimeout(timer);
            reject(signal.reason);
        };
        const timer = setTimeout(() => {
            signal.removeEventListener("abort", stop);
            resolve();
        }, ms);
        signal.addEventListener("abort", stop, { once: true });
    });
}
/**
 * orAborted waits for a promise. It throws the signal's reason when that is aborted before; the promise is then left
 * alone.
 */
export async function orAborted(promise, signal) {
    let stop = () => { };
    const aborted = new Promise((_, reject) => {
        stop = () => reject(signal.reason);
        if (signal.aborted) {
            stop();
        }
        else {
            signal.addEventListener("abort", stop, { once: true });
        }
    });
    try {
        return await Promise.race([promise, aborted]);
    }
    finally {
        signal.removeEventListener("abort", stop);
        promise.catch(() => { }); // nobody waits for it any more
    }
}
/** follows returns a controller that is aborted with a signal too, and a function that ends that. */
export function follows(signal) {
    const controller = new AbortController();
    if (signal === undefined) {
        return { controller, release: () => { } };
    }
    const stop = () => controller.abort(signal.reason);
    if (signal.aborted) {
        stop();
    }
    else {
        signal.addEventListener("abort", stop, { once: true });
    }
    return { controller, release: () => signal.removeEventListener("abort", stop) };
}
/** Mailbox hands items from whoever has them to one reader. */
export class Mailbox {
    #items = [];
    #wake;
    /** put adds an item. */
    put(item) {
        this.#items.push(item);
        this.#wake?.();
    }
    /** take returns the oldest item, undefined if there is none. */
    take() {
        return this.#items.shift();
    }
    /** filled resolves when there is an item. Only the last promise that it has returned does. */
    filled() {
        return this.#items.length > 0 ? Promise.resolve() : new Promise((resolve) => (this.#wake = resolve));
    }
}
/** Gate lets so many tasks run at once; the others wait their turn. */
export class Gate {
    #free;
    #waiting = [];
    constructor(size) {
        this.#free = size;
    }
    /** enter waits for a place; leave must follow. It throws the signal's reason when that is aborted before. */
    async enter(signal) {
        signal.throwIfAborted();
        if (this.#free > 0) {
            this.#free--;
            return;
        }
        let admit = () => { };
        const turn = new Promise((resolve) => (admit = resolve));
        this.#waiting.push(admit);
        try {
            await orAborted(turn, signal);
        }
        catch (reason) {
            const place = this.#waiting.indexOf(admit);
            if (place < 0) {
                this.leave(); // the place came at the same moment
            }
            else {
                this.#waiting.splice(place, 1);
            }
            throw reason;
        }
    }
    /** leave gives a place to whoever waits longest. */
    leave() {
        const next = this.#waiting.shift();
        if (next === undefined) {
            this.#free++;
        }
        else {
            next();
        }
    }
}
//# sourceMappingURL=wait.js.map