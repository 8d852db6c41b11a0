#!/usr/bin/env python3
"""Triton's own client (tritonclient) against a real service: the KServe v2 protocol on the router's port, and the messages' numbers compared with the
client's own."""
import pathlib
import queue
import random
import subprocess
import tempfile
import threading
import time
import unittest

import numpy as np
import tritonclient.grpc as triton
from google.protobuf import descriptor_pb2
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from relay import ROOT, Relay

PROMPT = "Hello! My name is Ada."


def tensor(name, kind, values):
    types = {"BYTES": object, "BOOL": bool, "INT32": np.int32, "FP32": np.float32, "UINT64": np.uint64}
    given = triton.InferInput(name, [len(values)], kind)
    given.set_data_from_numpy(np.array(values, dtype=types[kind]))
    return given


def text(value):
    return tensor("text_input", "BYTES", [value.encode()])


class KserveClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.relay = Relay(folder.name, prefill=1, decode=1)
        cls.addClassCleanup(cls.relay.stop)
        cls.client = triton.InferenceServerClient(cls.relay.router)
        cls.addClassCleanup(cls.client.close)
        cls.greedy = [tensor("max_tokens", "INT32", [12]), tensor("temperature", "FP32", [0])]

    def stream(self, requests, **more):
        """What comes back on one stream for these (id, inputs): {id: [result or error]}."""
        came, results = queue.Queue(), {}
        with triton.InferenceServerClient(self.relay.router) as client:
            client.start_stream(lambda result, error: came.put((result, error)), **more)
            for name, inputs in requests:
                client.async_stream_infer("baton-tiny", inputs, request_id=name)
            open_requests = len(requests)
            while open_requests:
                result, error = came.get(timeout=120)
                if error:
                    results.setdefault("error", []).append(error)
                    open_requests -= 1
                    continue
                response = result.get_response()
                results.setdefault(response.id, []).append(result)
                open_requests -= response.parameters["triton_final_response"].bool_param
        return results

    def test_probes_and_metadata(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("baton-tiny"))
        self.assertEqual(self.client.get_server_metadata().name, "baton")
        described = self.client.get_model_metadata("baton-tiny")
        self.assertIn("text_output", [output.name for output in described.outputs])
        with self.assertRaises(InferenceServerException) as caught:
            self.client.get_model_metadata("other")
        self.assertEqual(caught.exception.status(), "StatusCode.NOT_FOUND")

    def test_an_answer_whole_and_streamed_is_one(self):
        asked = [tensor("return_finish_reason", "BOOL", [True]), tensor("return_num_output_tokens", "BOOL", [True])]
        whole = self.client.infer("baton-tiny", [text(PROMPT), *self.greedy, *asked], request_id="w")
        answer = whole.as_numpy("text_output")[0].decode()
        self.assertTrue(answer.startswith(PROMPT))
        self.assertEqual(whole.as_numpy("finish_reason")[0], b"length")
        self.assertEqual(whole.as_numpy("num_output_tokens")[0], 12)
        flag = tensor("stream", "BOOL", [True])
        pieces = self.stream([("s", [text(PROMPT), flag, *self.greedy, *asked])])["s"]
        self.assertGreater(len(pieces), 2)
        self.assertEqual(PROMPT + "".join(piece.as_numpy("text_output")[0].decode() for piece in pieces), answer)
        self.assertEqual(sum(piece.as_numpy("num_output_tokens")[0] for piece in pieces), 12)

    def test_requests_of_one_stream_keep_their_names(self):
        prompts = {f"r{i}": f"The number {i} is" for i in range(8)}
        results = self.stream([(name, [text(prompt), *self.greedy]) for name, prompt in prompts.items()])
        self.assertEqual(set(results), set(prompts))
        for name, prompt in prompts.items():
            self.assertTrue(results[name][-1].as_numpy("text_output")[0].decode().startswith(prompt))

    def test_tokens_in_tokens_out(self):
        result = self.client.infer("baton-tiny", [tensor("input_ids", "INT32", [1, 40, 41]), *self.greedy])
        self.assertEqual(result.as_numpy("output_ids").shape, (1, 12))

    def offered(self, prompts, arrivals):
        """As a load generator offers them: each sample is issued when its time has come, on one stream, and the answers are taken by callback. Returns how often each
        was answered in full, and its text."""
        ended, texts, all_ended = {name: 0 for name in prompts}, {}, threading.Event()

        def take(result, error):
            if error:
                texts["error"] = str(error)
                return all_ended.set()
            response = result.get_response()
            texts[response.id] = texts.get(response.id, "") + result.as_numpy("text_output")[0].decode()
            if response.parameters["triton_final_response"].bool_param:
                ended[response.id] += 1
                if all(ended.values()):
                    all_ended.set()

        with triton.InferenceServerClient(self.relay.router) as client:
            client.start_stream(take)
            begin, due = time.monotonic(), 0
            for (name, prompt), gap in zip(prompts.items(), arrivals):
                due += gap
                time.sleep(max(0, begin + due - time.monotonic()))  # the schedule, which is what is tested
                client.async_stream_infer("baton-tiny", [text(prompt), tensor("stream", "BOOL", [True]), *self.greedy], request_id=name)
            self.assertTrue(all_ended.wait(180), ended)
            client.stop_stream()  # waits for what is still to come: a second answer would be counted
        self.assertNotIn("error", texts)
        return ended, texts

    def test_a_load_generators_scenarios(self):
        """MLPerf's two that a server meets: offline (all at once) and server (Poisson arrivals). Every sample is answered once, and with the same text."""
        prompts = {f"sample-{i}": f"The number {i % 10} is" for i in range(100)}
        seed = 7
        poisson = random.Random(seed)
        offline, first = self.offered(prompts, [0] * len(prompts))
        server, second = self.offered(prompts, [poisson.expovariate(100) for _ in prompts])
        for name, ended in (("offline", offline), ("server", server)):
            with self.subTest(name, seed=seed):
                self.assertEqual(ended, {name: 1 for name in prompts})
        self.assertEqual(first, second)
        self.assertEqual({first[f"sample-{i}"] for i in range(0, 100, 10)}, {first["sample-0"]}, "the same prompt has the same answer in any batch")

    def test_tensorrt_llms_names(self):
        ids = tensor("input_ids", "INT32", [1, 40, 41])
        asked = [tensor("input_lengths", "INT32", [3]), tensor("request_output_len", "INT32", [12]), tensor("beam_width", "INT32", [1]), tensor("temperature", "FP32", [0])]
        outputs = [triton.InferRequestedOutput(name) for name in ("output_ids", "sequence_length", "cum_log_probs")]
        theirs = self.client.infer("baton-tiny", [ids, *asked], outputs=outputs)
        ours = self.client.infer("baton-tiny", [ids, *self.greedy])
        self.assertEqual(theirs.as_numpy("output_ids").tolist(), ours.as_numpy("output_ids").tolist())
        self.assertEqual(theirs.as_numpy("sequence_length").tolist(), [[12]])
        self.assertLess(theirs.as_numpy("cum_log_probs")[0], 0)
        with self.assertRaises(InferenceServerException) as caught:
            self.client.infer("baton-tiny", [ids, *asked[:2], tensor("beam_width", "INT32", [4])])
        self.assertIn("beam_width", caught.exception.message())

    def test_errors(self):
        bad = [text(PROMPT), tensor("sampling_parameters", "BYTES", [b'{"best_of": 3}'])]
        with self.assertRaises(InferenceServerException) as caught:
            self.client.infer("baton-tiny", bad)
        self.assertIn("best_of", caught.exception.message())
        results = self.stream([("bad", bad), ("good", [text(PROMPT), *self.greedy])])
        self.assertIn("best_of", results["error"][0].message())
        self.assertEqual(len(results["good"]), 1)
        (error,) = self.stream([("bad", bad)], headers={"triton_grpc_error": "true"})["error"]
        self.assertEqual(error.status(), "StatusCode.INVALID_ARGUMENT")

    def test_numbers_and_types_are_the_protocols(self):
        with tempfile.TemporaryDirectory() as folder:
            compiled = pathlib.Path(folder, "set")
            subprocess.run(["protoc", "-I", ROOT / "proto", f"--descriptor_set_out={compiled}", "kserve/v2.proto"], check=True)
            ours = descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes()).file[0]
        theirs = descriptor_pb2.FileDescriptorProto()
        service_pb2.DESCRIPTOR.CopyToProto(theirs)

        def fields(message, path=""):
            for field in message.field:
                yield f"{path}{message.name}.{field.name}", (field.number, field.type, field.label, field.type_name)
            for nested in message.nested_type:
                yield from fields(nested, f"{path}{message.name}.")

        known = dict(pair for message in theirs.message_type for pair in fields(message))
        mine = dict(pair for message in ours.message_type for pair in fields(message))
        self.assertGreater(len(mine), 40)
        for name, shape in mine.items():
            self.assertEqual(known.get(name), shape, name)
        methods = {method.name: (method.input_type, method.output_type, method.server_streaming) for method in theirs.service[0].method}
        for method in ours.service[0].method:
            self.assertEqual(methods[method.name], (method.input_type, method.output_type, method.server_streaming))


if __name__ == "__main__":
    unittest.main()
