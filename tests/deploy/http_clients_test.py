#!/usr/bin/env python3
"""OpenAI's and Anthropic's own Python packages against a real service with its gateway (`baton serve --http`): what programs that speak to
those services do, by changing an address."""
import json
import tempfile
import unittest

import anthropic
import openai
import pydantic

from relay import Relay

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
HELLO = [{"role": "user", "content": "Hello! My name is Ada."}]


class Number(pydantic.BaseModel):
    lucky_number: int = pydantic.Field(ge=0, le=999)


class HttpClients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.relay = Relay(folder.name, prefill=1, decode=1, more=["--http", "127.0.0.1:0"])
        cls.addClassCleanup(cls.relay.stop)
        cls.openai = openai.OpenAI(base_url=f"http://{cls.relay.http}/v1", api_key="any", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=f"http://{cls.relay.http}", api_key="any", max_retries=0)
        cls.model = cls.openai.models.list().data[0].id

    def chat(self, messages, **more):
        return self.openai.chat.completions.create(model=self.model, messages=messages, temperature=0, **more)

    def message(self, messages, **more):
        return self.anthropic.messages.create(model=self.model, messages=messages, max_tokens=60, extra_body={"temperature": 0}, **more)

    def test_openai_chat_whole_and_streamed_are_one_answer(self):
        whole = self.chat(HELLO)
        choice = whole.choices[0]
        self.assertIn("Ada", choice.message.content)
        self.assertEqual(choice.finish_reason, "stop")
        self.assertEqual(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens)
        text, usage, reasons = "", None, []
        for chunk in self.chat(HELLO, stream=True, stream_options={"include_usage": True}):
            if chunk.usage:
                self.assertEqual(chunk.choices, [])
                usage = chunk.usage
            for piece in chunk.choices:
                text += piece.delta.content or ""
                reasons += [piece.finish_reason] if piece.finish_reason else []
        self.assertEqual(text, choice.message.content)
        self.assertEqual(reasons, ["stop"])
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_openai_tool_loop(self):
        tools = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.", "parameters": WEATHER}}]
        talk = [{"role": "user", "content": "What is the weather in Oslo?"}]
        first = self.chat(talk, tools=tools)
        self.assertEqual(first.choices[0].finish_reason, "tool_calls")
        (call,) = first.choices[0].message.tool_calls
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Oslo"}))
        streamed = {"name": "", "arguments": ""}
        for chunk in self.chat(talk, tools=tools, stream=True):
            for piece in (chunk.choices[0].delta.tool_calls or []):
                streamed["name"] += piece.function.name or ""
                streamed["arguments"] += piece.function.arguments or ""
        self.assertEqual(streamed, {"name": call.function.name, "arguments": call.function.arguments})
        talk += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        self.assertIn("sunny", self.chat(talk, tools=tools).choices[0].message.content)
        forced = self.chat(HELLO, tools=tools, tool_choice={"type": "function", "function": {"name": "get_weather"}}, parallel_tool_calls=False)
        self.assertEqual(forced.choices[0].message.tool_calls[0].function.name, "get_weather")

    def test_openai_structured_output(self):
        parsed = self.openai.chat.completions.parse(
            model=self.model, temperature=0, response_format=Number,
            messages=[{"role": "user", "content": "Hello! My lucky number is 417."}, {"role": "assistant", "content": "Thank you, I will remember that."},
                      {"role": "user", "content": "What is my lucky number?"}])
        self.assertEqual(parsed.choices[0].message.parsed.lucky_number, 417)

    def test_openai_choices_logprobs_and_thinking(self):
        answer = self.chat(HELLO, n=2, seed=3, logprobs=True, top_logprobs=2, max_tokens=5)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1])
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(len(answer.choices[0].logprobs.content), 5)
        self.assertEqual(len(answer.choices[0].logprobs.content[0].top_logprobs), 2)
        thought = self.chat([{"role": "user", "content": "What is 27 + 35?"}], extra_body={"chat_template_kwargs": {"enable_thinking": True}})
        self.assertIn("62", thought.choices[0].message.content)
        self.assertTrue(thought.choices[0].message.reasoning_content)
        self.assertGreater(thought.usage.completion_tokens_details.reasoning_tokens, 0)

    def test_openai_completions(self):
        whole = self.openai.completions.create(model=self.model, prompt="Once upon a time", temperature=0, max_tokens=8)
        streamed = "".join(chunk.choices[0].text for chunk in
                           self.openai.completions.create(model=self.model, prompt="Once upon a time", temperature=0, max_tokens=8, stream=True) if chunk.choices)
        self.assertEqual(streamed, whole.choices[0].text)
        self.assertEqual(whole.usage.completion_tokens, 8)

    def test_openai_errors(self):
        with self.assertRaises(openai.NotFoundError):
            self.openai.chat.completions.create(model="no such model", messages=HELLO)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.chat(HELLO, top_p=7)
        self.assertEqual(refused.exception.param, "sampling.top_p")
        with self.assertRaises(openai.BadRequestError) as long:
            self.chat([{"role": "user", "content": "word " * 4000}])
        self.assertEqual(long.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError):
            list(self.chat([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}], stream=True))

    def test_anthropic_whole_and_streamed_are_one_answer(self):
        whole = self.message(HELLO, system="You are a helpful assistant.")
        self.assertIn("Ada", whole.content[0].text)
        self.assertEqual((whole.stop_reason, whole.stop_sequence), ("end_turn", None))
        with self.anthropic.messages.stream(model=self.model, messages=HELLO, system="You are a helpful assistant.", max_tokens=60,
                                            extra_body={"temperature": 0}) as stream:
            self.assertEqual("".join(stream.text_stream), whole.content[0].text)
            final = stream.get_final_message()
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        # What is found in the cache the second time is told apart, and all of it adds up.
        counted = self.anthropic.messages.count_tokens(model=self.model, messages=HELLO, system="You are a helpful assistant.")
        usage = final.usage
        self.assertEqual(usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0), counted.input_tokens)

    def test_anthropic_tool_loop(self):
        tools = [{"name": "get_weather", "description": "Get the weather of a city.", "input_schema": WEATHER}]
        talk = [{"role": "user", "content": "What is the weather in Oslo?"}]
        first = self.message(talk, tools=tools)
        self.assertEqual(first.stop_reason, "tool_use")
        call = first.content[-1]
        self.assertEqual((call.type, call.name, call.input), ("tool_use", "get_weather", {"city": "Oslo"}))
        with self.anthropic.messages.stream(model=self.model, messages=talk, tools=tools, max_tokens=60, extra_body={"temperature": 0}) as stream:
            streamed = stream.get_final_message()
        self.assertEqual(streamed.content[-1].input, call.input)
        talk += [{"role": "assistant", "content": first.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]}]
        self.assertIn("sunny", self.message(talk, tools=tools).content[0].text)

    def test_anthropic_thinking(self):
        asked = [{"role": "user", "content": "What is 27 + 35?"}]
        with self.anthropic.messages.stream(model=self.model, messages=asked, max_tokens=1100, thinking={"type": "enabled", "budget_tokens": 1024},
                                            extra_body={"temperature": 0}) as stream:
            final = stream.get_final_message()
        self.assertEqual([block.type for block in final.content], ["thinking", "text"])
        self.assertIn("62", final.content[1].text)

    def test_anthropic_errors(self):
        with self.assertRaises(anthropic.NotFoundError):
            self.anthropic.messages.create(model="no such model", messages=HELLO, max_tokens=5)
        with self.assertRaises(anthropic.BadRequestError) as long:
            self.message([{"role": "user", "content": "word " * 4000}])
        self.assertIn("prompt is too long", str(long.exception))
        stopped = self.message([{"role": "user", "content": "Count to ten."}], stop_sequences=["5"])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", "5"))


if __name__ == "__main__":
    unittest.main()
