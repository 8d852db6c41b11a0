#!/usr/bin/env python3
"""Writes the table of the values that an installer decides first (FIRST) in the chart's README, from the comments of values.yaml ("# -- ", as
helm-docs has them). `helm show values` prints all of them.

    deploy/helm/docs.py [--check]
"""
import json
import pathlib
import re
import sys

import yaml

CHART = pathlib.Path(__file__).resolve().parent / "baton"
# In the order of the table. A name that values.yaml no longer has is an error.
FIRST = """
image.repository image.tag model.name model.source models
router.replicas prefill.replicas decode.replicas gateway.replicas node.enabled
prefill.gpus decode.gpus prefill.backend decode.backend prefill.kvMemory decode.kvMemory link.name
gateway.enabled gateway.service.type route.enabled networkPolicy.clients
auth.tenants.existingSecret auth.fleetKey.existingSecret tls.enabled tls.certManager.enabled
slo.ttftSeconds slo.tpotSeconds prefill.autoscaling.enabled decode.autoscaling.enabled
observability.serviceMonitor.enabled observability.prometheusRule.enabled observability.dashboards.enabled
""".split()
BEGIN, END = "<!-- values: made by deploy/helm/docs.py -->", "<!-- end of values -->"


def described(text):
    """{path: comment}, in the order of the file."""
    found, path, comment = {}, [], []
    for line in text.splitlines():
        if match := re.match(r"\s*# -- (.*)", line):
            comment = [match[1]]
        elif comment and (match := re.match(r"\s*# ?(.*)", line)):
            comment.append(match[1])
        elif match := re.match(r"( *)([A-Za-z0-9_.-]+):", line):
            depth = len(match[1]) // 2
            path = path[:depth] + [match[2]]
            if comment:
                found[tuple(path)] = " ".join(comment)
                comment = []
    return found


def leaves(value, path=()):
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, path + (key,))
    else:
        yield path, value


def first_sentence(comment):
    """Without an example in braces at its end."""
    sentence = re.match(r".*?\.(?=\s|$)|.*", comment)[0]
    return re.sub(r": \{.*\}\.$", ".", sentence)


def table():
    text = (CHART / "values.yaml").read_text()
    values, comments = yaml.safe_load(text), described(text)
    for path, _ in leaves(values):
        if not any(path[:end] in comments for end in range(1, len(path) + 1)):
            raise SystemExit(f"values.yaml: {'.'.join(path)} has no '# -- ' comment")
    rows = ["| Key | Default | |", "|---|---|---|"]
    same = {}
    for name in FIRST:
        path = tuple(name.split("."))
        if path not in comments:
            raise SystemExit(f"values.yaml has no {name}, or no comment on it: correct FIRST in deploy/helm/docs.py")
        value = values
        for key in path:
            value = value[key]
        shown, sentence = json.dumps(value, ensure_ascii=False), first_sentence(comments[path])
        # The roles have the same keys: those that say the same are shown once.
        if path[0] in ("router", "prefill", "decode", "gateway"):
            entry = same.setdefault((path[1:], shown, sentence), [len(rows), []])
            entry[1].append(path[0])
            if entry[1][1:]:
                rows[entry[0]] = f"| `{{{','.join(entry[1])}}}.{'.'.join(path[1:])}` | `{shown}` | {sentence} |"
                continue
        rows.append(f"| `{name}` | `{shown}` | {sentence} |")
    return "\n".join(rows)


def main():
    readme = CHART / "README.md"
    old = readme.read_text()
    head, rest = old.split(BEGIN)
    new = f"{head}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"
    if "--check" in sys.argv[1:]:
        if new != old:
            print("deploy/helm/baton/README.md is not what values.yaml says: run deploy/helm/docs.py", file=sys.stderr)
        return int(new != old)
    readme.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
