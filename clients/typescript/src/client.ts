/** The client: gRPC by @grpc/grpc-js, with messages of @bufbuild/protobuf. */
import { randomBytes, randomUUID } from "node:crypto";
import { clone, create, type DescMessage, type DescMethod, fromBinary, type MessageInitShape, type MessageShape, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { type Answer, answerOf, Fold, type Part } from "./answers.js";
import { BatonError, Tries } from "./errors.js";
import {
  type ChatRequest,
  ChatRequestSchema,
  ChatUnaryRequestSchema,
  Inference,
  ListModelsRequestSchema,
  type ModelInfo,
  RequestOptionsSchema,
  ResumeRequestSchema,
} from "./gen/baton/v1/inference_pb.js";
import { SamplingParamsSchema } from "./gen/baton/v1/generation_pb.js";

const MAX_ANSWER_BYTES = 16 << 20;
const SEED_BITS = 52n; // a double holds it

export type ClientOptions = {
  /** The tenant's API key. */
  key?: string;
  /** True: TLS with the roots of Node.js; a PEM: with these. Absent: plain text. */
  tls?: true | string | Buffer;
  /** How often a request is sent at most, or is gone on with, before something comes. 4 if absent. */
  attempts?: number;
  /** Options for gRPC's channel, such as grpc.service_config. */
  channel?: grpc.ClientOptions;
};
/** timeout: milliseconds for the whole of it, retries too. */
export type CallOptions = { timeout?: number; signal?: AbortSignal };
/** A text of the user's, or the fields of a ChatRequest. */
export type Question = string | MessageInitShape<typeof ChatRequestSchema>;

/** A copy with an idempotency key and a seed, unless it has them: what is sent again takes the answer that was begun, on any router. */
function named(question: Question): ChatRequest {
  const fields = typeof question === "string" ? { conversation: { messages: [{ role: "user", content: question }] } } : question;
  const made = clone(ChatRequestSchema, create(ChatRequestSchema, fields));
  made.options ??= create(RequestOptionsSchema);
  made.options.idempotencyKey ||= randomUUID();
  made.sampling ??= create(SamplingParamsSchema);
  made.sampling.seed ??= randomBytes(8).readBigUInt64LE() >> (64n - SEED_BITS);
  return made;
}

/** Asks for what follows the tokens that came. The build pins the answer to the bits that it was begun with. */
function resumed(request: ChatRequest, { started, tokens }: Fold) {
  const chat = clone(ChatRequestSchema, request);
  if (started!.build) chat.options!.build = started!.build;
  return create(ResumeRequestSchema, { requestId: started!.requestId, afterTokens: [tokens], request: { case: "chat", value: chat } });
}

export class Client {
  readonly #grpc: grpc.Client;
  readonly #key: string;
  readonly #attempts: number;

  /** address: a gRPC target, such as "host:8470" or "dns:///name:8470". It connects at the first call. */
  constructor(address: string, { key = "", tls, attempts = 4, channel }: ClientOptions = {}) {
    const credentials = tls ? grpc.credentials.createSsl(tls === true ? null : Buffer.from(tls)) : grpc.credentials.createInsecure();
    this.#grpc = new grpc.Client(address, credentials, { "grpc.max_receive_message_length": MAX_ANSWER_BYTES + (1 << 20), ...channel });
    this.#key = key;
    this.#attempts = attempts;
  }

  close() {
    this.#grpc.close();
  }

  /** Any unary method of the service, once: client.call(Inference.method.countTokens, {...}). */
  call<I extends DescMessage, O extends DescMessage>(
    method: DescMethod & { input: I; output: O },
    request: MessageInitShape<I>,
    { timeout = Infinity, signal }: CallOptions = {},
  ): Promise<MessageShape<O>> {
    return new Promise((resolve, reject) => {
      const call = this.#grpc.makeUnaryRequest(
        ...this.#codec(method),
        create(method.input, request),
        this.#metadata(),
        { deadline: Date.now() + timeout },
        (error, answer) => {
          signal?.removeEventListener("abort", cancel);
          error ? reject(BatonError.of(error)) : resolve(answer!);
        },
      );
      const cancel = () => call.cancel();
      signal?.addEventListener("abort", cancel);
      if (signal?.aborted) call.cancel();
    });
  }

  async models(options: CallOptions = { timeout: 10_000 }): Promise<ModelInfo[]> {
    return (await this.call(Inference.method.listModels, create(ListModelsRequestSchema), options)).models;
  }

  /** One whole answer. */
  async complete(question: Question, { timeout, signal }: CallOptions = {}): Promise<Answer> {
    const whole = create(ChatUnaryRequestSchema, { chat: named(question), maxAnswerBytes: MAX_ANSWER_BYTES });
    for (const tries = new Tries(this.#attempts, timeout, signal); ; ) {
      tries.begin();
      try {
        return answerOf(await this.call(Inference.method.chatUnary, whole, { timeout: tries.deadline - Date.now(), signal }));
      } catch (error) {
        await tries.wait(error as BatonError);
      }
    }
  }

  /** Parts as they come, and last the whole answer. After a cut it goes on behind the last token that came, on whichever router. Leaving the loop
   * cancels the request. */
  async *stream(question: Question, { timeout, signal }: CallOptions = {}): AsyncGenerator<Part, void> {
    const request = named(question);
    const fold = new Fold();
    for (const tries = new Tries(this.#attempts, timeout, signal); ; ) {
      tries.begin();
      const call = fold.started
        ? this.#open(Inference.method.resume, resumed(request, fold), tries)
        : this.#open(Inference.method.chat, request, tries);
      const cancel = () => call.cancel();
      signal?.addEventListener("abort", cancel);
      if (signal?.aborted) cancel();
      try {
        for await (const message of call) {
          tries.goWell();
          yield* fold.push(message);
        }
        if (!fold.answer) throw new BatonError(grpc.status.UNAVAILABLE, "the stream ended before its answer");
        yield fold.answer;
        return;
      } catch (error) {
        if (!(error instanceof Error && "code" in error && "details" in error)) throw error;
        await tries.wait(error instanceof BatonError ? error : BatonError.of(error as grpc.ServiceError));
      } finally {
        signal?.removeEventListener("abort", cancel);
        cancel();
      }
    }
  }

  #open<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }, request: MessageShape<I>, { deadline }: Tries) {
    const call = this.#grpc.makeServerStreamRequest(...this.#codec(method), request, this.#metadata(), { deadline });
    call.on("error", () => {}); // after the loop was left, nobody else listens
    return call;
  }

  #codec<I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }) {
    const serialize = (message: MessageShape<I>) => Buffer.from(toBinary(method.input, message));
    const deserialize = (bytes: Buffer): MessageShape<O> => fromBinary(method.output, bytes);
    return [`/${method.parent.typeName}/${method.name}`, serialize, deserialize] as const;
  }

  #metadata() {
    const metadata = new grpc.Metadata();
    if (this.#key) metadata.set("authorization", `Bearer ${this.#key}`);
    return metadata;
  }
}
