"""JSON schemas in the kinds that clients send (arguments of functions, Kubernetes objects, API descriptions, every keyword),
each with instances that are valid and instances that are not, as the `jsonschema` package says.

    pip install jsonschema==4.26.0
    python tests/golden/schemas/make_schemas.py [--seed N] [--suite jsonschema-4.26.0/json/tests/draft2020-12]

Writes schemas.json. --suite: the official JSON-Schema-Test-Suite, as the source package of jsonschema carries it
(pip download --no-deps --no-binary :all: jsonschema==4.26.0); writes official.json, which holds its tests without remote
references. Members of objects come in the order of `properties`, as a grammar writes them.
"""

import argparse
import copy
import json
import pathlib
import random

import jsonschema

HERE = pathlib.Path(__file__).parent
WORDS = "alpha beta gamma delta omega north south river stone paper light cloud field inner outer".split()
PATTERNS = {
    "^[a-z]{2,6}$": lambda r: "".join(r.choice("abcxyz") for _ in range(r.randint(2, 6))),
    "^[0-9]+(m|Mi|Gi)$": lambda r: f"{r.randint(1, 4096)}{r.choice(['m', 'Mi', 'Gi'])}",
    "^(GET|PUT)/[a-z]*$": lambda r: r.choice(["GET/", "PUT/abc"]),
    "^v[0-9]+(alpha|beta)?[0-9]*$": lambda r: r.choice(["v1", "v2beta1", "v1alpha"]),
    "^#[0-9A-Fa-f]{6}$": lambda r: f"#{r.randint(0, 0xffffff):06x}",
}
FORMATS = {
    "date": lambda r: f"20{r.randint(10, 40)}-0{r.randint(1, 9)}-1{r.randint(0, 9)}",
    "date-time": lambda r: f"2024-0{r.randint(1, 9)}-1{r.randint(0, 9)}T1{r.randint(0, 9)}:30:00Z",
    "uuid": lambda r: f"{r.getrandbits(32):08x}-1111-4222-8333-{r.getrandbits(48):012x}",
    "ipv4": lambda r: f"10.{r.randint(0, 255)}.{r.randint(0, 255)}.1",
    "email": lambda r: f"{r.choice(WORDS)}@example.org",
}


class Maker:
    """Makes pairs of a schema and a function that makes an instance of it."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.defs = {}

    def string(self):
        r = self.r
        kind = r.randrange(6)
        if kind == 0:
            return {"type": "string"}, lambda: " ".join(r.choices(WORDS, k=r.randint(0, 4)))
        if kind == 1:
            low, high = r.randint(0, 3), r.randint(3, 12)
            return ({"type": "string", "minLength": low, "maxLength": high},
                    lambda: "".join(r.choice("aé\"\\/ z\n") for _ in range(r.randint(low, high))))
        if kind == 2:
            values = r.sample(WORDS, r.randint(1, 5))
            return {"enum": values}, lambda: r.choice(values)
        if kind == 3:
            pattern = r.choice(list(PATTERNS))
            return {"type": "string", "pattern": pattern}, lambda: PATTERNS[pattern](r)
        if kind == 4:
            form = r.choice(list(FORMATS))
            return {"type": "string", "format": form}, lambda: FORMATS[form](r)
        word = r.choice(WORDS)
        return {"const": word}, lambda: word

    def number(self):
        r = self.r
        kind = r.randrange(6)
        if kind == 0:
            return {"type": "integer"}, lambda: r.randint(-10**6, 10**6)
        if kind == 1:
            low = r.randint(-50, 50)
            high = low + r.randint(0, 500)
            return {"type": "integer", "minimum": low, "maximum": high}, lambda: r.randint(low, high)
        if kind == 2:
            low = r.randint(-5, 5)
            return ({"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": low + 20},
                    lambda: r.randint(low + 1, low + 19))
        if kind == 3:
            step = r.choice([2, 5, 10, 25])
            return {"type": "integer", "multipleOf": step, "minimum": 0}, lambda: step * r.randint(0, 40)
        if kind == 4:
            return {"type": "number"}, lambda: r.choice([0.5, -1.25, 3, 1e3, 17.125])
        return {"type": "number", "minimum": 0, "maximum": 1}, lambda: r.choice([0, 1, 0.5, 0.25])

    def array(self, depth):
        r = self.r
        items, make = self.value(depth - 1)
        low, high = r.randint(0, 2), r.randint(2, 4)
        if r.random() < 0.3:
            return {"type": "array", "items": items}, lambda: [make() for _ in range(r.randint(0, 3))]
        if r.random() < 0.2:
            first, make_first = self.value(0)
            return ({"type": "array", "prefixItems": [first, items], "items": False, "minItems": 2},
                    lambda: [make_first(), make()])
        return ({"type": "array", "items": items, "minItems": low, "maxItems": high},
                lambda: [make() for _ in range(r.randint(low, high))])

    def object(self, depth, names=None, most=6, closed=None):
        r = self.r
        names = names or r.sample(WORDS, r.randint(1, most))
        members = {name: self.value(depth - 1) for name in names}
        required = [name for name in names if r.random() < 0.6]
        schema = {"type": "object", "properties": {name: one for name, (one, _) in members.items()}}
        if required:
            schema["required"] = required
        more = r.randrange(3) if closed is None else 0
        if more == 0:
            schema["additionalProperties"] = False
        elif more == 1:
            extra, make_extra = self.value(0)
            schema["additionalProperties"] = extra
        if r.random() < 0.3:
            schema["description"] = "What it is, and (why not?) how."

        def make():
            made = {name: make() for name, (_, make) in members.items() if name in required or r.random() < 0.5}
            if more == 1 and r.random() < 0.5:
                made["zz_more"] = make_extra()
            if more == 2 and r.random() < 0.3:
                made["zz_any"] = r.choice([1, "x", None, {"a": [True]}])
            return made

        return schema, make

    def union(self, depth):
        r = self.r
        one, make_one = self.value(depth - 1)
        if r.random() < 0.4:
            tags = r.sample(WORDS, 2)
            parts = []
            for tag in tags:
                schema, make = self.object(0, names=["value"], closed=True)
                schema = copy.deepcopy(schema)
                schema["properties"] = {"kind": {"const": tag}, **schema["properties"]}
                schema["required"] = ["kind"] + schema.get("required", [])
                parts.append((schema, tag, make))
            key = r.choice(["anyOf", "oneOf"])

            def make():
                _, tag, part = r.choice(parts)
                return {"kind": tag, **part()}

            return {key: [schema for schema, _, _ in parts]}, make
        return {"anyOf": [one, {"type": "null"}]}, lambda: r.choice([None, make_one()])

    def value(self, depth):
        r = self.r
        if depth <= 0:
            pick = r.random()
            if pick < 0.45:
                return self.string()
            if pick < 0.8:
                return self.number()
            if pick < 0.9:
                return {"type": "boolean"}, lambda: r.random() < 0.5
            return {"type": ["string", "null"]}, lambda: r.choice([None, "x"])
        pick = r.random()
        if pick < 0.35:
            return self.value(0)
        if pick < 0.6:
            return self.object(depth, most=4)
        if pick < 0.8:
            return self.array(depth)
        if pick < 0.9 and self.defs:
            name = r.choice(list(self.defs))
            return {"$ref": f"#/$defs/{name}"}, self.defs[name][1]
        return self.union(depth)

    def function(self):
        return self.object(self.r.randint(1, 2), closed=True, most=7)

    def kubernetes(self):
        r = self.r
        name = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}
        labels = {"type": "object", "additionalProperties": {"type": "string"}}
        container = {"type": "object", "properties": {
            "name": name, "image": {"type": "string"}, "command": {"type": "array", "items": {"type": "string"}},
            "ports": {"type": "array", "items": {"type": "object", "properties": {
                "containerPort": {"type": "integer", "minimum": 1, "maximum": 65535},
                "protocol": {"enum": ["TCP", "UDP", "SCTP"]}}, "required": ["containerPort"]}},
            "resources": {"type": "object", "additionalProperties": {
                "type": "object", "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]+(m|Mi|Gi)?$"}]}}},
        }, "required": ["name"]}
        extra, make_extra = self.object(1, names=["strategy", "paused"], closed=True)
        kind = r.choice(["Deployment", "StatefulSet", "Job"])
        schema = {"type": "object", "properties": {
            "apiVersion": {"const": "apps/v1"}, "kind": {"const": kind},
            "metadata": {"type": "object", "properties": {"name": name, "labels": labels}, "required": ["name"]},
            "spec": {"type": "object", "properties": {
                "replicas": {"type": "integer", "minimum": 0, "format": "int32"},
                "containers": {"type": "array", "items": {"$ref": "#/$defs/container"}, "minItems": 1},
                "options": extra}, "required": ["containers"]}},
            "required": ["apiVersion", "kind", "metadata", "spec"], "$defs": {"container": container}}

        def make():
            return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web-1", "labels": {"app": "web", "tier": "x"}},
                    "spec": {"replicas": r.randint(0, 5), "containers": [
                        {"name": f"c{i}", "image": "a/b:1", "command": ["run", "--x"],
                         "ports": [{"containerPort": r.randint(1, 65535), "protocol": "TCP"}],
                         "resources": {"limits": {"cpu": r.choice([1, "500m"])}}} for i in range(r.randint(1, 2))],
                        "options": make_extra()}}

        return schema, make

    def api(self):
        r = self.r
        self.defs = {}
        for name in r.sample(WORDS, 3):
            self.defs[name] = self.object(1, closed=True)
        item = next(iter(self.defs))
        body, make_body = self.object(2, closed=True)
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {
            "items": {"type": "array", "items": {"$ref": f"#/$defs/{item}"}}, "next": {"type": ["string", "null"]},
            "body": body}, "required": ["items"], "$defs": {name: one for name, (one, _) in self.defs.items()}}
        make_item = self.defs[item][1]
        self.defs = {}
        return schema, lambda: {"items": [make_item() for _ in range(r.randint(0, 2))], "next": r.choice([None, "p2"]),
                                "body": make_body()}

    def keyword(self):
        """One keyword in the middle of a schema, those among them that no grammar expresses."""
        r = self.r
        n = r.randint(1, 9)
        name = r.choice(WORDS)
        one, make_one = r.choice([
            ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                        {"type": "object", "properties": {"b": {"type": "string", "maxLength": n}}, "required": ["b"]}]},
             lambda: {"a": n, "b": "x"}),
            ({"type": "object", "patternProperties": {"^x_[a-z]+$": {"type": "integer", "minimum": n}}, "additionalProperties": False},
             lambda: {"x_a": n, "x_bc": n + 1}),
            ({"type": "object", "properties": {name: {"type": "integer"}}, "minProperties": 1, "additionalProperties": False}, lambda: {name: n}),
            ({"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": n}, lambda: {"k": True}),
            ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, lambda: [n, n + 1]),
            ({"type": "array", "contains": {"const": n}}, lambda: [n]),
            ({"not": {"type": "string"}}, lambda: n),
            ({"if": {"type": "integer"}, "then": {"minimum": n}, "else": {"type": "string"}}, lambda: n),
            ({"type": "object", "dependentRequired": {"a": ["b"]}}, lambda: {"a": 1, "b": 2}),
            ({"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}}, lambda: {"a": 1, "b": 2}),
            ({"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}}, lambda: {"ab": 1}),
            ({"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False}, lambda: {"a": n}),
            ({"type": "array", "prefixItems": [{"type": "integer"}], "unevaluatedItems": False}, lambda: [n]),
            ({"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 10}, lambda: 0.25 * n),
            ({"type": "number", "exclusiveMinimum": n, "exclusiveMaximum": n + 1}, lambda: n + 0.5),
            ({"enum": [None, True, n, "a\"b", [1, {"x": []}], {"k": -0.5}]}, lambda: r.choice([None, True, n, [1, {"x": []}]])),
            ({"oneOf": [{"type": "integer", "maximum": n}, {"type": "integer", "minimum": 0}]}, lambda: n + 5),
            ({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
                "value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 3}},
                "required": ["value"], "additionalProperties": False}}},
             lambda: {"value": n, "children": [{"value": 1}, {"value": 2, "children": []}]}),
            ({"type": "array", "items": {"anyOf": [{"type": "string", "maxLength": n}, {"type": "array", "items": {"type": "null"}}]}},
             lambda: ["x", [None, None]]),
            ({"type": "string", "pattern": "(?=a)a", "maxLength": n}, lambda: "a"),
            (True, lambda: {"a": [n]}),
        ])
        if isinstance(one, dict) and "$ref" in one or one is True:
            return one, make_one
        return ({"type": "object", "properties": {"it": one}, "required": ["it"], "additionalProperties": False},
                lambda: {"it": make_one()})


def places(value, path=()):
    yield path
    if isinstance(value, dict):
        for key, one in value.items():
            yield from places(one, path + (key,))
    if isinstance(value, list):
        for i, one in enumerate(value):
            yield from places(one, path + (i,))


def broken(value, r):
    """The value with something else in one place."""
    value = copy.deepcopy(value)
    path = r.choice(list(places(value)))
    holder = [value]
    at, key = holder, 0
    for step in path:
        at, key = at[key], step
    old = at[key]
    if isinstance(old, dict) and old and r.random() < 0.5:
        old.pop(r.choice(list(old)))
    elif isinstance(old, dict) and r.random() < 0.5:
        old["zz_other"] = [0]
    elif isinstance(old, (int, float)) and r.random() < 0.5:
        at[key] = old * 1000 + 12345.5
    else:
        at[key] = r.choice([None, "a text that nothing asks for", -7, 0.125, True, [], [[]], {}, {"q": 1}])
    return holder[0]


def generated(seed):
    made = []
    kinds = {"function": 130, "kubernetes": 50, "api": 80, "keyword": 110}
    for kind, count in kinds.items():
        for i in range(count):
            maker = Maker(f"{seed} {kind} {i}")
            schema, make = getattr(maker, kind)()
            validator = jsonschema.Draft202012Validator(
                schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
            validator.check_schema(schema)
            valid, invalid = [], []
            for _ in range(3):
                one = make()
                assert validator.is_valid(one), (kind, i, schema, one, [e.message for e in validator.iter_errors(one)])
                if one not in valid:
                    valid.append(one)
            for _ in range(12):
                one = broken(maker.r.choice(valid), maker.r)
                if not validator.is_valid(one) and one not in invalid and len(invalid) < 3:
                    invalid.append(one)
            made.append({"name": f"{kind} {i}", "schema": schema, "valid": valid, "invalid": invalid})
    return made


def official(folder):
    made = []
    for file in sorted(pathlib.Path(folder).glob("*.json")):
        for case in json.loads(file.read_text()):
            if "localhost" in json.dumps(case["schema"]) or "http://" in json.dumps(case["schema"].get("$ref", "") if isinstance(case["schema"], dict) else ""):
                continue  # remote references
            made.append({"name": f"{file.stem}: {case['description']}", "schema": case["schema"],
                         "valid": [test["data"] for test in case["tests"] if test["valid"]],
                         "invalid": [test["data"] for test in case["tests"] if not test["valid"]]})
    return made


def write(name, made):
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in made)
    (HERE / name).write_text(f"[\n{lines}\n]\n")
    print(f"{name}: {len(made)} schemas, {sum(len(m['valid']) for m in made)} valid and {sum(len(m['invalid']) for m in made)} invalid instances")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", default="2026")
    parser.add_argument("--suite")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    write("schemas.json", generated(options.seed))
    if options.suite:
        write("official.json", official(options.suite))


if __name__ == "__main__":
    main()
