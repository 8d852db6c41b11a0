// The smallest useful client in TypeScript, over gRPC: an answer that streams, a loop of tools, an answer that obeys a schema, and a
// document that stays cached. README.md, "Use it", has the lines that make ./baton/v1.
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { CacheTtl, FinishReason } from "./baton/v1/generation_pb.js";
import { ChatRequestSchema, Inference } from "./baton/v1/inference_pb.js";

const client = createClient(Inference, createGrpcTransport({ baseUrl: `http://${process.argv[2] ?? "127.0.0.1:8470"}` }));
type Ask = MessageInitShape<typeof ChatRequestSchema>;
const ask = async (request: Ask) => (await client.chatUnary({ chat: request })).choices[0]!;

// An answer that streams.
for await (const { event } of client.chat({ conversation: { messages: [{ role: "user", content: "Hello! My name is Ada." }] } })) {
  if (event.case === "delta") process.stdout.write(event.value.text);
}
console.log();

// Ask, run what the model calls, send back the results, and ask again until it calls nothing.
const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ name: "get_weather", description: "Get the weather of a city.", parametersJson: JSON.stringify(city) }];
const messages: NonNullable<NonNullable<Ask["conversation"]>["messages"]> = [{ role: "user", content: "What is the weather in Oslo?" }];
for (;;) {
  const { text, parts, finished } = await ask({ conversation: { messages, tools } });
  const calls = parts.flatMap(({ part, complete }) => (part.case === "toolCall" && complete ? [part.value] : []));
  const thinking = parts.flatMap(({ part }) => (part.case === "thinking" ? [part.value] : []));
  if (finished?.reason !== FinishReason.TOOL_CALLS) {
    console.log(text);
    break;
  }
  messages.push({ role: "assistant", content: text, reasoningContent: thinking.join(""), toolCalls: calls });
  for (const call of calls) {
    const { city } = JSON.parse(call.argumentsJson);
    console.log(`${call.name}(${city})`);
    messages.push({ role: "tool", toolCallId: call.id, content: `sunny in ${city}` });
  }
}

// The mark keeps the document's KV in the cache, so each question after the first computes itself alone.
const handbook = Array.from({ length: 30 }, (_, i) => `Room ${i + 10} is on floor ${Math.floor(i / 10) + 1}.`).join(" ");
const floor = { type: "object", properties: { floor: { type: "integer", minimum: 0, maximum: 9 } }, required: ["floor"], additionalProperties: false };
for (const room of [25, 31]) {
  const { text, finished } = await ask({
    conversation: {
      messages: [
        { role: "system", content: handbook, cache: { ttl: CacheTtl.CACHE_TTL_1H } },
        { role: "user", content: `On which floor is room ${room}?` },
      ],
    },
    constraint: { kind: { case: "jsonSchema", value: JSON.stringify(floor) } },
  });
  console.log(`floor ${JSON.parse(text).floor}: ${finished?.usage?.writtenHourTokens} tokens written, ${finished?.usage?.cachedTokens} found`);
}
