import grpc
from baton.v1 import inference_pb2 as pb, inference_pb2_grpc as rpc
stub = rpc.InferenceStub(grpc.insecure_channel("127.0.0.1:8470"))
talk = pb.Conversation(messages=[pb.Message(role="user", content="Hello! My name is Ada.")])
for event in stub.Chat(pb.ChatRequest(conversation=talk)):
    print(event.delta.text, end="", flush=True)
print()
