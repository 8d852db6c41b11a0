#!/usr/bin/env python3
"""What Baton, xgrammar and llguidance by itself make of real JSON schemas, in turns, over the same vocabulary and on the same machine.

    scripts/peers schemas
    scripts/build release schemas_bench
    tests/bench/schemas/compare.py --schemas DIR [--model MODEL] [--sample N] [--details FILE]

DIR has files {schema, tests: [{valid, data}]}, as those of MaskBench (maskbench/data of guidance-ai/jsonschemabench on GitHub); nothing of
them is part of this project. Taken are those N whose names have the least SHA-256. MODEL is what Baton takes a tokenizer from.

Each engine is a process with one thread, and gets the schemas one by one, each engine first in turn; an engine that takes too long for one,
or dies, is started anew. All get the tokens into which Baton's tokenizer splits an instance. `jsonschema` has the last word on what is valid,
in the draft that the schema names (2020-12 if none): instances that it sees otherwise than their file are left out, and those
that are wrong in a `format` alone are counted apart. Compiling is until the first mask is there. A mask is one with the taking of its token, along
valid instances, and of the schemas that all compile. Times of xgrammar and llguidance have the calls from Python in them, of which one that does nothing is
shown; medians of the rounds are shown, and in brackets the least and the most. A random answer ends where it may, or is given up after 300 tokens.
"""
import argparse
import collections
import fractions
import hashlib
import importlib.util
import json
import os
import pathlib
import platform
import random
import resource
import select
import statistics
import subprocess
import sys
import time
import types
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[3]
PYTHON = ROOT / "build" / "peers" / "venv" / "bin" / "python3"
BATON = ROOT / "build" / "release" / "bench" / "schemas_bench"
WALK_TOKENS = 300  # as in schemas_bench.cc
MEMORY = 12 << 30  # of each engine


class XGrammar:
    """additional: whether objects may have members that the schema does not name, as JSON Schema says; xgrammar's default is no."""

    def __init__(self, words, additional):
        import tvm_ffi  # noqa: F401  before torch seems to be there
        import numpy

        # xgrammar takes torch and transformers for what is not used here: half a gigabyte of library, and CUDA's. A mask may be any array.
        for name in ("torch", "transformers"):
            try:
                __import__(name)
            except ImportError:
                sys.modules[name] = Absent(name)
        import xgrammar

        self.xgrammar, self.additional, end = xgrammar, additional, len(words)
        vocabulary = [word or b"" for word in words] + [b"<|end of the answer|>"]
        info = xgrammar.TokenizerInfo(vocabulary, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(vocabulary), stop_token_ids=[end])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bits = numpy.full((1, (len(vocabulary) + 31) // 32), -1, dtype=numpy.int32)

    def compile(self, schema):
        self.grammar = self.compiler.compile_json_schema(schema, strict_mode=not self.additional)
        self.begin()
        self.mask()

    def begin(self):
        self.matcher = self.xgrammar.GrammarMatcher(self.grammar)

    def mask(self):
        if not self.matcher.fill_next_token_bitmask(self.bits):
            self.bits.fill(-1)

    def take(self, token):
        return self.matcher.accept_token(token)

    def nothing(self):
        self.matcher.is_terminated()


class Absent(types.ModuleType):
    """A module of which only names are asked."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *_, **__: None})


class LLGuidance:
    def __init__(self, words):
        import llguidance
        import numpy
        from llguidance import TokenizerWrapper

        self.llguidance = llguidance
        ids = {word: token for token, word in enumerate(words) if word}
        longest = max(map(len, ids))

        class Tokens:
            eos_token_id, bos_token_id = len(words), None
            tokens = [f"<|control {token}|>".encode() if word is None else word for token, word in enumerate(words)] + [b"<|end of the answer|>"]
            special_token_ids = [token for token, word in enumerate(words) if word is None] + [len(words)]

            def __call__(self, text):  # the longest token each time; it is asked for text that a grammar forces
                tokens = []
                while text:
                    length = next(length for length in range(longest, 0, -1) if text[:length] in ids)  # every byte is a token
                    tokens.append(ids[text[:length]])
                    text = text[length:]
                return tokens

        self.tokenizer = llguidance.LLTokenizer(TokenizerWrapper(Tokens()), slices=llguidance.LLTokenizer.json_slices())
        self.bits = numpy.full((1, (len(words) + 32) // 32), -1, dtype=numpy.int32)

    def checked(self):
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())

    def compile(self, schema):
        self.start = self.matcher = self.llguidance.LLMatcher(self.tokenizer, self.llguidance.LLMatcher.grammar_from_json_schema(schema), log_level=0)
        self.checked()
        self.begin()
        self.mask()

    def begin(self):
        self.matcher = self.start.deep_copy()

    def mask(self):
        self.matcher.unsafe_compute_mask_ptr(self.bits.ctypes.data, self.bits.nbytes)
        self.checked()

    def take(self, token):
        return self.matcher.consume_token(token)

    def nothing(self):
        self.matcher.is_error()


PEERS = {"llguidance": LLGuidance, "xgrammar": lambda words: XGrammar(words, True), "xgrammar strict": lambda words: XGrammar(words, False)}


class Peer:
    """An engine of Python's, in a process of its own: the same lines come in and go out as with schemas_bench.cc."""

    def __init__(self, name, words):
        import numpy

        self.engine, self.numpy, self.words = PEERS[name](words), numpy, words
        self.closes = numpy.array([word is not None and word[:1] in (b'"', b"}", b"]") and word != b"" for word in words] + [False])

    def allowed(self):
        bits = self.numpy.unpackbits(self.engine.bits[0].view(self.numpy.uint8), bitorder="little")[: len(self.closes)].astype(bool)
        return bits[:-1], bits[-1]

    def instance(self, tokens, measured, times):
        engine = self.engine
        engine.begin()
        for token in tokens:
            begin = time.perf_counter()
            if measured:
                engine.mask()
            taken = engine.take(token)
            if measured:
                times.append(1e6 * (time.perf_counter() - begin))
            if not taken:
                return False
        engine.mask()
        return bool(self.allowed()[1])

    def walk(self, chance):
        engine, text = self.engine, b""
        engine.begin()
        for _ in range(WALK_TOKENS):
            engine.mask()
            allowed, ends = self.allowed()
            if ends and (not allowed.any() or chance.randrange(3) == 0):
                return text.hex()
            closing = (allowed & self.closes[:-1]).nonzero()[0]
            ids = closing if len(closing) and chance.randrange(2) == 0 else allowed.nonzero()[0]
            if not len(ids):
                return None
            token = int(ids[chance.randrange(len(ids))])
            text += self.words[token] or b""
            if not engine.take(token):
                return None
        return None

    def run(self, asked):
        said = {"name": asked["name"], "compiled": False, "message": "", "mask_us": [], "instances": [], "walks": []}
        begin = time.perf_counter()
        try:
            self.engine.compile(asked["schema"])
            said["compiled"] = True
        except Exception as error:  # of whatever type a library has for it
            said["message"] = (str(error).strip().splitlines() or [repr(error)])[0][:300]
        said["compile_us"] = 1e6 * (time.perf_counter() - begin)
        if not said["compiled"]:
            said["instances"] = [{"accepted": False} for _ in asked["instances"]]
            return said
        for one in asked["instances"]:
            answer = {"accepted": False, "message": ""}
            try:
                answer["accepted"] = self.instance(one["tokens"], one["valid"], said["mask_us"])
            except Exception as error:
                answer["message"] = str(error).splitlines()[0][:300]
            said["instances"].append(answer)
        chance = random.Random(asked["seed"])
        for _ in range(asked["walks"]):
            try:
                said["walks"].append(self.walk(chance))
            except Exception:  # too much work for a mask
                said["walks"].append(None)
        begin = time.perf_counter()
        for _ in range(1000):
            self.engine.nothing()
        said["nothing_us"] = 1e3 * (time.perf_counter() - begin)
        return said


def serve(name):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    peer = Peer(name, [word if word is None else bytes.fromhex(word) for word in json.loads(sys.stdin.readline())])
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.run(json.loads(line))), file=answers, flush=True)


class Engine:
    """A process that answers lines with lines, started anew when it fails or takes too long."""

    def __init__(self, name, command, greeting, patience):
        self.name, self.command, self.greeting, self.patience, self.process = name, command, greeting, patience, None
        self.first = self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        env={**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"})
        if self.greeting is not None:
            self.write(self.greeting)
        return self.read(600)

    def write(self, line):
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def read(self, patience):
        deadline, parts = time.monotonic() + patience, []
        while not parts or not parts[-1].endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"more than {patience} s")
            parts.append(os.read(self.process.stdout.fileno(), 1 << 20))
            if not parts[-1]:
                raise BrokenPipeError(f"it ended with {self.process.wait()}")
        return json.loads(b"".join(parts))

    def ask(self, line):
        try:
            self.write(line)
            return self.read(self.patience)
        except (TimeoutError, BrokenPipeError) as error:
            self.stop()
            self.start()
            return {"name": line["name"], "failed": str(error), "compiled": False, "message": str(error), "instances": [{"accepted": False} for _ in line["instances"]],
                    "walks": [], "mask_us": []}

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


SPACES = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": SPACES}


def ecma_pattern(pattern):
    """For Python: its \\d, \\w, \\s, . and $ are other ones than those of ECMA-262, in which patterns are written."""
    written, inside, at = "", False, 0
    while at < len(pattern):
        char = pattern[at : at + 2] if pattern[at] == "\\" else pattern[at]
        at += len(char)
        known = CLASSES.get(char[1:].lower()) if char[0] == "\\" else None
        if known is not None and (char[1:].islower() or not inside):
            char = known if inside else f"[{'' if char[1:].islower() else '^'}{known}]"
        elif not inside and char in (".", "$"):
            char = r"[^\n\r\u2028\u2029]" if char == "." else r"\Z"
        elif char == ("]" if inside else "["):
            inside = not inside
        written += char
    return written


def as_ecma(schema, named=False):
    """The schema with patterns for Python. named: the members are names with schemas."""
    if isinstance(schema, list):
        return [as_ecma(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {}
    for key, value in schema.items():
        if named:
            copy[key] = as_ecma(value)
        elif key == "pattern" and isinstance(value, str):
            copy[key] = ecma_pattern(value)
        elif key == "patternProperties" and isinstance(value, dict):
            copy[key] = {ecma_pattern(name): as_ecma(one) for name, one in value.items()}
        elif key in ("const", "enum", "default", "examples"):
            copy[key] = value
        else:
            copy[key] = as_ecma(value, named=key in ("properties", "$defs", "definitions", "dependencies", "dependentSchemas"))
    return copy


def multiple_of(validator, step, value, _):
    """jsonschema's own divides floats, by which 9.27 is no multiple of 0.01."""
    import jsonschema

    if validator.is_type(value, "number") and fractions.Fraction(repr(value)) % fractions.Fraction(repr(step)) != 0:
        yield jsonschema.ValidationError(f"{value!r} is not a multiple of {step}")


class Judge:
    """What jsonschema says of instances of a schema."""

    def __init__(self, schema):
        import jsonschema
        import referencing

        known = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind = jsonschema.validators.extend(known, {"multipleOf": multiple_of})
        nowhere, schema = referencing.Registry(), as_ecma(schema)  # nothing is fetched
        self.plain = kind(schema, registry=nowhere)
        self.formats = kind(schema, registry=nowhere, format_checker=known.FORMAT_CHECKER)

    def errors(self, value):
        """None: it is valid; "format": but for a format; else what is wrong. Raises what jsonschema raises where it knows no answer."""
        error = next(self.plain.iter_errors(value), None)
        if error is not None:
            return error.message[:300]
        return "format" if next(self.formats.iter_errors(value), None) is not None else None


def twice(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise KeyError("twice")
    return dict(pairs)


def cases(options):
    """Of the sample: name, schema, and the instances on which jsonschema agrees with the file."""
    files = sorted(pathlib.Path(options.schemas).glob("*.json"), key=lambda file: hashlib.sha256(file.name.encode()).hexdigest())
    for file in files[: options.sample]:
        read = json.loads(file.read_text(encoding="utf-8"))
        instances, left_out = [], 0
        try:
            judge = Judge(read["schema"])
        except Exception:
            judge = None
        for test in read.get("tests", []):
            try:
                wrong = judge.errors(test["data"])
            except Exception:  # a reference that leads nowhere, a pattern that Python does not know
                left_out += 1
                continue
            if (wrong is None) != test["valid"]:
                left_out += 1
                continue
            kind = "valid" if wrong is None else "format" if wrong == "format" else "invalid"
            instances.append({"valid": test["valid"], "text": json.dumps(test["data"], ensure_ascii=False), "wrong": wrong, "kind": kind})
        yield {"name": file.stem, "schema": json.dumps(read["schema"], ensure_ascii=False), "instances": instances, "left_out": left_out, "judge": judge}


def judge_walks(case, said):
    """Of an engine's random answers, whether they are valid: {kind: [text]}."""
    kinds = collections.defaultdict(list)
    for walk in said["walks"]:
        if walk is None:
            kinds["unfinished"].append("")
            continue
        text = bytes.fromhex(walk).decode("utf-8", errors="replace")
        try:
            value = json.loads(text)
        except ValueError as error:
            kinds["invalid"].append(f"{text}    {error}")
            continue
        try:
            wrong = case["judge"].errors(value)
        except Exception:  # as in cases()
            kinds["unknown"].append(text)
            continue
        if wrong is None or wrong == "format":
            try:
                json.loads(text, object_pairs_hook=twice)
            except KeyError:
                kinds["name twice"].append(text)
        kinds["valid" if wrong is None else "format" if wrong == "format" else "invalid"].append(text if wrong is None else f"{text}    {wrong}")
    return kinds


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


class Tally:
    """What an engine gave in one round."""

    def __init__(self):
        self.count = collections.Counter()
        self.compile_us, self.masks, self.compiled = [], {}, set()
        self.nothing_us = []

    def add(self, case, said, kinds):
        count = self.count
        count["compiled" if said["compiled"] else "failed" if "failed" in said else "refused"] += 1
        if "nothing_us" in said:
            self.nothing_us.append(said["nothing_us"])
        if said["compiled"]:
            self.compiled.add(case["name"])
            self.compile_us.append(said["compile_us"])
            self.masks[case["name"]] = said["mask_us"]
        for instance, answer in zip(case["instances"], said["instances"]):
            kind = instance["kind"]
            count[kind] += 1
            count[f"{kind} of compiled"] += said["compiled"]
            count[f"{kind} accepted"] += answer["accepted"]
        for kind, texts in kinds.items():
            count[f"walks {kind}"] += len(texts)


def spread(rounds, of):
    values = [of(tally) for tally in rounds]
    middle = statistics.median(values)
    digits = 0 if middle >= 100 else 1 if middle >= 0.1 else 2
    return f"{middle:,.{digits}f}" + (f" ({min(values):,.{digits}f} to {max(values):,.{digits}f})" if len(values) > 1 else "")


def share(part, whole):
    return f"{part} of {whole}" + (f" ({100 * part / whole:.1f}%)" if whole else "")


def show(names, rounds):
    common = set.intersection(*(rounds[name][0].compiled for name in names))

    def masks(share_):
        return lambda tally: percentile([us for name in common for us in tally.masks.get(name, [])], share_)

    def counted(of):
        return [of(rounds[name][0].count) for name in names]

    def timed(of):
        return [spread(rounds[name], of) for name in names]

    def walks(count):
        ended = count["walks valid"] + count["walks invalid"] + count["walks format"]
        return share(count["walks invalid"], ended)

    lines = [
        ("schemas compiled", counted(lambda count: share(count["compiled"], count["compiled"] + count["refused"] + count["failed"]))),
        ("refused with a message", counted(lambda count: str(count["refused"]))),
        ("failed, or took too long", counted(lambda count: str(count["failed"]))),
        ("valid instances accepted", counted(lambda count: share(count["valid accepted"], count["valid"]))),
        ("the same, of schemas that compiled", counted(lambda count: share(count["valid accepted"], count["valid of compiled"]))),
        ("invalid instances accepted", counted(lambda count: share(count["invalid accepted"], count["invalid of compiled"]))),
        ("the same, wrong in a format alone", counted(lambda count: share(count["format accepted"], count["format of compiled"]))),
        ("random answers that are invalid", counted(walks)),
        ("the same, wrong in a format alone", counted(lambda count: str(count["walks format"]))),
        ("random answers with a name twice", counted(lambda count: str(count["walks name twice"]))),
        ("compiling, ms, p50", timed(lambda tally: percentile(tally.compile_us, 0.5) / 1000)),
        ("compiling, ms, p99", timed(lambda tally: percentile(tally.compile_us, 0.99) / 1000)),
        ("a mask, us, p50", timed(masks(0.5))),
        ("a mask, us, p99", timed(masks(0.99))),
        ("of that a call from Python, us", [spread(rounds[name], lambda tally: percentile(tally.nothing_us, 0.5)) if name != "baton" else "" for name in names]),
    ]
    widths = [max(len(row[1][column]) for row in lines + [("", names)]) for column in range(len(names))]
    for title, cells in [("", names)] + lines:
        print(f"| {title:40} |" + "".join(f" {cell:>{width}} |" for cell, width in zip(cells, widths)))
        if title == "":
            print("|---|" + "---:|" * len(names))
    print(f"masks: of the {len(common)} schemas that all compile, {sum(len(rounds[names[0]][0].masks[name]) for name in common)} for {names[0]}")


def machine():
    names = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def versions():
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in ("xgrammar", "llguidance", "jsonschema"))


def missing(options):
    if not PYTHON.exists():
        return f"{PYTHON.relative_to(ROOT)} is not here: run scripts/peers schemas"
    if not BATON.exists():
        return f"{BATON.relative_to(ROOT)} is not here: run scripts/build release schemas_bench"
    for name in ("jsonschema", "llguidance", "numpy", "pydantic", "rfc3339_validator", "tvm_ffi", "xgrammar"):
        if importlib.util.find_spec(name) is None:
            return f"the Python package {name} is not in build/peers/venv: run scripts/peers schemas"
    if not any(pathlib.Path(options.schemas).glob("*.json")):
        return f"{options.schemas} has no schemas: give --schemas DIR, such as maskbench/data of guidance-ai/jsonschemabench on GitHub"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--schemas", default="maskbench/data", help="folder of the schemas and their instances")
    parser.add_argument("--model", default=ROOT / "models" / "baton-tiny", help="folder or GGUF file that has the tokenizer")
    parser.add_argument("--sample", type=int, default=1000, help="so many schemas")
    parser.add_argument("--rounds", type=int, default=3, help="of times; medians are shown")
    parser.add_argument("--walks", type=int, default=4, help="random answers to each schema")
    parser.add_argument("--patience", type=float, default=60, help="seconds that an engine has for a schema, its instances and answers")
    parser.add_argument("--engines", default="baton,llguidance,xgrammar,xgrammar strict", help="names with commas between")
    parser.add_argument("--details", help="file for what each engine said of each schema, as lines of JSON")
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    # The packages are in a Python of their own.
    if PYTHON.exists() and pathlib.Path(sys.prefix) != PYTHON.parent.parent:
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    if why := missing(options):
        print(why)
        return 1
    warnings.simplefilter("ignore")  # of patterns, by Python's reader of them
    names = options.engines.split(",")
    baton = Engine("baton", [str(BATON), "--model", str(options.model)], None, options.patience)
    vocabulary = baton.first["vocabulary"]
    engines = {"baton": baton}
    for name in names:
        if name != "baton":
            engines[name] = Engine(name, [str(PYTHON), __file__, "--serve", name], vocabulary, options.patience)
    print(f"{machine()}; Baton at {baton.first['commit']}, {versions()}; {len(vocabulary)} tokens of {pathlib.Path(options.model).name}", flush=True)
    sample = list(cases(options))
    kinds = collections.Counter(instance["kind"] for case in sample for instance in case["instances"])
    left_out = sum(case["left_out"] for case in sample)
    print(f"{len(sample)} schemas, {kinds['valid']} valid and {kinds['invalid']} invalid instances, {kinds['format']} wrong in a format alone, {left_out} left out", flush=True)
    rounds, details = {name: [] for name in names}, open(options.details, "w", encoding="utf-8") if options.details else None
    for number in range(options.rounds):
        for name in names:
            rounds[name].append(Tally())
        for index, case in enumerate(sample):
            if "tokens" not in (case["instances"] or [{"tokens": ()}])[0]:
                tokens = baton.ask({"name": "", "schema": "0", "walks": 0, "seed": 0, "instances": case["instances"]})
                for instance, answer in zip(case["instances"], tokens["instances"]):
                    instance["tokens"] = answer["tokens"]
            asked = {"name": case["name"], "schema": case["schema"], "walks": options.walks if number == 0 else 0, "seed": index, "instances": case["instances"]}
            for turn in range(len(names)):
                name = names[(index + turn) % len(names)]
                said = engines[name].ask(asked)
                kinds = judge_walks(case, said)
                rounds[name][number].add(case, said, kinds)
                if details and number == 0:
                    told = list(zip(case["instances"], said["instances"]))
                    wrong = [f"{instance['text']}    {instance['wrong']}" for instance, answer in told if answer["accepted"] and not instance["valid"]]
                    lost = [f"{instance['text']}    {answer.get('message', '')}" for instance, answer in told if instance["valid"] and not answer["accepted"]]
                    print(json.dumps({"name": case["name"], "engine": name, "compiled": said["compiled"], "message": said["message"], "us": said.get("compile_us"),
                                      "invalid_accepted": wrong, "valid_refused": lost if said["compiled"] else [], "walks": kinds}), file=details, flush=True)
            if sys.stderr.isatty():
                print(f"\rround {number + 1}, {index + 1} of {len(sample)} ", end="", file=sys.stderr)
    show(names, rounds)
    for engine in engines.values():
        engine.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
