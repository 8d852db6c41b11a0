// This asks a service, whose address is the first argument, by each provider of the AI SDK: more_clients_test.py runs it and reads what it prints, JSON. With a third
// argument, which is a key, it uses up that key's share of requests, and prints how the package has tried again.
import { createRequire } from "node:module";
const require = createRequire(process.argv[3] + "/");
const { APICallError, generateObject, generateText, jsonSchema, Output, stepCountIs, streamText, tool } = require("ai");
const { createAnthropic } = require("@ai-sdk/anthropic");
const { createOpenAI } = require("@ai-sdk/openai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
globalThis.AI_SDK_LOG_WARNINGS = false;

const baseURL = `${process.argv[2]}/v1`;
const apiKey = process.argv[4] ?? "any";
const name = "baton-tiny";
const hello = { role: "user", content: "Hello! My name is Ada." };

async function tryAgain() {
  const seen = [];
  const watched = async (...request) => {
    const response = await fetch(...request);
    seen.push([response.status, Number(response.headers.get("retry-after-ms"))]);
    return response;
  };
  const model = createOpenAICompatible({ name: "baton", baseURL, apiKey, fetch: watched })(name);
  // On a slow machine some of the share may have come back before the next call, so: again.
  for (let attempt = 0; attempt < 5 && seen.length < 2; attempt++) {
    while ((await fetch(`${baseURL}/models`, { headers: { authorization: `Bearer ${apiKey}` } })).status !== 429);
    seen.length = 0;
    await generateText({ model, messages: [hello], maxOutputTokens: 5 });
  }
  return seen;
}

const failure = (promise) =>
  promise.then(
    () => "none",
    (error) => ({ call: APICallError.isInstance(error), status: error.statusCode, retry: error.isRetryable, message: error.message }),
  );

const schemaOf = (properties) => jsonSchema({ type: "object", properties, required: Object.keys(properties), additionalProperties: false });
const schema = schemaOf({ lucky_number: { enum: [3, 58, 417] } });
const number = [
  { role: "user", content: "Hello! My lucky number is 417." },
  { role: "assistant", content: "Thank you, I will remember that." },
  { role: "user", content: "What is my lucky number?" },
];

async function tryModel(model, thinking, providerOptions) {
  const told = {};
  const base = { model, temperature: 0, maxRetries: 0, maxOutputTokens: 60, allowSystemInMessages: true, providerOptions };
  const execute = ({ city }) => ((told.city = city), "sunny");
  const tools = { get_weather: tool({ description: "Get the weather of a city.", inputSchema: schemaOf({ city: { type: "string" } }), execute }) };

  const whole = await generateText({ ...base, messages: [hello] });
  told.whole = whole.text;
  told.tokens = [whole.usage.inputTokens, whole.usage.outputTokens, whole.usage.totalTokens];
  const weather = streamText({ ...base, prompt: "What is the weather in Oslo?", tools, stopWhen: stepCountIs(4) });
  told.weather = "";
  for await (const text of weather.textStream) told.weather += text;
  told.steps = (await weather.steps).map((step) => step.finishReason);
  told.object = (await generateObject({ ...base, messages: number, schema })).object;
  told.output = (await generateText({ ...base, messages: number, output: Output.object({ schema }) })).output;
  told.noCall = (await generateText({ ...base, prompt: "What is the weather in Oslo?", tools, toolChoice: "none" })).text;

  // An answer is sent back as the package keeps it.
  const late = [{ role: "system", content: "It is late." }];
  told.name = (await generateText({ ...base, messages: [hello, ...late, ...whole.response.messages, { role: "user", content: "What is my name?" }] })).text;
  const sum = { ...base, temperature: undefined, maxOutputTokens: 1100, prompt: "What is 27 + 35?", providerOptions: thinking };
  const thought = await generateText(sum);
  told.thinking = thought.reasoningText ?? "";
  told.thinkingTokens = thought.usage.outputTokenDetails.reasoningTokens;
  told.thinkingStreamed = (await streamText(sum).reasoningText) ?? "";
  const after = [{ role: "user", content: sum.prompt }, ...thought.response.messages, { role: "user", content: "Hello!" }];
  told.after = (await generateText({ ...base, messages: after })).text;
  told.long = await failure(generateText({ ...base, prompt: "word ".repeat(4000) }));
  const image = [{ type: "image", image: new Uint8Array([137, 80, 78, 71]), mediaType: "image/png" }];
  told.image = await failure(generateText({ ...base, messages: [{ role: "user", content: image }] }));
  return told;
}

async function tryAll() {
  const openai = createOpenAI({ baseURL, apiKey });
  const anthropic = createAnthropic({ baseURL, apiKey })(name);
  const effort = { reasoningEffort: "low", forceReasoning: true };
  const compatible = createOpenAICompatible({ name: "baton", baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true })(name);
  const told = {
    compatible: await tryModel(compatible, { baton: { reasoningEffort: "low" } }),
    chat: await tryModel(openai.chat(name), { openai: effort }),
    // Without this option it sends names of what it takes to be stored.
    responses: await tryModel(openai(name), { openai: { ...effort, store: false, reasoningSummary: "auto" } }, { openai: { store: false } }),
    anthropic: await tryModel(anthropic, { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } }),
  };
  const first = await generateText({ model: openai(name), messages: [hello] });
  told.stored = await failure(generateText({ model: openai(name), messages: [hello, ...first.response.messages, hello] }));
  const begun = [hello, { role: "assistant", content: "Hello, Ada! How" }];
  told.begun = (await generateText({ model: anthropic, temperature: 0, maxOutputTokens: 60, messages: begun })).text;
  return told;
}

console.log(JSON.stringify(await (process.argv[4] ? tryAgain() : tryAll())));
