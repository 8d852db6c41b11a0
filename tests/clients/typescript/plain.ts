/** Makes calls by plain grpc-js, as lines of JSON on standard input say, and tells in lines of JSON how they go: "headers", "first" (message) and "end". */
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { type DescMethod, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { Inference } from "../v1.js";

const tell = (event: object) => console.log(JSON.stringify(event));
const text = (value?: grpc.MetadataValue) => (Buffer.isBuffer(value) ? value.toString("base64") : value);
const plain = (metadata?: grpc.Metadata) => Object.fromEntries(Object.keys(metadata?.getMap() ?? {}).map((key) => [key, text(metadata!.get(key)[0])]));
const methods: readonly DescMethod[] = Inference.methods;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const settings = JSON.parse((await lines.next()).value);
const read = (path?: string) => (path ? readFileSync(path) : null);
const credentials = settings.ca ? grpc.credentials.createSsl(read(settings.ca), read(settings.key), read(settings.cert)) : grpc.credentials.createInsecure();
const options: grpc.ClientOptions = {};
if (settings.max_receive) options["grpc.max_receive_message_length"] = settings.max_receive;
if (settings.service_config) options["grpc.service_config"] = settings.service_config;
if (settings.keepalive_seconds) Object.assign(options, { "grpc.keepalive_time_ms": 1000 * settings.keepalive_seconds, "grpc.keepalive_permit_without_calls": 1 });
const gzip = { ...options, "grpc.default_compression_algorithm": 2, "grpc.use_local_subchannel_pool": 1 };
const clients = [new grpc.Client(settings.address, credentials, options), new grpc.Client(settings.address, credentials, gzip)];
const calls = new Map<number, grpc.ClientReadableStream<Message>>();

for await (const line of lines) {
  const asked = JSON.parse(line);
  const call = calls.get(asked.id);
  if (asked.op === "cancel") call!.cancel();
  else if (asked.op === "read") call!.resume();
  else if (asked.op === "close") for (const client of clients) client.close();
  else if (asked.op === "call") start(asked);
}

function start(asked: any) {
  const { id, deadline_ns } = asked;
  const method = methods.find((one) => `${one.parent.typeName}/${one.name}` === asked.method) ?? Inference.method.listModels;
  const metadata = new grpc.Metadata({ waitForReady: Boolean(asked.wait) });
  for (const [key, value] of asked.metadata ?? []) metadata.add(key, value);
  const request = fromBinary(method.input, Buffer.from(asked.request ?? "", "base64"));
  const call = clients[asked.gzip ? 1 : 0]!.makeServerStreamRequest(
    `/${asked.method}`,
    (message: Message) => Buffer.from(toBinary(method.input, message)),
    (bytes: Buffer) => fromBinary(method.output, bytes),
    request,
    metadata,
    { deadline: deadline_ns ? Date.now() + deadline_ns / 1e6 : Infinity },
  );
  calls.set(id, call);
  let count = 0;
  let last = "";
  let headers = {};
  let failed: grpc.ServiceError | undefined;
  const kept: string[] = [];
  call.on("metadata", (metadata) => tell({ id, event: "headers", headers: (headers = plain(metadata)) }));
  call.on("error", (error) => (failed = error as grpc.ServiceError));
  call.on("data", (message: Message) => {
    last = Buffer.from(toBinary(method.output, message)).toString("base64");
    if (asked.keep) kept.push(last);
    if (++count === 1) tell({ id, event: "first" });
    if (asked.stall && count === 1) call.pause();
    if (asked.pause) {
      call.pause();
      setImmediate(() => call.resume());
    }
  });
  call.on("status", ({ code, details, metadata }) => tell({ id, event: "end", code, message: details, headers, trailers: plain(metadata), count, last, kept }));
}
