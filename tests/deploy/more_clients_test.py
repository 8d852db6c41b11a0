#!/usr/bin/env python3
"""Clients that take long to install (deploy/tools/install --clients), against a real service: LiteLLM as a proxy before the gateway, grpcurl by reflection (the router,
and the router through the gateway), and OpenAI's own package for Go."""
import base64
import json
import secrets
import subprocess
import tempfile
import unittest

import openai

import examples_test
from relay import ROOT, Process, Relay

TOOLS = ROOT / "build" / "tools"
HELLO = [{"role": "user", "content": "Hello! My name is Ada."}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


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

        # What the cache found is told too.
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


if __name__ == "__main__":
    unittest.main()
