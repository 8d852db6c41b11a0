export type { Answer, Part, Text, Thinking, ToolCall } from "./answers.js";
export { messageOf } from "./answers.js";
export { Client, type CallOptions, type ClientOptions, type Question } from "./client.js";
export { BatonError } from "./errors.js";
