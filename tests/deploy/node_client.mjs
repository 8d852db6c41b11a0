// OpenAI's own package for Node.js against a service whose address is the argument: http_clients_test.py runs it and reads what it prints, JSON.
import { createRequire } from "node:module";
const OpenAI = createRequire(process.argv[3] + "/")("openai").default;

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "any", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const ask = { model, temperature: 0, messages: [{ role: "user", content: "Hello! My name is Ada." }] };
const told = {};

told.whole = (await client.chat.completions.create(ask)).choices[0].message.content;
told.streamed = "";
for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) told.streamed += chunk.choices[0]?.delta?.content ?? "";

// The package's own loop: it runs the function and asks again.
const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const weather = { name: "get_weather", description: "Get the weather of a city.", parameters: city, parse: JSON.parse, function: ({ city }) => ((told.city = city), "sunny") };
told.tools = await client.chat.completions
  .runTools({ model, temperature: 0, messages: [{ role: "user", content: "What is the weather in Oslo?" }], tools: [{ type: "function", function: weather }] })
  .finalContent();

told.response = (await client.responses.create({ model, temperature: 0, input: "Hello! My name is Ada." })).output_text;
const stream = client.responses.stream({ model, temperature: 0, input: "Hello! My name is Ada." });
told.events = [];
stream.on("event", (event) => told.events.push(event.type));
told.responseStreamed = (await stream.finalResponse()).output_text;

told.error = await client.chat.completions.create({ ...ask, top_p: 7 }).catch((error) => ({ name: error.constructor.name, status: error.status, param: error.param }));
console.log(JSON.stringify(told));
