// The same as client.ts over HTTP, with OpenAI's own package: npm install openai.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2] ?? "http://127.0.0.1:8000/v1", apiKey: "any" });
const model = (await client.models.list()).data[0]!.id;

// An answer that streams.
const hello = { role: "user" as const, content: "Hello! My name is Ada." };
for await (const chunk of await client.chat.completions.create({ model, messages: [hello], stream: true })) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}
console.log();

// The package's own loop of tools: it runs the function that the model calls, and asks again.
const loop = client.chat.completions.runTools({
  model,
  messages: [{ role: "user", content: "What is the weather in Oslo?" }],
  tools: [
    {
      type: "function",
      function: {
        name: "get_weather",
        description: "Get the weather of a city.",
        parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
        parse: JSON.parse as (text: string) => { city: string },
        function: ({ city }: { city: string }) => {
          console.log(`get_weather(${city})`);
          return `sunny in ${city}`;
        },
      },
    },
  ],
});
console.log(await loop.finalContent());

// The mark keeps the document's KV in the cache, so each question after the first computes itself alone.
const handbook = Array.from({ length: 30 }, (_, i) => `Room ${i + 10} is on floor ${Math.floor(i / 10) + 1}.`).join(" ");
const part = { type: "text" as const, text: handbook, cache_control: { type: "ephemeral", ttl: "1h" } };
const floor = { type: "object", properties: { floor: { type: "integer", minimum: 0, maximum: 9 } }, required: ["floor"], additionalProperties: false };
for (const room of [25, 31]) {
  const answer = await client.chat.completions.create({
    model,
    messages: [
      { role: "system", content: [part] },
      { role: "user", content: `On which floor is room ${room}?` },
    ],
    response_format: { type: "json_schema", json_schema: { name: "place", schema: floor, strict: true } },
  });
  const usage = answer.usage?.prompt_tokens_details;
  console.log(`floor ${JSON.parse(answer.choices[0]!.message.content!).floor}: ${usage?.cached_tokens} tokens found`);
}
