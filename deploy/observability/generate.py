#!/usr/bin/env python3
"""Writes what the chart carries: dashboards (JSON), rules (YAML), and promtool's tests of the alerts.

    deploy/observability/generate.py [--check]     --check changes nothing and fails if something would change
"""
import json
import pathlib
import sys

import dashboards
import rules

HERE = pathlib.Path(__file__).resolve().parent
FILES = HERE.parent / "helm" / "baton" / "files"
MADE = "# Made by deploy/observability/generate.py from rules.py: change it there.\n"


def quoted(text):
    # A JSON string is a YAML string.
    return json.dumps(text, ensure_ascii=False)


def listed(scenes):
    return scenes if isinstance(scenes, list) else [scenes]


def rules_yaml():
    lines = [MADE + "groups:"]
    lines.append("  - name: baton.recording\n    rules:")
    for rule in rules.recordings():
        lines.append(f"      - record: {rule['record']}\n        expr: {quoted(rule['expr'])}")
    lines.append("  - name: baton.alerts\n    rules:")
    for rule in rules.alerts():
        lines.append(f"      - alert: {rule['alert']}\n        expr: {quoted(rule['expr'])}\n        for: {rule['for']}")
        for part in ("labels", "annotations"):
            lines.append(f"        {part}:")
            lines += [f"          {key}: {quoted(value)}" for key, value in rule[part].items()]
    return "\n".join(lines) + "\n"


def tests_yaml(days):
    """Each alert in two scenes, or several of a kind. That it fires is asked of the ALERTS series, so that labels and texts need no second copy.
    promtool evaluates every rule at every step of every scene, so those that take days have a file of their own, with longer steps.
    It takes groups in no fixed order unless told: an alert evaluated before the recording it reads would see the step before."""
    lines = [
        MADE + "rule_files: [../../helm/baton/files/baton.rules.yaml]",
        f"group_eval_order: [baton.recording, baton.alerts]\nevaluation_interval: {'15m' if days else '1m'}\ntests:",
    ]
    for rule in rules.alerts():
        test = rule["_test"]
        if (test["at"] == "26h") != days:
            continue
        scenes = [(kind, count, at) for kind, count in (("fires", 1), ("quiet", 0)) for at in range(len(listed(test[kind])))]
        for kind, count, at in scenes:
            lines.append(f"  - name: {rule['alert']} {kind}{f'-{at + 1}' if at else ''}\n    interval: 1m\n    input_series:")
            for series, values in listed(test[kind])[at].items():
                lines.append(f"      - series: {quoted(series)}\n        values: {quoted(values)}")
            expression = f'count(ALERTS{{alertname="{rule["alert"]}",alertstate="firing"}}) or vector(0)'
            lines.append(
                f"    promql_expr_test:\n      - expr: {quoted(expression)}\n        eval_time: {test['at']}\n"
                f"        exp_samples:\n          - labels: '{{}}'\n            value: {count}"
            )
    return "\n".join(lines) + "\n"


def outputs():
    made = {}
    for make in dashboards.ALL_DASHBOARDS:
        board = make()
        name = board["uid"].removeprefix("baton-")
        made[FILES / "dashboards" / f"{name}.json"] = json.dumps(board, indent=1) + "\n"
    made[FILES / "baton.rules.yaml"] = rules_yaml()
    made[HERE / "tests" / "rules_test.yaml"] = tests_yaml(days=False)
    made[HERE / "tests" / "rules_of_days_test.yaml"] = tests_yaml(days=True)
    return made


def main():
    made = outputs()
    stray = [path for path in (FILES / "dashboards").glob("*.json") if path not in made]
    if "--check" in sys.argv[1:]:
        stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text] + stray
        for path in stale:
            print(f"{path.relative_to(HERE.parent.parent)} is not what its source says: run deploy/observability/generate.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stray:
        path.unlink()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(f"{len(made)} files written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
