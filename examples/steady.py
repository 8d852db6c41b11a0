"""An answer that goes on whatever happens to the worker that writes it: it is lost or leaves, another one takes over, and the stream has neither a gap nor a word twice.
Nothing is asked for it; the end says how often the answer moved."""
import grpc
from baton.v1 import generation_pb2 as generation, inference_pb2 as pb, inference_pb2_grpc as rpc

stub = rpc.InferenceStub(grpc.insecure_channel("127.0.0.1:8470"))
request = pb.GenerateRequest(text="Once upon a time", sampling=generation.SamplingParams(seed=7),
                             stop=generation.StopConditions(max_tokens=1200, ignore_eos=True))
for event in stub.Generate(request):
    print(event.delta.text, end="", flush=True)
    if event.HasField("finished"):
        end = event.finished
print(f"\n{end.usage.completion_tokens} tokens; moved {end.relay.migrations} times; ended on {end.relay.decode_worker}")
