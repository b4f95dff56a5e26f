// The Chromium of this machine.
import { existsSync } from "node:fs";
import type { LaunchOptions } from "playwright-core";

const executablePath = [process.env["CHROMIUM"], "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(
  (path) => path !== undefined && existsSync(path),
);
const missing = "no Chromium on this machine (CHROMIUM names one)";

/** Why tests in browsers are skipped, if they are; in CI they fail instead. */
export const skip = executablePath === undefined && process.env["CI"] !== "true" ? missing : false;

/** launching says how a browser is launched. */
export function launching(): LaunchOptions & { executablePath: string } {
  if (executablePath === undefined) {
    throw new Error(missing);
  }
  return {
    executablePath,
    args: [
      ...(process.getuid?.() === 0 ? ["--no-sandbox"] : []),
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  };
}
