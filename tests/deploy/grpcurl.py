#!/usr/bin/env python3
"""As much of grpcurl as the pages use, for machines that lack it: grpcurl -plaintext [-H 'NAME: VALUE'] [-d JSON] HOST:PORT SERVICE/METHOD.
It reads the protos of the source and not the server's reflection, which more_clients_test.py asks with grpcurl itself."""
import argparse
import pathlib
import tempfile

import grpc
import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_tools import protoc

from relay import ROOT


def protos():
    """A pool of all of them."""
    paths = sorted(str(path) for path in (ROOT / "proto").rglob("*.proto"))
    folders = [f"-I{ROOT / 'proto'}", f"-I{pathlib.Path(grpc_tools.__file__).parent / '_proto'}"]
    pool = descriptor_pool.DescriptorPool()
    with tempfile.NamedTemporaryFile() as file:
        assert protoc.main(["protoc", *folders, "--include_imports", f"--descriptor_set_out={file.name}", *paths]) == 0
        for one in descriptor_pb2.FileDescriptorSet.FromString(file.read()).file:
            pool.Add(one)
    return pool


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-plaintext", action="store_true", required=True)
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="data", default="{}")
    parser.add_argument("server")
    parser.add_argument("method")
    asked = parser.parse_args()
    service, name = asked.method.rsplit("/", 1)
    method = protos().FindServiceByName(service).methods_by_name[name]
    request = json_format.Parse(asked.data, message_factory.GetMessageClass(method.input_type)())
    with grpc.insecure_channel(asked.server) as channel:
        # Every method that a page calls takes one message.
        call = channel.unary_stream if method.server_streaming else channel.unary_unary
        call = call(f"/{service}/{name}", type(request).SerializeToString, message_factory.GetMessageClass(method.output_type).FromString)
        try:
            answer = call(request, timeout=120, metadata=[tuple(header.split(": ", 1)) for header in asked.headers])
            for message in answer if method.server_streaming else [answer]:
                print(json_format.MessageToJson(message))
        except grpc.RpcError as error:
            raise SystemExit(f"grpcurl: {error.code()}: {error.details()}") from None


if __name__ == "__main__":
    main()
