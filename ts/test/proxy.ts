// A TCP proxy that breaks connections when it is told to.
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import type { TestContext } from "node:test";

/** Proxy passes connections on to a daemon. */
export class Proxy {
  /** Where clients find it. */
  readonly url: string;
  /** Where it passes new connections on to. */
  target: string;
  /** After how many bytes of its answers a connection that carries WatchTurn or WatchSession is cut; undefined: never. */
  cutAfter: (() => number) | undefined;
  /** How many answers to requests of a path are lost on their way. */
  readonly losing = new Map<string, number>();
  /** The method names of all requests. */
  readonly requests: string[] = [];
  /** How many connections were cut. */
  cuts = 0;
  /** Requests whose answers are lost do not arrive either. */
  withhold = false;
  readonly #watching = new Set<Socket>();
  readonly #sockets = new Set<Socket>();
  #changed = () => {};

  constructor(server: Server, target: string) {
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    this.target = target;
    server.on("connection", (socket) => this.#pass(socket));
  }

  /** cut breaks all connections. */
  cut(): void {
    for (const socket of this.#sockets) {
      socket.destroy();
    }
  }

  /** quiet resolves when no connection carries WatchTurn or WatchSession. */
  async quiet(): Promise<void> {
    while (this.#watching.size > 0) {
      await new Promise<void>((resolve) => (this.#changed = resolve));
    }
  }

  /** seen resolves when there were so many requests of a method. */
  async seen(method: string, count: number): Promise<void> {
    while (this.requests.filter((name) => name === method).length < count) {
      await new Promise<void>((resolve) => (this.#changed = resolve));
    }
  }

  #pass(down: Socket): void {
    const { hostname, port } = new URL(this.target);
    const up = connect(Number(port), hostname);
    let left: number | undefined;
    let losing = false;
    for (const socket of [down, up]) {
      this.#sockets.add(socket);
      socket.on("error", () => {});
      socket.once("close", () => {
        this.#sockets.delete(socket);
        this.#watching.delete(down);
        this.#changed();
        down.destroy();
        up.destroy();
      });
    }
    down.on("data", (data) => {
      const method = /^POST \/agentd\.v1\.SessionService\/(\w+) /.exec(data.toString("latin1"))?.[1];
      if (method !== undefined) {
        this.requests.push(method);
        this.#changed();
        const lose = this.losing.get(method) ?? 0;
        losing = lose > 0;
        this.losing.set(method, Math.max(lose - 1, 0));
      }
      if (method === "WatchTurn" || method === "WatchSession") {
        this.#watching.add(down);
        left = this.cutAfter?.();
      }
      if (losing && this.withhold) {
        down.destroy();
        return;
      }
      up.write(data);
    });
    up.on("data", (data) => {
      if (losing) {
        up.destroy();
        return;
      }
      if (left !== undefined && data.length >= left) {
        this.cuts++;
        down.write(data.subarray(0, left), () => down.destroy());
        up.destroy();
        return;
      }
      if (data.toString("latin1").endsWith("0\r\n\r\n")) {
        this.#watching.delete(down); // the answer is complete; the connection may carry another request
        this.#changed();
      }
      left = left === undefined ? undefined : left - data.length;
      down.write(data);
    });
  }
}

/** proxy starts a proxy for one test. */
export async function proxy(t: TestContext, target: string): Promise<Proxy> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const out = new Proxy(server, target);
  t.after(() => {
    out.cut();
    server.close();
  });
  return out;
}
