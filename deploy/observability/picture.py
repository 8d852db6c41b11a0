#!/usr/bin/env python3
"""Draws the main panels as one SVG, from a Prometheus that has scraped a relay: the picture of the README. Queries, titles, units and colours
are those of the dashboards.

    deploy/observability/picture.py --prometheus HOST:PORT --minutes 5 --out docs/dashboard.svg [--mark TIME:TEXT ...] [--caption TEXT]
"""
import argparse
import json
import math
import pathlib
import time
import urllib.parse
import urllib.request
import zlib
from xml.sax.saxutils import escape

import colours

BOARDS = pathlib.Path(__file__).resolve().parent.parent / "helm" / "baton" / "files" / "dashboards"
PANELS = [
    ("overview", "Outcomes"),
    ("overview", "Refused and failed"),
    ("overview", "Goodput"),
    ("overview", "TTFT"),
    ("overview", "TPOT"),
    ("ttft", "TTFT by phase"),
    ("overview", "Tokens"),
    ("kv", "Hit rate"),
    ("kv", "Hand-offs"),
]
# For names that have no colour of their own.
PALETTE = ["#8AB8FF", "#96D98D", "#FFCB7D", "#CA95E5", "#FFEE52", "#6ED0E0"]
WIDTH, HEIGHT, GAP, COLUMNS = 400, 256, 12, 3
LEFT, TOP, BOTTOM, RIGHT = 88, 40, 68, 14
# Entries of a legend side by side, and rows.
ACROSS, DOWN = 3, 3
RATES = {"reqps": "req/s", "Bps": "B/s", "bytes": "B", "percentunit": "%"}


def scaled(value):
    for limit, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{letter} "
    return f"{value:.3g} "


def shown(value, unit):
    """With its unit, as Grafana shows it."""
    if unit == "s":
        for limit, factor, name in ((1, 1, "s"), (1e-3, 1e3, "ms"), (0, 1e6, "us")):
            if value >= limit and value > 0:
                return f"{value * factor:.3g} {name}"
        return "0 s"
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    return scaled(value) + RATES.get(unit, unit.removeprefix("count:"))


def series(address, expression, legend, begin, end, step):
    query = urllib.parse.urlencode({"query": expression, "start": begin, "end": end, "step": step})
    with urllib.request.urlopen(f"http://{address}/api/v1/query_range?{query}", timeout=60) as answer:
        result = json.load(answer)["data"]["result"]
    for one in result:
        name = legend
        for label, value in one["metric"].items():
            name = name.replace("{{%s}}" % label, value)
        yield name, {float(t): float(v) for t, v in one["values"] if math.isfinite(float(v))}


def lines_of(panel, address, begin, end, step):
    """[(name, {time: value})], in the order in which they are stacked; without those that are nothing all the time."""
    found = []
    for target in panel["targets"]:
        expression = target["expr"].replace("$__rate_interval", "15s")
        for name in ("$namespace", "$release", "$worker", "$tenant"):
            expression = expression.replace(name, ".*")
        found += series(address, expression, target["legendFormat"], begin, end, step)
    # The phases in the order in which they happen, and answers below what was refused.
    order = colours.LABELS["phase"] + colours.LABELS["outcome"] + colours.LABELS["slo"] + ["p50", "p95", "p99", colours.SLO]
    found.sort(key=lambda line: (order.index(line[0]) if line[0] in order else 0, line[0]))
    return [(name, values) for name, values in found if any(values.values())]


def colour_of(panel, name):
    for override in panel["fieldConfig"]["overrides"]:
        if override["matcher"]["options"] == name:
            return next(one["value"]["fixedColor"] for one in override["properties"] if one["id"] == "color")
    return PALETTE[zlib.crc32(name.encode()) % len(PALETTE)]


def ceiling(value):
    """A round number at or above value."""
    if value <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return next(power * m for m in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if power * m >= value * 0.9999)


def layers_of(lines, stacked):
    """[(name, {time: bottom}, {time: top})]: what is stacked stands on what came before, the SLO's line on nothing."""
    floor, layers = {}, []
    for name, values in lines:
        on = stacked and name != colours.SLO
        low = {t: floor.get(t, 0.0) if on else 0.0 for t in values}
        high = {t: low[t] + value for t, value in values.items()}
        if on:
            floor |= high
        layers.append((name, low, high))
    return layers


def frame(panel, x, y, top, at_x, at_y, begin, end):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    out = [f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="3" fill="#181b1f" stroke="#2c3235"/>']
    out.append(f'<text x="{x + 12}" y="{y + 22}" class="title">{escape(panel["title"])}</text>')
    for part in range(5):
        value = top * part / 4
        out.append(f'<line x1="{x + LEFT}" x2="{x + WIDTH - RIGHT}" y1="{at_y(value):.1f}" y2="{at_y(value):.1f}" stroke="#2c3235"/>')
        out.append(f'<text x="{x + LEFT - 6}" y="{at_y(value) + 4:.1f}" class="axis" text-anchor="end">{escape(shown(value, unit))}</text>')
    for part in range(5):
        t = begin + (end - begin) * part / 4
        anchor = ("start", "middle", "middle", "middle", "end")[part]
        minutes, seconds = divmod(round(t - begin), 60)
        out.append(f'<text x="{at_x(t):.1f}" y="{y + HEIGHT - BOTTOM + 15}" class="axis" text-anchor="{anchor}">{minutes}:{seconds:02d}</text>')
    return out


def draw(panel, x, y, lines, begin, end, marks=()):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    stacked = panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    layers = layers_of(lines, stacked)
    top = panel["fieldConfig"]["defaults"].get("max") or ceiling(max((v for *_, high in layers for v in high.values()), default=1))
    at_x = lambda t: x + LEFT + (WIDTH - LEFT - RIGHT) * (t - begin) / (end - begin)
    at_y = lambda v: y + HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * v / top
    out = frame(panel, x, y, top, at_x, at_y, begin, end)
    for letter, (t, _) in zip("ABCDEFGH", marks):
        out.append(f'<line x1="{at_x(t):.1f}" x2="{at_x(t):.1f}" y1="{y + TOP}" y2="{y + HEIGHT - BOTTOM}" stroke="#6b7079" stroke-dasharray="2 3"/>')
        out.append(f'<text x="{at_x(t):.1f}" y="{y + TOP - 4}" class="axis" text-anchor="middle">{letter}</text>')
    for name, low, high in layers:
        colour, stamps = colour_of(panel, name), sorted(high)
        points = [f"{at_x(t):.1f},{at_y(high[t]):.1f}" for t in stamps]
        if stacked and name != colours.SLO:
            base = [f"{at_x(t):.1f},{at_y(low[t]):.1f}" for t in reversed(stamps)]
            out.append(f'<polygon points="{" ".join(points + base)}" fill="{colour}" fill-opacity="0.45"/>')
        style = 'stroke-width="1.8" stroke-dasharray="6 4"' if name == colours.SLO else 'stroke-width="1.5"'
        out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" {style}/>')
    for index, (name, values) in enumerate(lines[: ACROSS * DOWN]):
        left = x + 14 + (index % ACROSS) * (WIDTH - 20) / ACROSS
        base = y + HEIGHT - 32 + 14 * (index // ACROSS)
        mean = sum(values.values()) / len(values)
        out.append(f'<rect x="{left:.1f}" y="{base - 7}" width="9" height="3" fill="{colour_of(panel, name)}"/>')
        out.append(f'<text x="{left + 13:.1f}" y="{base - 2}" class="axis">{escape(name)}  {escape(shown(mean, unit))}</text>')
    return out


def picture(address, begin, end, marks, caption):
    step = max(1, round((end - begin) / 150))
    rows = math.ceil(len(PANELS) / COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP + 44
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="Inter, Helvetica, Arial, sans-serif">',
        "<style>.title{fill:#d8d9da;font-size:14px;font-weight:500}.axis{fill:#b4bac4;font-size:10px}.note{fill:#d8d9da;font-size:12px}</style>",
        f'<rect width="{width}" height="{height}" fill="#111217"/>',
    ]
    for index, (board, title) in enumerate(PANELS):
        panels = json.loads((BOARDS / f"{board}.json").read_text())["panels"]
        panel = next(one for one in panels if one["title"] == title and one["type"] == "timeseries")
        lines = lines_of(panel, address, begin, end, step)
        out += draw(panel, GAP + (index % COLUMNS) * (WIDTH + GAP), GAP + index // COLUMNS * (HEIGHT + GAP), lines, begin, end, marks)
    said = ".  ".join(f"{letter}: {text}" for letter, (_, text) in zip("ABCDEFGH", marks))
    out.append(f'<text x="{GAP + 4}" y="{height - 32}" class="note">{escape(said)}</text>')
    out.append(f'<text x="{GAP + 4}" y="{height - 13}" class="note">{escape(caption)} Dashed red: the SLO. Legends show means.</text></svg>')
    return "\n".join(out) + "\n"


def mark(text):
    at, _, what = text.partition(":")
    return float(at), what


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prometheus", required=True)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--out", required=True)
    parser.add_argument("--caption", default="")
    parser.add_argument("--mark", type=mark, action="append", default=[], help="seconds since 1970, a colon, and what happened then")
    parser.add_argument("--end", type=float, default=time.time(), help="seconds since 1970; default: now")
    given = parser.parse_args()
    text = picture(given.prometheus, given.end - 60 * given.minutes, given.end, given.mark, given.caption)
    pathlib.Path(given.out).write_text(text)


if __name__ == "__main__":
    main()
