"""The same service over HTTP, with OpenAI's own package (pip install openai): an answer that streams, a loop of tools, an answer that obeys a schema."""
import json

import openai

client = openai.OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="any")
model = client.models.list().data[0].id

# An answer that streams.
for chunk in client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hello! My name is Ada."}], stream=True):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()

# Ask, run what the model calls, send back the results, and ask again until it calls nothing.
city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
tools = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.", "parameters": city}}]
talk = [{"role": "user", "content": "What is the weather in Oslo?"}]
while (answer := client.chat.completions.create(model=model, messages=talk, tools=tools).choices[0]).finish_reason == "tool_calls":
    talk.append(answer.message)
    for call in answer.message.tool_calls:
        print(f"get_weather({call.function.arguments})")
        talk.append({"role": "tool", "tool_call_id": call.id, "content": f"sunny in {json.loads(call.function.arguments)['city']}"})
print(answer.message.content)

# An answer that obeys a schema. The mark keeps the document's KV in the cache, so each question after the first computes itself alone.
handbook = " ".join(f"Room {room} is on floor {room // 10}." for room in range(10, 40))
marked = [{"type": "text", "text": handbook, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
floor = {"type": "object", "properties": {"floor": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["floor"], "additionalProperties": False}
for room in (25, 31):
    told = client.chat.completions.create(
        model=model, response_format={"type": "json_schema", "json_schema": {"name": "floor", "schema": floor, "strict": True}},
        messages=[{"role": "system", "content": marked}, {"role": "user", "content": f"On which floor is room {room}?"}])
    print(told.choices[0].message.content, told.usage.prompt_tokens_details.cached_tokens, "tokens found")
