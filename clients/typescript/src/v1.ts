/** The messages of baton.v1. */
export * from "./gen/baton/v1/errors_pb.js";
export * from "./gen/baton/v1/generation_pb.js";
export * from "./gen/baton/v1/inference_pb.js";
