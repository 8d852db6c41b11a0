#!/usr/bin/env python3
"""Lists what is on the wire at a commit: each field, value and method with its number and types.

    tests/golden/wire/make_wire.py f772f3e7 > tests/golden/wire/wire.txt

wire_golden_test.cc has every line persist. The commit of wire.txt is the last one before Chat had parts, tools, constraints, marks and
prices: a client that was generated then works today. Raise it when a release leaves.
"""
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile


def blocks(words):
    """protoc's text format as nested lists of (name, value)."""
    fields = []
    for word in words:
        if word == "}":
            break
        if word.endswith("{"):
            fields.append((word[:-1].strip(), blocks(words)))
        else:
            name, value = word.split(": ", 1)
            fields.append((name, value.strip('"')))
    return fields


def every(fields, name):
    return [value for key, value in fields if key == name]


def one(fields, name, otherwise=""):
    return (every(fields, name) or [otherwise])[0]


def message(fields, scope):
    name = f"{scope}.{one(fields, 'name')}"
    oneofs = [one(oneof, "name") for oneof in every(fields, "oneof_decl")]
    for field in every(fields, "field"):
        kind = one(field, "type").removeprefix("TYPE_").lower()
        kind = one(field, "type_name").removeprefix(".") or kind
        label = "repeated" if one(field, "label") == "LABEL_REPEATED" else "single"
        index = one(field, "oneof_index")
        oneof = "" if index == "" or one(field, "proto3_optional") == "true" else f" of {oneofs[int(index)]}"
        yield f"field {name}.{one(field, 'name')} = {one(field, 'number')} {label} {kind}{oneof}"
    for nested in every(fields, "nested_type"):
        yield from message(nested, name)
    for nested in every(fields, "enum_type"):
        yield from enum(nested, name)


def enum(fields, scope):
    for value in every(fields, "value"):
        yield f"value {scope}.{one(fields, 'name')}.{one(value, 'name')} = {one(value, 'number', '0')}"


def service(fields, scope):
    for method in every(fields, "method"):
        streams = [("stream " if one(method, f"{side}_streaming") == "true" else "") for side in ("client", "server")]
        types = [one(method, f"{side}_type").removeprefix(".") for side in ("input", "output")]
        yield f"method {scope}.{one(fields, 'name')}.{one(method, 'name')}: {streams[0]}{types[0]} -> {streams[1]}{types[1]}"


def main():
    root = pathlib.Path(__file__).resolve().parents[3]
    with tempfile.TemporaryDirectory() as scratch:
        archive = pathlib.Path(scratch, "proto.tar")
        subprocess.run(["git", "archive", "-o", archive, sys.argv[1], "proto/baton"], cwd=root, check=True)
        tarfile.open(archive).extractall(scratch)
        folder = pathlib.Path(scratch, "proto")
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.proto"))
        subprocess.run(["protoc", "-I.", f"--descriptor_set_out={scratch}/set", *files], cwd=folder, check=True)
        decode = ["protoc", "--decode=google.protobuf.FileDescriptorSet", "google/protobuf/descriptor.proto"]
        text = subprocess.run(decode, stdin=open(f"{scratch}/set"), capture_output=True, text=True, check=True).stdout
    lines = []
    for file in every(blocks(iter(re.sub(r"^ +", "", text, flags=re.M).splitlines())), "file"):
        scope = one(file, "package")
        for name, list_of in ("message_type", message), ("enum_type", enum), ("service", service):
            for part in every(file, name):
                lines.extend(list_of(part, scope))
    print("\n".join(sorted(lines)))


main()
