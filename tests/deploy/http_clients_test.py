#!/usr/bin/env python3
"""OpenAI's and Anthropic's own packages, for Python and Node.js, and LangChain's over both, against a real service with its gateway (`baton serve --http`): what
programs that speak to those services do, by changing an address."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import typing
import unittest
import urllib.request

import anthropic
import langchain_anthropic
import langchain_core.exceptions
import langchain_openai
import openai
import pydantic

from relay import BIN, ROOT, Relay, lacking

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
FUNCTION = {"name": "get_weather", "description": "Get the weather of a city.", "parameters": WEATHER}
OSLO = [{"role": "user", "content": "What is the weather in Oslo?"}]
HELLO = [{"role": "user", "content": "Hello! My name is Ada."}]
LUCKY = [{"role": "user", "content": "Hello! My lucky number is 417."}, {"role": "assistant", "content": "Thank you, I will remember that."},
         {"role": "user", "content": "What is my lucky number?"}]
TOO_LONG = "word " * 4000
# This is too long, too, but its last turn is not.
LONG_TALK = [{"role": "user", "content": "word " * 1200}, {"role": "assistant", "content": "Yes."}] * 2 + HELLO


class Number(pydantic.BaseModel):
    lucky_number: int = pydantic.Field(ge=0, le=999)


class Choice(pydantic.BaseModel):
    """Anthropic's packages send no bounds of numbers, so a schema of theirs needs something else that can be broken."""
    lucky_number: typing.Literal[3, 58, 417]


class Weather(pydantic.BaseModel):
    weather: typing.Literal["rainy", "snowy", "sunny"]


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

    def test_openai_mark_of_the_cache(self):
        """What proxies have taught clients of OpenAI: a part with Anthropic's cache_control."""
        text = " ".join(f"Shelf {shelf} is in hall {shelf // 10}." for shelf in range(10, 50))
        marked = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
        first, second = (self.chat([{"role": "system", "content": marked}, {"role": "user", "content": asked}], max_tokens=4).usage.prompt_tokens_details.to_dict()
                         for asked in ("In which hall is shelf 25?", "In which hall is shelf 31?"))
        self.assertGreater(first["cache_write_tokens"], 320)
        self.assertEqual((first["cached_tokens"], second["cache_write_tokens"]), (0, 0))
        self.assertGreaterEqual(second["cached_tokens"], first["cache_write_tokens"], "the questions begin alike, too")

    def test_openai_structured_output(self):
        parsed = self.openai.chat.completions.parse(
            model=self.model, temperature=0, response_format=Number, messages=LUCKY)
        self.assertEqual(parsed.choices[0].message.parsed.lucky_number, 417)

    def test_openai_structured_output_beside_tools(self):
        """The answer is a call of the tool or obeys the schema, and what the package sends back goes on."""
        asked = {"model": self.model, "temperature": 0, "tools": [{"type": "function", "function": {**FUNCTION, "strict": True}}], "response_format": Weather}
        first = self.openai.chat.completions.parse(messages=OSLO, **asked).choices[0].message
        self.assertIsNone(first.parsed)
        (call,) = first.tool_calls
        self.assertEqual(call.function.parsed_arguments, {"city": "Oslo"})
        talk = [*OSLO, first, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        told = self.openai.chat.completions.parse(messages=talk, tool_choice="none", **asked).choices[0].message
        self.assertIsInstance(told.parsed, Weather)
        self.assertFalse(told.tool_calls)

    def test_models_of_both_vendors(self):
        (ours,), (theirs,) = self.openai.models.list().data, self.anthropic.models.list(limit=1000).data
        self.assertEqual((ours.id, ours.object, theirs.id, theirs.type, theirs.display_name), (self.model, "model", self.model, "model", self.model))
        self.assertEqual((ours.context_window, theirs.max_input_tokens), (2304, 2304))
        self.assertEqual((self.openai.models.retrieve(self.model), self.anthropic.models.retrieve(self.model)), (ours, theirs))
        for client, missing in ((self.openai, openai.NotFoundError), (self.anthropic, anthropic.NotFoundError)):
            with self.assertRaises(missing):
                client.models.retrieve("no such model")

    def test_tools_that_must_not_be_called(self):
        """The shipped model calls the tool if it may: the other tests have it so. Its answer is a text without marks of a call."""
        texts = [self.chat(OSLO, tools=[{"type": "function", "function": FUNCTION}], tool_choice="none").choices[0].message.content,
                 self.respond(OSLO, tools=[{"type": "function", **FUNCTION}], tool_choice="none").output_text]
        (block,) = self.message(OSLO, tools=[{"name": "get_weather", "description": FUNCTION["description"], "input_schema": WEATHER}], tool_choice={"type": "none"}).content
        for text in [*texts, block.text]:
            self.assertRegex(text, r"^The weather in Oslo is [^<>{}]*$")

    def test_overflow(self):
        """A request may say what goes where the conversation is too long."""
        asks = {"chat": lambda **more: self.chat(LONG_TALK, **more).choices[0].message.content,
                "responses": lambda **more: self.respond(LONG_TALK, **more).output_text,
                "messages": lambda **more: self.anthropic.messages.create(model=self.model, messages=LONG_TALK, max_tokens=60, **more).content[0].text}
        for name, ask in asks.items():
            with self.subTest(name):
                with self.assertRaises((openai.BadRequestError, anthropic.BadRequestError)) as long:
                    ask()
                self.assertIn("prompt is too long", str(long.exception))
                self.assertIn("Ada", ask(extra_body={"overflow": "drop_oldest", "temperature": 0}))
        self.assertIn("Ada", self.respond(LONG_TALK, truncation="auto").output_text)

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

    def test_prompts_are_scored_as_evaluations_do_it(self):
        """The log probabilities of an answer, and those of the same tokens as a part of a prompt, are the same numbers."""
        answer = self.openai.completions.create(model=self.model, prompt="Once upon a time", temperature=0, max_tokens=12, logprobs=1).choices[0]
        for _ in range(2):  # the second time it may be in a cache
            scored = self.openai.completions.create(model=self.model, prompt="Once upon a time" + answer.text, temperature=0, max_tokens=1, echo=True, logprobs=1)
            logprobs = scored.choices[0].logprobs
            self.assertEqual(logprobs.token_logprobs[-13:-1], answer.logprobs.token_logprobs)
            self.assertIsNone(logprobs.token_logprobs[0])
            self.assertEqual(len(logprobs.tokens), scored.usage.total_tokens)
            self.assertTrue(scored.choices[0].text.startswith("Once upon a time" + answer.text))
            self.assertEqual(scored.usage.prompt_tokens_details.cached_tokens, 0)

    def test_openai_completions_of_several_prompts(self):
        """Choices of the second prompt come after those of the first, and each is what its prompt would get alone."""
        ask = lambda prompt, **more: self.openai.completions.create(model=self.model, prompt=prompt, max_tokens=8, n=2, seed=5, **more)
        prompts = ["Once upon a time", "The weather in Oslo is", "Hello! My name is"]
        alone = [ask(prompt) for prompt in prompts]
        texts = [choice.text for answer in alone for choice in answer.choices]
        self.assertGreater(len(set(texts)), 3, "choices that are all alike show no order")
        whole = ask(prompts)
        self.assertEqual([choice.index for choice in whole.choices], list(range(6)))
        self.assertEqual([choice.text for choice in whole.choices], texts)
        for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(getattr(whole.usage, count), sum(getattr(answer.usage, count) for answer in alone))
        streamed, ends, usage = [""] * 6, [], None
        for chunk in ask(prompts, stream=True, stream_options={"include_usage": True}):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                streamed[choice.index] += choice.text
                ends += [choice.index] if choice.finish_reason else []
        self.assertEqual(streamed, texts)
        self.assertEqual(sorted(ends), list(range(6)))
        self.assertEqual((usage.prompt_tokens, usage.completion_tokens), (whole.usage.prompt_tokens, whole.usage.completion_tokens))
        ids = []
        for prompt in prompts:
            body = json.dumps({"model": self.model, "prompt": prompt}).encode()
            with urllib.request.urlopen(f"http://{self.relay.http}/tokenize", body, timeout=60) as answer:
                ids.append(json.load(answer)["tokens"])
        self.assertEqual([choice.text for choice in ask(ids).choices], texts)
        with self.assertRaises(openai.BadRequestError) as caught:
            ask(["x"] * 65)
        self.assertEqual(caught.exception.param, "prompt")

    def respond(self, items, **more):
        return self.openai.responses.create(model=self.model, input=items, temperature=0, **more)

    def test_openai_responses_whole_and_streamed_are_one_answer(self):
        whole = self.respond("Hello! My name is Ada.", instructions="You are a helpful assistant.")
        self.assertIn("Ada", whole.output_text)
        self.assertEqual((whole.status, whole.instructions), ("completed", "You are a helpful assistant."))
        self.assertEqual(whole.usage.total_tokens, whole.usage.input_tokens + whole.usage.output_tokens)
        kinds, text = [], ""
        with self.openai.responses.stream(model=self.model, input="Hello! My name is Ada.", instructions="You are a helpful assistant.", temperature=0) as stream:
            for event in stream:
                kinds.append(event.type)
                text += event.delta if event.type == "response.output_text.delta" else ""
            final = stream.get_final_response()
        self.assertEqual((text, final.output_text), (whole.output_text, whole.output_text))
        self.assertEqual((kinds[0], kinds[-1]), ("response.created", "response.completed"))
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        cut = self.respond("Count to ten.", max_output_tokens=3)
        self.assertEqual((cut.status, cut.incomplete_details.reason), ("incomplete", "max_output_tokens"))

    def test_openai_responses_tool_loop(self):
        tools = [{"type": "function", "name": "get_weather", "description": "Get the weather of a city.", "parameters": WEATHER, "strict": True}]
        talk = [{"role": "user", "content": "What is the weather in Oslo?"}]
        first = self.respond(talk, tools=tools)
        (call,) = [item for item in first.output if item.type == "function_call"]
        self.assertEqual((call.name, json.loads(call.arguments)), ("get_weather", {"city": "Oslo"}))
        with self.openai.responses.stream(model=self.model, input=talk, tools=tools, temperature=0) as stream:
            streamed = [item for item in stream.get_final_response().output if item.type == "function_call"]
        self.assertEqual([(one.name, one.arguments) for one in streamed], [(call.name, call.arguments)])
        talk += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
        self.assertIn("sunny", self.respond(talk, tools=tools).output_text)
        forced = self.respond("Hello!", tools=tools, tool_choice={"type": "function", "name": "get_weather"}, parallel_tool_calls=False)
        self.assertEqual([item.name for item in forced.output if item.type == "function_call"], ["get_weather"])

    def test_openai_responses_structured_thinking_and_errors(self):
        parsed = self.openai.responses.parse(
            model=self.model, temperature=0, text_format=Number, input=LUCKY)
        self.assertEqual(parsed.output_parsed.lucky_number, 417)
        asked = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}
        thought = self.respond("What is 27 + 35?", **asked)
        self.assertEqual([item.type for item in thought.output], ["reasoning", "message"])
        self.assertIn("62", thought.output_text)
        self.assertGreater(thought.usage.output_tokens_details.reasoning_tokens, 0)
        events = [event.type for event in self.respond("What is 27 + 35?", stream=True, **asked)]
        self.assertIn("response.reasoning_text.delta", events)
        # An answer's items go back as they came.
        self.assertEqual(self.respond([{"role": "user", "content": "What is 27 + 35?"}, *thought.output, {"role": "user", "content": "Hello!"}], max_output_tokens=5).status, "incomplete")
        with self.assertRaises(openai.BadRequestError) as refused:
            self.respond("Hello!", previous_response_id=thought.id)
        self.assertEqual(refused.exception.param, "previous_response_id")
        with self.assertRaises(openai.BadRequestError) as long:
            self.respond("word " * 4000)
        self.assertEqual(long.exception.code, "context_length_exceeded")

    def test_openai_errors(self):
        with self.assertRaises(openai.NotFoundError):
            self.openai.chat.completions.create(model="no such model", messages=HELLO)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.chat(HELLO, top_p=7)
        self.assertEqual(refused.exception.param, "top_p")
        with self.assertRaises(openai.BadRequestError) as long:
            self.chat([{"role": "user", "content": "word " * 4000}])
        self.assertEqual(long.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError):
            list(self.chat([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}], stream=True))

    def test_openai_for_node(self):
        folder = ROOT / "build" / "tools" / "node"
        if shutil.which("node") is None or not (folder / "node_modules").is_dir():
            lacking(self, "no Node.js here: scripts/setup --ci and deploy/tools/install bring it")
        script = pathlib.Path(__file__).with_name("node_client.mjs")
        done = subprocess.run(["node", script, f"http://{self.relay.http}/v1", folder], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout)
        self.assertIn("Ada", told["whole"])
        self.assertEqual({told["streamed"], told["response"], told["responseStreamed"]}, {told["whole"]})
        self.assertEqual(told["city"], "Oslo")
        self.assertIn("sunny", told["tools"])
        self.assertEqual((told["events"][0], told["events"][-1]), ("response.created", "response.completed"))
        self.assertEqual(told["error"], {"name": "BadRequestError", "status": 400, "param": "top_p"})

    def test_langchain(self):
        for responses in (False, True):
            with self.subTest(use_responses_api=responses):
                model = langchain_openai.ChatOpenAI(model=self.model, base_url=f"http://{self.relay.http}/v1", api_key="any", temperature=0, max_retries=0,
                                                    use_responses_api=responses)
                whole = model.invoke("Hello! My name is Ada.")
                self.assertIn("Ada", whole.text)
                self.assertEqual("".join(chunk.text for chunk in model.stream("Hello! My name is Ada.")), whole.text)
                self.assertGreater(whole.usage_metadata["output_tokens"], 0)
                tool = {"name": "get_weather", "description": "Get the weather of a city.", "parameters": WEATHER}
                bound = model.bind_tools([{"type": "function", "function": tool}])
                asked = ("user", "What is the weather in Oslo?")
                call = bound.invoke([asked])
                self.assertEqual([(one["name"], one["args"]) for one in call.tool_calls], [("get_weather", {"city": "Oslo"})])
                told = bound.invoke([asked, call, {"role": "tool", "tool_call_id": call.tool_calls[0]["id"], "content": "sunny"}])
                self.assertIn("sunny", told.text)
                self.assertEqual(model.with_structured_output(Number).invoke(LUCKY).lucky_number, 417)
                # Where a summary or a fallback waits for it, it has to be this error.
                with self.assertRaises(langchain_core.exceptions.ContextOverflowError):
                    model.invoke(TOO_LONG)
                with self.assertRaises(langchain_core.exceptions.ContextOverflowError):
                    list(model.stream(TOO_LONG))
                self.assertIn("Ada", model.invoke(LONG_TALK, extra_body={"overflow": "drop_oldest"}).text)
                self.assertTrue(model.invoke([*HELLO, ("system", "It is late."), ("assistant", "Hello, Ada!"), ("system", "Be kind."), ("user", "What is my name?")]).text)

    def test_langchain_completions(self):
        model = langchain_openai.OpenAI(model=self.model, base_url=f"http://{self.relay.http}/v1", api_key="any", temperature=0, max_tokens=8, max_retries=0)
        prompts = ["Once upon a time", "The weather in Oslo is"]
        alone = [model.invoke(prompt) for prompt in prompts]
        self.assertNotEqual(*alone)
        told = model.generate(prompts)
        self.assertEqual([one.text for (one,) in told.generations], alone)
        self.assertEqual(told.llm_output["token_usage"]["completion_tokens"], 16)

    def langchain_anthropic(self, **more):
        return langchain_anthropic.ChatAnthropic(model=self.model, base_url=f"http://{self.relay.http}", api_key="any", max_retries=0, **more)

    def test_langchain_anthropic(self):
        model = self.langchain_anthropic(temperature=0, max_tokens=60)
        whole = model.invoke(HELLO)
        self.assertIn("Ada", whole.text)
        self.assertEqual("".join(chunk.text for chunk in model.stream(HELLO)), whole.text)
        self.assertEqual(model.get_num_tokens_from_messages([langchain_core.messages.HumanMessage(HELLO[0]["content"])]), whole.usage_metadata["input_tokens"])
        bound = model.bind_tools([FUNCTION])
        call = bound.invoke(OSLO)
        self.assertEqual([(one["name"], one["args"]) for one in call.tool_calls], [("get_weather", {"city": "Oslo"})])
        self.assertIn("sunny", bound.invoke([*OSLO, call, {"role": "tool", "tool_call_id": call.tool_calls[0]["id"], "content": "sunny"}]).text)
        self.assertEqual(model.with_structured_output(Choice, method="json_schema").invoke(LUCKY).lucky_number, 417)
        self.assertIsInstance(model.with_structured_output(Choice).invoke(LUCKY), Choice)  # it is a tool's call here
        self.assertEqual("Hello, Ada! How" + model.invoke([*HELLO, ("assistant", "Hello, Ada! How")]).text, whole.text)
        with self.assertRaises(langchain_core.exceptions.ContextOverflowError):
            model.invoke(TOO_LONG)
        with self.assertRaises(langchain_core.exceptions.ContextOverflowError):
            list(model.stream(TOO_LONG))
        self.assertIn("Ada", model.invoke(LONG_TALK, extra_body={"overflow": "drop_oldest"}).text)
        thought = self.langchain_anthropic(max_tokens=1100, thinking={"type": "enabled", "budget_tokens": 1024}).invoke("What is 27 + 35?")
        self.assertEqual([block["type"] for block in thought.content_blocks], ["reasoning", "text"])

    def test_anthropic_whole_and_streamed_are_one_answer(self):
        whole = self.message(HELLO, system="You are a helpful assistant.")
        self.assertIn("Ada", whole.content[0].text)
        self.assertEqual((whole.stop_reason, whole.stop_sequence), ("end_turn", None))
        with self.anthropic.messages.stream(model=self.model, messages=HELLO, system="You are a helpful assistant.", max_tokens=60,
                                            extra_body={"temperature": 0}) as stream:
            self.assertEqual("".join(stream.text_stream), whole.content[0].text)
            final = stream.get_final_message()
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        # Tokens found in the cache the second time are told apart, and the sums agree.
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

    def test_anthropic_thinking_that_is_not_shown(self):
        """It comes back with the turn, and the next prompt has all of it."""
        tools = [{"name": "get_weather", "description": FUNCTION["description"], "input_schema": WEATHER}]
        ask = {"model": self.model, "messages": OSLO, "tools": tools, "max_tokens": 1100, "extra_body": {"temperature": 0}}

        def thinks(display):
            return {"type": "enabled", "budget_tokens": 1024, "display": display}

        def count(content):
            result = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": content[-1].id, "content": "sunny"}]}]
            return self.anthropic.messages.count_tokens(model=self.model, tools=tools, messages=[*OSLO, {"role": "assistant", "content": content}, *result]).input_tokens

        shown = self.anthropic.messages.create(thinking=thinks("summarized"), **ask).content
        with self.anthropic.messages.stream(thinking=thinks("omitted"), **ask) as stream:
            streamed = stream.get_final_message().content
        for hidden in (self.anthropic.messages.create(thinking=thinks("omitted"), **ask).content, streamed):
            self.assertEqual([block.type for block in hidden], ["thinking", "tool_use"])
            self.assertEqual(hidden[0].thinking, "")
            self.assertEqual(count(hidden), count(shown))
            self.assertGreater(count(hidden), count(hidden[1:]))

    def test_anthropic_parse(self):
        ask = {"model": self.model, "messages": LUCKY, "max_tokens": 60, "output_format": Choice, "extra_body": {"temperature": 0}}
        self.assertEqual(self.anthropic.messages.parse(**ask).parsed_output.lucky_number, 417)
        with self.anthropic.messages.stream(**ask) as stream:
            self.assertEqual(stream.get_final_message().parsed_output.lucky_number, 417)

    def test_anthropic_structured_output(self):
        schema = {"type": "object", "properties": {"lucky_number": {"type": "integer", "minimum": 0, "maximum": 999}}, "required": ["lucky_number"],
                  "additionalProperties": False}
        wanted = {"type": "json_schema", "schema": schema}
        whole = self.anthropic.messages.create(model=self.model, messages=LUCKY, max_tokens=60, extra_body={"temperature": 0, "output_config": {"format": wanted}})
        self.assertEqual(json.loads(whole.content[0].text), {"lucky_number": 417})
        older = self.anthropic.messages.create(model=self.model, messages=LUCKY, max_tokens=60, extra_body={"temperature": 0, "output_format": wanted})
        self.assertEqual(older.content[0].text, whole.content[0].text)
        with self.assertRaises(anthropic.BadRequestError) as refused:
            self.anthropic.messages.create(model=self.model, messages=LUCKY, max_tokens=60, extra_body={"output_config": {"format": {"type": "regex"}}})
        self.assertIn("output_config.format.type", str(refused.exception))

    def test_anthropic_answers_go_on(self):
        whole = self.message(HELLO).content[0].text
        begun = whole[:whole.index("Ada") + 3]
        rest = self.message(HELLO + [{"role": "assistant", "content": begun}])
        self.assertEqual(begun + rest.content[0].text, whole)
        with self.anthropic.messages.stream(model=self.model, messages=HELLO + [{"role": "assistant", "content": begun}], max_tokens=60,
                                            extra_body={"temperature": 0}) as stream:
            self.assertEqual("".join(stream.text_stream), rest.content[0].text)
        same = self.chat(HELLO + [{"role": "assistant", "content": begun}], extra_body={"continue_final_message": True, "add_generation_prompt": False})
        self.assertEqual(same.choices[0].message.content, rest.content[0].text)

    def test_instructions_anywhere_and_what_went_before_is_cached(self):
        """As Claude Code sends them: a system's message behind the question, and the whole conversation again with the next one."""
        rules = " ".join(f"Drawer {drawer} is in room {drawer // 10}." for drawer in range(10, 50))
        talk = [{"role": "user", "content": HELLO[0]["content"]}, {"role": "system", "content": "Agents: none"}]
        first = self.message(talk, system=rules)
        talk += [{"role": "assistant", "content": first.content}, {"role": "user", "content": "What is my name?"}, {"role": "system", "content": "It is late."}]
        second = self.message(talk, system=rules)
        asked = first.usage.input_tokens + first.usage.cache_read_input_tokens
        self.assertGreaterEqual(second.usage.cache_read_input_tokens, asked // 16 * 16)
        for messages in ([{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."}] + HELLO,
                         HELLO + [{"role": "developer", "content": "Be kind."}]):
            self.assertTrue(self.chat(messages).choices[0].message.content)
        self.assertTrue(self.openai.responses.create(model=self.model, input=HELLO + [{"role": "developer", "content": "Be kind."}]).output_text)

    def test_a_conversation_goes_on_after_a_cut_call_and_a_picture(self):
        tools = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
        call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "O'}}
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}}
        talk = [{"role": "user", "content": "What is the weather in Oslo?"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": [picture]}]
        self.assertEqual(self.chat(talk, tools=tools).object, "chat.completion")
        shown = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}}]}
        self.message([{"role": "user", "content": "Look."}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {}}]},
                      {"role": "user", "content": [shown]}])

    def test_anthropic_mark_of_the_cache(self):
        text = " ".join(f"Drawer {drawer} is in room {drawer // 10}." for drawer in range(10, 50))
        system = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
        first, second = (self.message([{"role": "user", "content": asked}], system=system).usage for asked in ("In which room is drawer 25?", "In which room is drawer 31?"))
        self.assertGreater(first.cache_creation_input_tokens, 320)
        self.assertEqual(first.cache_creation.ephemeral_1h_input_tokens, first.cache_creation_input_tokens)
        self.assertEqual((first.cache_read_input_tokens, second.cache_creation_input_tokens), (0, 0))
        self.assertGreaterEqual(second.cache_read_input_tokens, first.cache_creation_input_tokens)

    def test_anthropic_errors(self):
        with self.assertRaises(anthropic.NotFoundError):
            self.anthropic.messages.create(model="no such model", messages=HELLO, max_tokens=5)
        with self.assertRaises(anthropic.BadRequestError) as long:
            self.message([{"role": "user", "content": "word " * 4000}])
        self.assertIn("prompt is too long", str(long.exception))
        stopped = self.message([{"role": "user", "content": "Count to ten."}], stop_sequences=["5"])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", "5"))

    def test_errors_name_their_request(self):
        with self.assertRaises(openai.BadRequestError) as refused:
            self.chat(HELLO, top_p=7)
        self.assertTrue(refused.exception.request_id)
        with self.assertRaises(anthropic.BadRequestError) as refused:
            self.anthropic.messages.create(model=self.model, messages=HELLO, max_tokens=5, extra_body={"top_p": 7})
        self.assertEqual(refused.exception.body["request_id"], refused.exception.request_id)


class Limits(unittest.TestCase):
    """Both packages wait as long as the service asks, and ask again."""

    def test_a_client_that_is_refused_tries_again(self):
        with tempfile.TemporaryDirectory() as folder:
            tenants = pathlib.Path(folder, "tenants.json")
            tenants.write_text('{"tenants": [{"name": "guest", "requests_per_minute": 20}]}')
            subprocess.run([BIN / "baton", "key", "new", "--tenant", "guest", "--key-file", f"{folder}/key", "--tenants", tenants], check=True, capture_output=True)
            key = pathlib.Path(folder, "key").read_text().strip()
            relay = Relay(folder, prefill=1, decode=1, more=["--http", "127.0.0.1:0", "--tenants", tenants])
            self.addCleanup(relay.stop)
            seen = []
            eager = openai.OpenAI(base_url=f"http://{relay.http}/v1", api_key=key, max_retries=0)
            hooks = {"response": [lambda response: seen.append((response.status_code, response.headers.get("retry-after")))]}
            theirs = openai.OpenAI(base_url=f"http://{relay.http}/v1", api_key=key, max_retries=4, http_client=openai.DefaultHttpxClient(event_hooks=hooks))
            others = anthropic.Anthropic(base_url=f"http://{relay.http}", api_key=key, max_retries=4, http_client=anthropic.DefaultHttpxClient(event_hooks=hooks))
            self.addCleanup(theirs.close)
            self.addCleanup(others.close)
            ask = {"openai": lambda: theirs.chat.completions.create(model="baton-tiny", messages=HELLO, max_tokens=5),
                   "anthropic": lambda: others.messages.create(model="baton-tiny", messages=HELLO, max_tokens=5)}
            for name, call in ask.items():
                with self.subTest(name):
                    # Until its share is used up. On a slow machine the next call may find that some of it has come back, so: again.
                    for _ in range(5):
                        with self.assertRaises(openai.RateLimitError):
                            while True:
                                eager.models.list()
                        seen.clear()
                        call()
                        if len(seen) > 1:
                            break
                    self.assertEqual([status for status, _ in seen], [429] * (len(seen) - 1) + [200])
                    self.assertGreater(len(seen), 1, "it was never refused")
                    self.assertTrue(all(int(wait) >= 1 for status, wait in seen if status == 429), seen)


class Judged(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.relay = Relay(cls.folder.name, prefill=1, decode=1, more=["--http", "127.0.0.1:0", "--moderation-model", ROOT / "models" / "baton-guard"])
        cls.addClassCleanup(cls.relay.stop)
        cls.openai = openai.OpenAI(base_url=f"http://{cls.relay.http}/v1", api_key="any", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=f"http://{cls.relay.http}", api_key="any", max_retries=0)
        cls.model = cls.openai.models.list().data[0].id

    def test_moderations_by_the_classifier_that_ships(self):
        told = self.openai.moderations.create(input=["Hello! My name is Ada.", "I will hurt you."])
        self.assertEqual(len(told.results), 2)
        self.assertFalse(told.results[0].flagged)
        for result in told.results:
            # Categories that the package knows are all there, as numbers and as verdicts.
            self.assertIsInstance(result.categories.violence, bool)
            self.assertGreaterEqual(result.category_scores.violence, 0)

    def test_a_blocked_answer_ends_in_each_vendors_words(self):
        """The model can write nothing but a threat: nothing of it leaves, whole or streamed."""
        asked = {"messages": [{"role": "user", "content": "Hello!"}], "model": self.model, "max_tokens": 60}
        more = {"guided_choice": ["I will break your arm tomorrow."], "moderation": {"policy": {"output": {"mode": "block"}}}}
        whole = self.openai.chat.completions.create(**asked, extra_body=more)
        self.assertEqual((whole.choices[0].finish_reason, whole.choices[0].message.content or ""), ("content_filter", ""))
        self.assertTrue(whole.moderation.output.results[0].flagged)
        chunks = list(self.openai.chat.completions.create(**asked, extra_body=more, stream=True))
        self.assertEqual("".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices), "")
        self.assertEqual([choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason], ["content_filter"])
        message = self.anthropic.messages.create(**asked, extra_body=more)
        self.assertEqual((message.stop_reason, message.content), ("refusal", []))
        with self.anthropic.messages.stream(**asked, extra_body=more) as stream:
            self.assertEqual("".join(stream.text_stream), "")
            self.assertEqual(stream.get_final_message().stop_reason, "refusal")
        answer = self.openai.responses.create(model=self.model, input="Hello!", max_output_tokens=60, store=False, extra_body=more)
        self.assertEqual((answer.status, answer.incomplete_details.reason, answer.output_text), ("incomplete", "content_filter", ""))

    def test_hints_are_warnings_at_the_end(self):
        asked = {"messages": [{"role": "user", "content": "Hello!"}], "model": self.model, "max_tokens": 20, "temperature": 1.8}
        said = "temperature: 1.8 is above 1.5"
        whole = self.openai.chat.completions.create(**asked)
        self.assertTrue(whole.choices[0].model_extra["warnings"][0]["message"].startswith(said))
        chunks = list(self.openai.chat.completions.create(**asked, stream=True))
        (told,) = (choice.model_extra["warnings"] for chunk in chunks for choice in chunk.choices if "warnings" in choice.model_extra)
        self.assertEqual([warning["kind"] for warning in told], ["setting"])
        self.assertNotIn("warnings", self.openai.chat.completions.create(**{**asked, "temperature": 1}).choices[0].model_extra)


if __name__ == "__main__":
    unittest.main()
