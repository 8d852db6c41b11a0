"""AsyncClient: the same for asyncio."""
import asyncio
import inspect

import grpc
import grpc.aio
from baton.v1 import inference_pb2 as inference
from baton.v1 import inference_pb2_grpc as rpc

from baton_client.answers import Fold, answer_of
from baton_client.errors import BatonError, Tries
from baton_client.requests import CHANNEL, chat_request, message_of, metadata_of, resume_request, unary
from baton_client.tools import failure_of, result_message


class AsyncClient:
    """As Client. Made and used in one event loop. Tools may be coroutine functions; others run in the loop and hold it up."""

    def __init__(self, address, *, key="", root_certificates=None, attempts=4):
        if root_certificates is None:
            self._channel = grpc.aio.insecure_channel(address, options=CHANNEL)
        else:
            self._channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(root_certificates or None), options=CHANNEL)
        self.stub = rpc.InferenceStub(self._channel)
        self.metadata = metadata_of(key)
        self._attempts = attempts

    async def close(self):
        await self._channel.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.close()

    async def models(self):
        return list((await self._call(self.stub.ListModels, inference.ListModelsRequest(), 10)).models)

    async def complete(self, messages, *, timeout=None, **parameters):
        return answer_of(await self._call(self.stub.ChatUnary, unary(chat_request(messages, **parameters)), timeout))

    async def stream(self, messages, *, timeout=None, **parameters):
        """Yields Text, Thinking and ToolCall as they come, and last the Answer: an asynchronous generator has no value of its own."""
        request, tries, fold = chat_request(messages, **parameters), Tries(self._attempts, timeout), Fold()
        while True:
            method, asked = (self.stub.Chat, request) if fold.started is None else (self.stub.Resume, resume_request(request, fold.started, fold.tokens))
            call = method(asked, timeout=tries.begin(), metadata=self.metadata)
            try:
                async for message in call:
                    tries.go_well()
                    for part in fold.push(message):
                        yield part
                yield fold.answer
                return
            except grpc.aio.AioRpcError as error:
                await asyncio.sleep(tries.wait_after(BatonError.of(error)))
            finally:
                call.cancel()

    async def run(self, messages, tools, *, rounds=8, timeout=None, **parameters):
        talk = [messages] if isinstance(messages, (str, dict)) else list(messages)
        by_name = {one.name: one for one in tools}
        for left in range(rounds - 1, -1, -1):
            answer = await self.complete(talk, tools=tools, timeout=timeout, **parameters)
            if answer.reason != "TOOL_CALLS" or left == 0:
                return answer
            talk = [message_of(one) for one in talk] + [answer.message()]
            for call in answer.calls:
                if call.complete:
                    talk.append(result_message(call, await self._result(by_name, call)))

    @staticmethod
    async def _result(by_name, call):
        try:
            result = by_name[call.name].function(**call.arguments)
            return await result if inspect.isawaitable(result) else result
        except Exception as error:  # a tool may fail in any way
            return failure_of(error)

    async def _call(self, method, request, timeout):
        tries = Tries(self._attempts, timeout)
        while True:
            try:
                return await method(request, timeout=tries.begin(), metadata=self.metadata)
            except grpc.aio.AioRpcError as error:
                await asyncio.sleep(tries.wait_after(BatonError.of(error)))
