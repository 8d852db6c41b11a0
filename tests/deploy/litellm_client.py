"""This asks a service, whose address is the argument, by LiteLLM as a library: more_clients_test.py runs it, by a Python that has the package, and reads what it prints, JSON."""
import json
import sys

import litellm

litellm.suppress_debug_info = True
URL = sys.argv[1]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.", "parameters": CITY}}]
LUCKY = {"type": "object", "properties": {"lucky_number": {"enum": [3, 58, 417]}}, "required": ["lucky_number"], "additionalProperties": False}
HELLO = [{"role": "user", "content": "Hello! My name is Ada."}]
SUM = [{"role": "user", "content": "What is 27 + 35?"}]
OSLO = [{"role": "user", "content": "What is the weather in Oslo?"}]
NUMBER = [{"role": "user", "content": "Hello! My lucky number is 417."}, {"role": "assistant", "content": "Thank you, I will remember that."},
          {"role": "user", "content": "What is my lucky number?"}]
BEGUN = [*HELLO, {"role": "assistant", "content": "Hello, Ada! How"}]
NAME = [*HELLO, {"role": "system", "content": "It is late."}, {"role": "assistant", "content": "Hello, Ada!"}, {"role": "user", "content": "What is my name?"}]
LONG_TALK = [{"role": "user", "content": "word " * 1200}, {"role": "assistant", "content": "Yes."}] * 2 + HELLO


def error(call):
    try:
        call()
    except Exception as raised:
        return type(raised).__name__
    return "none"


def try_prefix(prefix, base, overflow, more_thinking, more_begun):
    def ask(messages, **more):
        return litellm.completion(model=f"{prefix}/baton-tiny", api_base=base, api_key="any", messages=messages, num_retries=0, **{"temperature": 0, "max_tokens": 60, **more})

    def text(messages, **more):
        return ask(messages, **more).choices[0].message.content

    def streamed(messages, **more):
        return [chunk.choices[0].delta for chunk in ask(messages, stream=True, **more) if chunk.choices]

    call = ask(OSLO, tools=TOOLS).choices[0].message
    (one,) = call.tool_calls
    thought = ask(SUM, max_tokens=1100, **more_thinking).choices[0].message
    return {
        "whole": text(HELLO),
        "streamed": "".join(delta.content or "" for delta in streamed(HELLO)),
        "call": [one.function.name, json.loads(one.function.arguments)],
        "call_streamed": json.loads("".join(piece.function.arguments or "" for delta in streamed(OSLO, tools=TOOLS) for piece in delta.tool_calls or [])),
        "result": text([*OSLO, call, {"role": "tool", "tool_call_id": one.id, "content": "sunny"}], tools=TOOLS),
        "no_call": text(OSLO, tools=TOOLS, tool_choice="none"),
        "schema": json.loads(text(NUMBER, response_format={"type": "json_schema", "json_schema": {"name": "number", "schema": LUCKY, "strict": True}})),
        "thinking": thought.reasoning_content,
        "thought": thought.content,
        "begun": text(BEGUN, **more_begun),
        "name": text(NAME),
        "too_long": [error(lambda: ask(LONG_TALK)), error(lambda: streamed(LONG_TALK))],
        "cut": text(LONG_TALK, **overflow),
        "no_model": error(lambda: litellm.completion(model=f"{prefix}/none", api_base=base, api_key="any", messages=HELLO, max_tokens=5)),
    }


def try_prompts(prefix, prompts):
    told = litellm.text_completion(model=f"{prefix}/baton-tiny", api_base=f"{URL}/v1", api_key="any", prompt=prompts, max_tokens=8, temperature=0)
    return [choice.text for choice in told.choices]


# The package sends its other parameters to these servers as they are, in a body of its own. Of a model that it does not know, it asks before it sends `thinking` to Anthropic.
goes_on = {"extra_body": {"continue_final_message": True, "add_generation_prompt": False}}
cut = {"extra_body": {"overflow": "drop_oldest"}}
effort = {"reasoning_effort": "low"}
told = {prefix: try_prefix(prefix, f"{URL}/v1", cut, effort, goes_on) for prefix in ("openai", "hosted_vllm")}
budget = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "allowed_openai_params": ["thinking"]}
told["anthropic"] = try_prefix("anthropic", URL, {"overflow": "drop_oldest"}, budget, {})

prompts = ["Once upon a time", "The weather in Oslo is"]
told["prompts"] = {prefix: try_prompts(prefix, prompts) for prefix in ("text-completion-openai", "hosted_vllm")}
told["alone"] = [try_prompts("hosted_vllm", prompt)[0] for prompt in prompts]
told["response"] = litellm.responses(model="openai/baton-tiny", api_base=f"{URL}/v1", api_key="any", input=HELLO[0]["content"], temperature=0).output[0].content[0].text
print(json.dumps(told))
