// A service of the tests' own behind a fetch: clients speak to it as to a server, by Connect with JSON.
import { createConnectRouter, type ServiceImpl } from "@connectrpc/connect";
import { createFetchHandler } from "@connectrpc/connect/protocol";
import { SessionService } from "@apzuk3/agentd/proto";

/** serving is a fetch that a service answers. */
export function serving(service: Partial<ServiceImpl<typeof SessionService>>): typeof fetch {
  const router = createConnectRouter().service(SessionService, service);
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, createFetchHandler(handler)]));
  return async (input, init) => {
    const request = new Request(input, init);
    const handler = handlers.get(new URL(request.url).pathname);
    return handler === undefined ? new Response("", { status: 404 }) : handler(request);
  };
}
