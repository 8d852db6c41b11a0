"""A conversation in which the model calls a tool: ask, run what it calls, send back the results, ask again."""
import json

import grpc
from baton.v1 import generation_pb2 as generation, inference_pb2 as pb, inference_pb2_grpc as rpc

TOOLS = {"get_weather": lambda city: f"sunny in {city}"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

stub = rpc.InferenceStub(grpc.insecure_channel("127.0.0.1:8470"))
talk = pb.Conversation(
    messages=[pb.Message(role="user", content="What is the weather in Oslo?")],
    tools=[pb.Tool(name="get_weather", description="Get the weather of a city.", parameters_json=json.dumps(SCHEMA))])
while True:
    request = pb.ChatRequest(conversation=talk, sampling=generation.SamplingParams(temperature=0))
    choice = stub.ChatUnary(pb.ChatUnaryRequest(chat=request)).choices[0]
    calls = [part.tool_call for part in choice.parts if part.HasField("tool_call") and part.complete]
    thinking = "".join(part.thinking for part in choice.parts)
    talk.messages.add(role="assistant", content=choice.text, reasoning_content=thinking, tool_calls=calls)
    if choice.finished.reason != generation.FINISH_REASON_TOOL_CALLS:
        break
    for call in calls:
        result = TOOLS[call.name](**json.loads(call.arguments_json))
        print(f"{call.name}({call.arguments_json}) -> {result}")
        talk.messages.add(role="tool", tool_call_id=call.id, content=result)
print(choice.text)
