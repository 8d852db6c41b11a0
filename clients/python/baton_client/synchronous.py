"""Client: blocking calls."""
import time

import grpc
from baton.v1 import inference_pb2 as inference
from baton.v1 import inference_pb2_grpc as rpc

from baton_client.answers import Fold, answer_of
from baton_client.errors import BatonError, Tries
from baton_client.requests import CHANNEL, chat_request, message_of, metadata_of, resume_request, unary
from baton_client.tools import failure_of, result_message


class Client:
    """Any thread. key: the tenant's API key. root_certificates: PEM of who signs the server's certificate; b"" takes the system's. attempts: how often a
    request is sent at most, or is gone on with, before something comes."""

    def __init__(self, address, *, key="", root_certificates=None, attempts=4):
        if root_certificates is None:
            self._channel = grpc.insecure_channel(address, options=CHANNEL)
        else:
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(root_certificates or None), options=CHANNEL)
        self.stub = rpc.InferenceStub(self._channel)
        self.metadata = metadata_of(key)
        self._attempts = attempts

    def close(self):
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def models(self):
        """baton.v1.ModelInfo of each model."""
        return list(self._call(self.stub.ListModels, inference.ListModelsRequest(), 10).models)

    def complete(self, messages, *, timeout=None, **parameters):
        """One whole Answer. parameters: those of requests.chat_request."""
        return answer_of(self._call(self.stub.ChatUnary, unary(chat_request(messages, **parameters)), timeout))

    def stream(self, messages, *, timeout=None, **parameters):
        """Yields Text, Thinking and ToolCall as they come, and returns the Answer (the generator's value). Leaving the loop cancels the request."""
        request, tries, fold = chat_request(messages, **parameters), Tries(self._attempts, timeout), Fold()
        while True:
            method, asked = (self.stub.Chat, request) if fold.started is None else (self.stub.Resume, resume_request(request, fold.started, fold.tokens))
            call = method(asked, timeout=tries.begin(), metadata=self.metadata)
            try:
                for message in call:
                    tries.go_well()
                    for part in fold.push(message):
                        yield part
                return fold.answer
            except grpc.RpcError as error:
                time.sleep(tries.wait_after(BatonError.of(error)))
            finally:
                call.cancel()

    def run(self, messages, tools, *, rounds=8, timeout=None, **parameters):
        """The loop of tools: asks, runs what the model calls, sends the results, asks again. The last Answer; after `rounds` rounds it may still have calls.
        timeout: of each request."""
        talk = [messages] if isinstance(messages, (str, dict)) else list(messages)
        by_name = {one.name: one for one in tools}
        for left in range(rounds - 1, -1, -1):
            answer = self.complete(talk, tools=tools, timeout=timeout, **parameters)
            if answer.reason != "TOOL_CALLS" or left == 0:
                return answer
            talk = [message_of(one) for one in talk] + [answer.message()]
            for call in answer.calls:
                if call.complete:
                    talk.append(result_message(call, self._result(by_name, call)))

    @staticmethod
    def _result(by_name, call):
        try:
            return by_name[call.name].function(**call.arguments)
        except Exception as error:  # a tool may fail in any way
            return failure_of(error)

    def _call(self, method, request, timeout):
        tries = Tries(self._attempts, timeout)
        while True:
            try:
                return method(request, timeout=tries.begin(), metadata=self.metadata)
            except grpc.RpcError as error:
                time.sleep(tries.wait_after(BatonError.of(error)))
