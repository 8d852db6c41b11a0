/** Runs one request by the client, as its argument in JSON says, and prints in JSON what came of it. clients_test.py builds it beside the client. */
import { readFileSync } from "node:fs";
import { fromBinary } from "@bufbuild/protobuf";
import { type Answer, BatonError, Client, type ToolCall } from "../index.js";
import { ChatRequestSchema } from "../v1.js";

const asked = JSON.parse(process.argv[2]!);
const request = fromBinary(ChatRequestSchema, Buffer.from(asked.request, "base64"));
const client = new Client(asked.address, { key: asked.key, attempts: asked.attempts, tls: asked.ca ? readFileSync(asked.ca) : undefined });
const options = { timeout: asked.timeout * 1000 };
const said: Record<string, unknown> = {};
const parts: unknown[] = [];

const callOf = ({ id, name, argumentsJson, complete }: ToolCall) => [id, name, argumentsJson, complete];
const answerOf = ({ text, thinking, calls, reason, started, finished }: Answer) => ({
  text,
  thinking,
  calls: calls.map(callOf),
  reason,
  tokens: finished?.usage?.completionTokens,
  request_id: started?.requestId,
});

try {
  if (asked.op === "complete") {
    said.answer = answerOf(await client.complete(request, options));
  } else {
    said.parts = parts;
    for await (const part of client.stream(request, options)) {
      if (part.kind === "answer") said.answer = answerOf(part);
      else parts.push(part.kind === "call" ? ["call", ...callOf(part)] : [part.kind, part.text]);
      if (asked.leave && parts.length === asked.leave) break;
    }
  }
} catch (error) {
  if (!(error instanceof BatonError)) throw error;
  const { code, details: message, reason, metadata, field, final, requestId: request_id, retryAfter } = error;
  said.error = { code, message, reason, metadata, field, final, request_id, retry_after: retryAfter === undefined ? undefined : retryAfter / 1000 };
}
console.log(JSON.stringify(said));
// The connection stays, so that only the call can tell that the loop was left.
if (asked.leave) setInterval(() => {}, 1000);
else client.close();
