/**
 * A session in a React page: `@apzuk3/agentd/react`, the only part of this package that imports react, from version 18
 * on.
 *
 * @module
 */
import { useEffect, useMemo, useState, useSyncExternalStore } from "react";
import type { Agentd } from "./agentd.js";
import type { Part } from "./parts.js";
import { SessionStore, type SessionSnapshot, type SessionStoreOptions } from "./store.js";
import type { Resolution } from "./types.js";

export { SessionStore, type SessionSnapshot, type SessionStoreOptions } from "./store.js";
export type { SessionMessage, SessionToolCall } from "./turnview.js";

/**
 * UseSession is how a session is, and what a page can do about it. The functions are the same from one render to the
 * next.
 */
export interface UseSession extends SessionSnapshot {
  /** send starts a turn and follows it. It returns when the turn is over, and throws nothing: see error. */
  send: (prompt: string, parts?: readonly Part[]) => Promise<void>;
  /** resolve answers what a person is asked. It throws FAILED_PRECONDITION if somebody else was faster. */
  resolve: (interactionId: string, resolution: Resolution) => Promise<void>;
  /** cancel cancels the turn that runs. */
  cancel: (reason?: string) => Promise<void>;
  /** refresh reads the session again. */
  refresh: () => Promise<void>;
}

/**
 * hashSession keeps the id of a session in the hash of the page's address, for useSession: a reload, or another page
 * with the same address, goes on with it.
 */
export function hashSession(): Required<Pick<SessionStoreOptions, "sessionId" | "onSessionId">> {
  const sessionId = globalThis.location?.hash.slice(1) || undefined; // a server that renders has no location
  return { sessionId, onSessionId: (id) => history.replaceState(history.state, "", `#${id}`) };
}

/**
 * useSession follows a session for as long as its component is mounted: what was said, the calls of tools, and what
 * people are asked. A component that is mounted again, such as after a reload, reads the session and goes on with the
 * turn that runs, whose tools run in this page if the client has them. When sessionId changes to another one, that is
 * followed; the id that onSessionId was told is the same one. The client is to be the same from one render to the next.
 */
export function useSession(agentd: Agentd, options: SessionStoreOptions = {}): UseSession {
  const { sessionId } = options;
  const make = () => ({ agentd, sessionId, store: new SessionStore(agentd, options) });
  const [held, setHeld] = useState(make);
  let { store } = held;
  if (held.agentd !== agentd || held.sessionId !== sessionId) {
    const same = held.agentd === agentd && sessionId !== undefined && sessionId === store.sessionId;
    const next = same ? { ...held, sessionId } : make();
    ({ store } = next);
    setHeld(next);
  }
  useEffect(() => store.configure(options));
  const snapshot = useSyncExternalStore(store.subscribe, store.getSnapshot, store.getSnapshot);
  return useMemo(() => {
    const { send, resolve, cancel, refresh } = store;
    return { ...snapshot, send, resolve, cancel, refresh };
  }, [store, snapshot]);
}
