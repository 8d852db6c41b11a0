/** Typed parts of what the model wrote, and the stream of an answer folded into them. */
import { create } from "@bufbuild/protobuf";
import { type Finished, FinishReason, type PartEvent, type PartStart, PartStart_Kind } from "./gen/baton/v1/generation_pb.js";
import {
  type ChatResponse,
  type ChatUnaryResponse,
  type Message,
  MessageSchema,
  type ResumeResponse,
  type Started,
} from "./gen/baton/v1/inference_pb.js";

/** A piece of the answer itself. */
export type Text = { kind: "text"; text: string };
/** A piece of what the model wrote for itself before. */
export type Thinking = { kind: "thinking"; text: string };
/** A call of a tool. Don't run it unless it is complete: the answer ended inside it. */
export type ToolCall = { kind: "call"; id: string; name: string; argumentsJson: string; complete: boolean };
/** One whole answer. finished.usage says what it took. */
export type Answer = {
  kind: "answer";
  text: string;
  thinking: string;
  calls: ToolCall[];
  /** STOP_TOKEN, LENGTH, TOOL_CALLS and so on. */
  reason: string;
  started?: Started;
  finished?: Finished;
};
/** A stream has the answer last. */
export type Part = Text | Thinking | ToolCall | Answer;

const reasonOf = (finished?: Finished) => FinishReason[finished?.reason ?? 0] ?? "UNSPECIFIED";

/** The answer as the next message of its conversation. */
export function messageOf({ text, thinking, calls }: Answer): Message {
  const toolCalls = calls.filter((call) => call.complete).map(({ id, name, argumentsJson }) => ({ id, name, argumentsJson }));
  return create(MessageSchema, { role: "assistant", content: text, reasoningContent: thinking, toolCalls });
}

/** The first choice. */
export function answerOf({ started, choices }: ChatUnaryResponse): Answer {
  const { text, parts, finished } = choices[0]!;
  const thinking = parts.map(({ part }) => (part.case === "thinking" ? part.value : "")).join("");
  const calls = parts.flatMap(({ part, complete }): ToolCall[] => {
    if (part.case !== "toolCall") return [];
    const { id, name, argumentsJson } = part.value;
    return [{ kind: "call", id, name, argumentsJson, complete }];
  });
  return { kind: "answer", text, thinking, calls, reason: reasonOf(finished), started, finished };
}

/** The messages of one answer, in their order, from one stream or from several that go on with it. `answer` is there after the last one. */
export class Fold {
  started?: Started;
  tokens = 0;
  answer?: Answer;
  #text = "";
  #thinking = "";
  #calls: ToolCall[] = [];
  #start?: PartStart;
  #arguments = "";

  /** The parts that the message completes. Events that are not known are skipped. */
  *push({ event }: ChatResponse | ResumeResponse): Generator<Part> {
    switch (event.case) {
      case "started":
        this.started = event.value;
        break;
      case "finished":
        this.answer = {
          kind: "answer",
          text: this.#text,
          thinking: this.#thinking,
          calls: this.#calls,
          reason: reasonOf(event.value),
          started: this.started,
          finished: event.value,
        };
        break;
      case "delta":
        this.tokens += event.value.tokens;
        if (event.value.parts.length > 0 || this.started?.outputFormat) {
          for (const one of event.value.parts) yield* this.#pushPart(one);
        } else if (event.value.text) {
          this.#text += event.value.text;
          yield { kind: "text", text: event.value.text };
        }
    }
  }

  *#pushPart({ event }: PartEvent): Generator<Part> {
    switch (event.case) {
      case "start":
        this.#start = event.value;
        this.#arguments = "";
        break;
      case "text":
        if (!event.value) break;
        if (this.#start?.kind === PartStart_Kind.THINKING) {
          this.#thinking += event.value;
          yield { kind: "thinking", text: event.value };
        } else {
          this.#text += event.value;
          yield { kind: "text", text: event.value };
        }
        break;
      case "argumentsJson":
        this.#arguments += event.value;
        break;
      case "end":
        if (this.#start?.kind === PartStart_Kind.TOOL_CALL) {
          const { id, name } = this.#start;
          const call: ToolCall = { kind: "call", id, name, argumentsJson: this.#arguments, complete: event.value.complete };
          this.#calls.push(call);
          yield call;
        }
    }
  }
}
