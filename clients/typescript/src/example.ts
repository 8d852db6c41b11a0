/** Streams an answer: npm run example [ADDRESS]. BATON_API_KEY is the key, if one is needed. */
import { BatonError, Client } from "./index.js";

const client = new Client(process.argv[2] ?? "127.0.0.1:8470", { key: process.env.BATON_API_KEY });
try {
  for await (const part of client.stream("Hello! My name is Ada.", { timeout: 120_000 })) {
    if (part.kind === "text") process.stdout.write(part.text);
    if (part.kind === "answer") console.log(`\n${part.reason}, ${part.finished?.usage?.completionTokens} tokens`);
  }
} catch (error) {
  console.error(error instanceof BatonError ? `${error.message} (${error.reason})` : error);
  process.exitCode = 1;
}
client.close();
