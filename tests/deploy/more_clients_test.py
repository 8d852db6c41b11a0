#!/usr/bin/env python3
"""Clients that take long to install (deploy/tools/install --clients), against a real service: LiteLLM as a library, and as a proxy before the gateway, the AI SDK for Node.js
by four kinds of models, lm-evaluation-harness, grpcurl by reflection (the router, and the router through the gateway), and OpenAI's own package for Go."""
import base64
import json
import pathlib
import secrets
import shutil
import subprocess
import tempfile
import unittest

import openai

import examples_test
from relay import BIN, MODEL, ROOT, Process, Relay, lacking

TOOLS = ROOT / "build" / "tools"
HELLO = [{"role": "user", "content": "Hello! My name is Ada."}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
NO_CALL = r"^The weather in Oslo is [^<>{}]*$"


def told_by(case, *command):
    """Returns the JSON that a client prints. LiteLLM asks the network for prices unless the variable says otherwise."""
    done = subprocess.run(["env", "LITELLM_LOCAL_MODEL_COST_MAP=True", *command], capture_output=True, text=True, timeout=300)
    case.assertEqual(done.returncode, 0, done.stderr)
    return json.loads(done.stdout)


def ai(case, *arguments):
    if shutil.which("node") is None or shutil.which("npm") is None:
        lacking(case, "no Node.js here: scripts/setup --ci brings it")
    url, *key = arguments
    return told_by(case, "node", pathlib.Path(__file__).with_name("ai_client.mjs"), url, TOOLS / "ai", *key)


class MoreClients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.relay = Relay(folder.name, prefill=1, decode=1, more=["--http", "127.0.0.1:0"])
        cls.addClassCleanup(cls.relay.stop)

    def grpcurl(self, *arguments, data=None):
        command = [TOOLS / "bin" / "grpcurl", "-plaintext", *(["-d", json.dumps(data)] if data else []), self.server, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_grpcurl(self):
        for name in ("router", "http"):
            self.server = getattr(self.relay, name)
            with self.subTest(name):
                self.ask_by_reflection()

    def ask_by_reflection(self):
        services = self.grpcurl("list").split()
        for service in ("baton.v1.Inference", "grpc.health.v1.Health", "inference.GRPCInferenceService", "vllm.Inference", "vllm.Control"):
            self.assertIn(service, services)
        self.assertIn("rpc Generate ( .baton.v1.GenerateRequest ) returns ( stream .baton.v1.GenerateResponse );", self.grpcurl("describe", "baton.v1.Inference"))
        self.assertIn("rpc ModelInfer (", self.grpcurl("describe", "inference.GRPCInferenceService"))
        self.assertIn("oneof prompt", self.grpcurl("describe", ".baton.v1.GenerateRequest"))

        prompt = "Once upon a time"
        said, answer = self.grpcurl("baton.v1.Inference/Generate", data={"text": prompt, "stop": {"max_tokens": 8}, "sampling": {"temperature": 0}}), ""
        decoder, rest = json.JSONDecoder(), said.strip()
        while rest:
            event, end = decoder.raw_decode(rest)
            answer += event.get("delta", {}).get("text", "")
            rest = rest[end:].strip()
        self.assertEqual(event["finished"]["usage"]["completion_tokens"], 8)

        def tensor(name, kind, **contents):
            return {"name": name, "datatype": kind, "shape": [1], "contents": contents}

        text = base64.b64encode(prompt.encode()).decode()
        inputs = [tensor("text_input", "BYTES", bytes_contents=[text]), tensor("max_tokens", "INT32", int_contents=[8]), tensor("temperature", "FP32", fp32_contents=[0])]
        whole = json.loads(self.grpcurl("inference.GRPCInferenceService/ModelInfer", data={"model_name": "baton-tiny", "id": "7", "inputs": inputs}))
        self.assertEqual(whole["id"], "7")
        self.assertEqual(base64.b64decode(whole["outputs"][0]["contents"]["bytes_contents"][0]).decode(), prompt + answer)

    def test_go_over_http(self):
        with tempfile.TemporaryDirectory() as folder:
            examples_test.check(self, examples_test.run(examples_test.build_go("client_http.go", folder), f"http://{self.relay.http}/v1"))

    def test_ai_sdk(self):
        told = ai(self, f"http://{self.relay.http}")
        fields = {"compatible": "messages[0].content[0].type", "chat": "messages[0].content[0].type", "responses": "input[0].content[0].type", "anthropic": "messages[0].content[0].type"}
        for kind, field in fields.items():
            with self.subTest(kind):
                one = told[kind]
                self.assertIn("Ada", one["whole"])
                self.assertEqual(one["tokens"], told["compatible"]["tokens"])
                self.assertEqual(one["tokens"][2], one["tokens"][0] + one["tokens"][1])
                self.assertEqual((one["city"], one["steps"]), ("Oslo", ["tool-calls", "stop"]))
                self.assertIn("sunny", one["weather"])
                self.assertEqual((one["object"], one["output"]), ({"lucky_number": 417}, {"lucky_number": 417}))
                self.assertRegex(one["noCall"], NO_CALL)
                self.assertTrue(one["name"])
                self.assertTrue(one["after"])
                # The package looks for none in chats with OpenAI's own models.
                thinking = "^$" if kind == "chat" else "The sum is 62."
                self.assertRegex(one["thinking"], thinking)
                self.assertRegex(one["thinkingStreamed"], thinking)
                if kind != "anthropic":
                    self.assertGreater(one["thinkingTokens"], 0)
                for refused, words in (("long", "prompt is too long"), ("image", field)):
                    self.assertEqual((one[refused]["call"], one[refused]["status"], one[refused]["retry"]), (True, 400, False))
                    self.assertIn(words, one[refused]["message"])
        self.assertEqual(told["stored"]["status"], 400)
        self.assertIn("nothing is kept here", told["stored"]["message"])
        self.assertEqual("Hello, Ada! How" + told["begun"], told["anthropic"]["whole"])

    def test_lm_evaluation_harness(self):
        client = openai.OpenAI(base_url=f"http://{self.relay.http}/v1", api_key="any", max_retries=0)
        written = {}
        for context in ("Once upon a", "The weather in Oslo is", "2 + 2 ="):
            one = client.completions.create(model="baton-tiny", prompt=context, max_tokens=1, temperature=0, logprobs=1).choices[0]
            line = client.completions.create(model="baton-tiny", prompt=context, max_tokens=8, temperature=0, stop=["\n"]).choices[0].text
            written[context] = (one.text, one.logprobs.token_logprobs[0], line)
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/questions.jsonl", "w") as file:
                for context, (first, _, line) in written.items():
                    file.write(json.dumps({"question": context, "choices": [first, " eleven forks"], "line": line.strip()}) + "\n")
            task = {"dataset_path": "json", "dataset_kwargs": {"data_files": f"{folder}/questions.jsonl"}, "test_split": "train", "doc_to_text": "{{question}}"}
            tasks = {
                "choices": {"output_type": "multiple_choice", "doc_to_choice": "{{choices}}", "doc_to_target": 0, "target_delimiter": "", "metric_list": [{"metric": "acc"}]},
                "lines": {"output_type": "generate_until", "doc_to_target": "{{line}}", "metric_list": [{"metric": "exact_match"}],
                          "generation_kwargs": {"until": ["\n"], "max_gen_toks": 8, "temperature": 0}, "filter_list": [{"name": "plain", "filter": [{"function": "remove_whitespace"}, {"function": "take_first"}]}]},
            }
            for name, more in tasks.items():
                with open(f"{folder}/{name}.yaml", "w") as file:
                    json.dump({"task": name, **task, **more}, file)  # JSON is YAML
            where = f"model=baton-tiny,base_url=http://{self.relay.http}/v1/completions,tokenizer={MODEL},tokenized_requests=True,add_bos_token=True,num_concurrent=4"
            environment = [f"HF_HOME={folder}", "HF_HUB_OFFLINE=1", "HF_DATASETS_OFFLINE=1", "OPENAI_API_KEY=any"]
            command = ["env", *environment, TOOLS / "lm-eval/bin/lm_eval", "--model", "local-completions", "--model_args", where, "--tasks", "choices,lines"]
            done = subprocess.run([*command, "--include_path", folder, "--output_path", f"{folder}/out", "--log_samples"], capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            out = pathlib.Path(folder, "out")
            (results,) = out.rglob("results_*.json")
            (samples,) = out.rglob("samples_choices_*.jsonl")
            results = json.loads(results.read_text())["results"]
            samples = [json.loads(line) for line in samples.read_text().splitlines()]
        self.assertEqual((results["choices"]["acc,none"], results["lines"]["exact_match,plain"]), (1, 1))
        self.assertEqual(len(samples), len(written))
        for sample in samples:
            first, other = sample["filtered_resps"]
            # The log probability of a token in a prompt is that with which it was drawn.
            self.assertAlmostEqual(float(first[0]), written[sample["doc"]["question"]][1], places=6)
            self.assertEqual([str(one[1]) for one in (first, other)], ["True", "False"])
            self.assertLess(float(other[0]), float(first[0]))

    def test_litellm_as_a_library(self):
        told = told_by(self, TOOLS / "litellm-library/bin/python", pathlib.Path(__file__).with_name("litellm_client.py"), f"http://{self.relay.http}")
        for prefix in ("openai", "hosted_vllm", "anthropic"):
            with self.subTest(prefix):
                one = told[prefix]
                self.assertIn("Ada", one["whole"])
                self.assertEqual(one["streamed"], one["whole"])
                self.assertEqual((one["call"], one["call_streamed"]), (["get_weather", {"city": "Oslo"}], {"city": "Oslo"}))
                self.assertIn("sunny", one["result"])
                self.assertRegex(one["no_call"], NO_CALL)
                self.assertEqual(one["schema"], {"lucky_number": 417})
                self.assertIn("The sum is 62.", one["thinking"])
                self.assertIn("62", one["thought"])
                self.assertEqual("Hello, Ada! How" + one["begun"], one["whole"])
                self.assertTrue(one["name"])
                # Fallbacks to a model with a longer context wait for this error.
                self.assertEqual(one["too_long"], ["ContextWindowExceededError"] * 2)
                self.assertIn("Ada", one["cut"])
                self.assertEqual(one["no_model"], "NotFoundError")
        self.assertNotEqual(*told["alone"])
        for prefix, texts in told["prompts"].items():
            self.assertEqual(texts, told["alone"], prefix)
        self.assertEqual(told["response"], told["openai"]["whole"])

    def test_litellm(self):
        with tempfile.TemporaryDirectory() as folder:
            where = {"model": "openai/baton-tiny", "api_base": f"http://{self.relay.http}/v1", "api_key": "any"}
            with open(f"{folder}/config.yaml", "w") as file:
                json.dump({"model_list": [{"model_name": "small", "litellm_params": where}], "litellm_settings": {"telemetry": False}}, file)
            key = f"sk-{secrets.token_hex(16)}"
            # Without the second it asks the network for prices.
            command = ["env", f"LITELLM_MASTER_KEY={key}", "LITELLM_LOCAL_MODEL_COST_MAP=True", TOOLS / "litellm/bin/litellm", "--config", f"{folder}/config.yaml"]
            proxy = Process([*command, "--host", "127.0.0.1", "--port", "0"], stream="stderr")
            self.addCleanup(proxy.stop)
            url = proxy.wait_for(r"Uvicorn running on (http://\S+)")[1]
            self.through(openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0))

    def through(self, client):
        straight = openai.OpenAI(base_url=f"http://{self.relay.http}/v1", api_key="any", max_retries=0)

        def chat(asked, **more):
            return asked.chat.completions.create(model="small" if asked is client else "baton-tiny", temperature=0, **more)

        whole, direct = (chat(asked, messages=HELLO) for asked in (client, straight))
        self.assertIn("Ada", whole.choices[0].message.content)
        self.assertEqual(whole.choices[0].message.content, direct.choices[0].message.content)
        self.assertEqual(whole.choices[0].finish_reason, "stop")
        counts = (direct.usage.prompt_tokens, direct.usage.completion_tokens, direct.usage.total_tokens)
        self.assertEqual((whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens), counts)

        text, usage, reasons = "", [], []
        for chunk in chat(client, messages=HELLO, stream=True, stream_options={"include_usage": True}):
            usage += [chunk.usage] if chunk.usage else []
            for piece in chunk.choices:
                text += piece.delta.content or ""
                reasons += [piece.finish_reason] if piece.finish_reason else []
        self.assertEqual((text, reasons), (whole.choices[0].message.content, ["stop"]))
        self.assertEqual([(one.prompt_tokens, one.completion_tokens, one.total_tokens) for one in usage], [counts])

        # Tokens found in the cache are told too.
        long = [{"role": "system", "content": " ".join(f"Room {room} is on floor {room // 10}." for room in range(10, 40))}, *HELLO]
        first, second = (chat(client, messages=long, max_tokens=4).usage for _ in range(2))
        self.assertEqual(first.prompt_tokens, second.prompt_tokens)
        self.assertGreaterEqual(second.prompt_tokens_details.cached_tokens, 320)

        tools = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.", "parameters": WEATHER}}]
        talk = [{"role": "user", "content": "What is the weather in Oslo?"}]
        asked = chat(client, messages=talk, tools=tools).choices[0]
        self.assertEqual(asked.finish_reason, "tool_calls")
        (call,) = asked.message.tool_calls
        self.assertEqual((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Oslo"}))
        streamed = ""
        for chunk in chat(client, messages=talk, tools=tools, stream=True):
            for piece in [one for choice in chunk.choices for one in choice.delta.tool_calls or []]:
                streamed += piece.function.arguments or ""
        self.assertEqual(json.loads(streamed), {"city": "Oslo"})
        talk += [asked.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        self.assertIn("sunny", chat(client, messages=talk, tools=tools).choices[0].message.content)

        with self.assertRaises(openai.BadRequestError) as refused:
            chat(client, messages=[{"role": "user", "content": "word " * 4000}])
        self.assertIn("context", str(refused.exception))


class Limits(unittest.TestCase):
    def test_ai_sdk_tries_again(self):
        """It waits as long as the service asks, which is longer than it waits by itself: else it would be refused again."""
        with tempfile.TemporaryDirectory() as folder:
            tenants = pathlib.Path(folder, "tenants.json")
            tenants.write_text('{"tenants": [{"name": "guest", "requests_per_minute": 10}]}')
            subprocess.run([BIN / "baton", "key", "new", "--tenant", "guest", "--key-file", f"{folder}/key", "--tenants", tenants], check=True, capture_output=True)
            relay = Relay(folder, prefill=1, decode=1, more=["--http", "127.0.0.1:0", "--tenants", tenants])
            self.addCleanup(relay.stop)
            seen = ai(self, f"http://{relay.http}", pathlib.Path(folder, "key").read_text().strip())
            self.assertEqual([status for status, _ in seen], [429] * (len(seen) - 1) + [200])
            self.assertGreater(seen[0][1], 0)
            self.assertTrue(all(wait < 100 for _, wait in seen[1:]), f"a timer may end a moment early, no more: {seen}")


if __name__ == "__main__":
    unittest.main()
