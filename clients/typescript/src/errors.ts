/** The error of a call, and the tries that follow it. */
import { setTimeout as sleep } from "node:timers/promises";
import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack, durationMs } from "@bufbuild/protobuf/wkt";
import { type ServiceError, status } from "@grpc/grpc-js";
import { BadRequestSchema, ErrorInfoSchema, RequestInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "./gen/google/rpc/status_pb.js";

const FIRST_WAIT = 200; // ms, where the server names none

/** A call that failed. */
export class BatonError extends Error {
  override name = "BatonError";
  /** For programs: a name of baton.v1.Reason without its prefix, or "". */
  reason = "";
  /** More about the reason. */
  metadata: Record<string, string> = {};
  /** Path of the field that is wrong, or "". */
  field = "";
  /** Milliseconds; undefined where the server names none. */
  retryAfter?: number;
  /** The server says that the same request never passes. */
  final = false;
  /** Names the request in the logs of the service, or "". */
  requestId = "";

  /** details: for people; `message` has the code before it. */
  constructor(
    readonly code: status,
    readonly details: string,
    cause?: unknown,
  ) {
    super(`${status[code]}: ${details}`, { cause });
  }

  static of(failed: ServiceError): BatonError {
    const error = new BatonError(failed.code, failed.details, failed);
    const [id, pushback, details] = ["baton-request-id", "grpc-retry-pushback-ms", "grpc-status-details-bin"].map((key) => failed.metadata?.get(key)[0]);
    if (id !== undefined) error.requestId = String(id);
    if (pushback !== undefined) {
      if (/^\d+$/.test(String(pushback))) error.retryAfter = Number(pushback);
      else error.final = true;
    }
    for (const any of Buffer.isBuffer(details) ? fromBinary(StatusSchema, details).details : []) {
      const info = anyUnpack(any, ErrorInfoSchema);
      if (info) ({ reason: error.reason, metadata: error.metadata } = info);
      error.field ||= anyUnpack(any, BadRequestSchema)?.fieldViolations[0]?.field ?? "";
      error.requestId = anyUnpack(any, RequestInfoSchema)?.requestId ?? error.requestId;
      const retry = anyUnpack(any, RetryInfoSchema);
      if (retry?.retryDelay) error.retryAfter = durationMs(retry.retryDelay);
    }
    return error;
  }
}

/** The tries of one request, within its time. */
export class Tries {
  #count = 0;
  readonly deadline: number;

  constructor(
    readonly most: number,
    timeout = Infinity,
    readonly signal?: AbortSignal,
  ) {
    this.deadline = Date.now() + timeout;
  }

  begin() {
    this.#count++;
  }

  /** Something came: the tries are counted from here. */
  goWell() {
    this.#count = 1;
  }

  /** Waits before the next try. Throws the error if there is none. */
  async wait(error: BatonError) {
    const again = error.code === status.RESOURCE_EXHAUSTED || error.code === status.UNAVAILABLE;
    const wait = error.retryAfter ?? FIRST_WAIT * 2 ** (this.#count - 1);
    if (!again || error.final || this.#count >= this.most || Date.now() + wait >= this.deadline) throw error;
    await sleep(wait, undefined, { signal: this.signal }).catch(() => Promise.reject(error));
  }
}
