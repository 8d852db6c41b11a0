#!/usr/bin/env python3
"""Draws the main panels as one SVG, from a Prometheus that has scraped a relay: the picture of the README. The queries, titles and units
are those of the dashboards.

    deploy/observability/picture.py --prometheus HOST:PORT --minutes 5 --out docs/dashboard.svg [--caption TEXT]
"""
import argparse
import json
import math
import pathlib
import time
import urllib.parse
import urllib.request
from xml.sax.saxutils import escape

BOARDS = pathlib.Path(__file__).resolve().parent.parent / "helm" / "baton" / "files" / "dashboards"
PANELS = [
    ("overview", "Outcomes"),
    ("overview", "TTFT"),
    ("overview", "TPOT"),
    ("ttft", "TTFT by phase"),
    ("kv", "Hit rate"),
    ("decode", "KV in use"),
]
COLOURS = ["#5794f2", "#ff9830", "#73bf69", "#f2495c", "#b877d9", "#fade2a", "#8ab8ff", "#96d98d"]
WIDTH, HEIGHT, GAP, COLUMNS = 400, 250, 12, 3
LEFT, TOP, BOTTOM = 56, 40, 58


def shown(value, unit):
    if unit == "s" and 0 < value < 1e-3:
        return f"{value * 1e6:.0f} us"
    if unit == "s":
        return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    return f"{value:.3g}"


def series(address, expression, legend, begin, end, step):
    query = urllib.parse.urlencode({"query": expression, "start": begin, "end": end, "step": step})
    with urllib.request.urlopen(f"http://{address}/api/v1/query_range?{query}", timeout=60) as answer:
        result = json.load(answer)["data"]["result"]
    for one in result:
        name = legend
        for label, value in one["metric"].items():
            name = name.replace("{{%s}}" % label, value)
        yield name, {float(t): float(v) for t, v in one["values"] if math.isfinite(float(v))}


def ceiling(value):
    """A round number at or above value."""
    if value <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(value))
    return next(power * m for m in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * m >= value * 0.9999)


def draw(panel, x, y, lines, begin, end):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    stacked = panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    stamps = sorted({t for _, values in lines for t in values})
    floor = {t: 0.0 for t in stamps}
    layers = []
    for name, values in lines:
        low = dict(floor)
        high = {t: (floor[t] if stacked else 0) + values[t] for t in values}
        if stacked:
            for t in high:
                floor[t] = high[t]
        layers.append((name, values, low, high))
    top = ceiling(max((v for *_, high in layers for v in high.values()), default=1))
    if unit == "percentunit":
        top = 1.0
    at_x = lambda t: x + LEFT + (WIDTH - LEFT - 12) * (t - begin) / (end - begin)
    at_y = lambda v: y + HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * v / top
    out = [f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="3" fill="#181b1f" stroke="#2c3235"/>']
    out.append(f'<text x="{x + 12}" y="{y + 22}" class="title">{escape(panel["title"])}</text>')
    for part in range(5):
        value = top * part / 4
        out.append(f'<line x1="{x + LEFT}" x2="{x + WIDTH - 12}" y1="{at_y(value):.1f}" y2="{at_y(value):.1f}" stroke="#2c3235"/>')
        out.append(f'<text x="{x + LEFT - 6}" y="{at_y(value) + 4:.1f}" class="axis" text-anchor="end">{shown(value, unit)}</text>')
    for part in range(5):
        t = begin + (end - begin) * part / 4
        anchor = "end" if part == 4 else "middle"
        out.append(f'<text x="{at_x(t):.1f}" y="{y + HEIGHT - BOTTOM + 16}" class="axis" text-anchor="{anchor}">{time.strftime("%H:%M", time.gmtime(t))}</text>')
    for index, (name, values, low, high) in enumerate(layers):
        colour = COLOURS[index % len(COLOURS)]
        points = [f"{at_x(t):.1f},{at_y(high[t]):.1f}" for t in sorted(high)]
        if not points:
            continue
        if stacked:
            base = [f"{at_x(t):.1f},{at_y(low[t]):.1f}" for t in sorted(high, reverse=True)]
            out.append(f'<polygon points="{" ".join(points + base)}" fill="{colour}" fill-opacity="0.45"/>')
        out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.4"/>')
    across = 3 if len(layers) <= 6 else 4
    for index, (name, values, *_) in enumerate(layers[: 2 * across]):
        left = x + 14 + (index % across) * (WIDTH - 20) / across
        base = y + HEIGHT - 22 + 14 * (index // across)
        mean = sum(values.values()) / len(values) if values else 0
        out.append(f'<rect x="{left:.1f}" y="{base - 7}" width="9" height="3" fill="{COLOURS[index % len(COLOURS)]}"/>')
        out.append(f'<text x="{left + 13:.1f}" y="{base - 2}" class="axis">{escape(name)}  {shown(mean, unit)}</text>')
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prometheus", required=True)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--out", required=True)
    parser.add_argument("--caption", default="")
    parser.add_argument("--end", type=float, default=time.time(), help="seconds since 1970; default: now")
    given = parser.parse_args()
    end = given.end
    begin = end - 60 * given.minutes
    step = max(1, round(60 * given.minutes / 120))
    rows = math.ceil(len(PANELS) / COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP + 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="Inter, Helvetica, Arial, sans-serif">',
        "<style>.title{fill:#d8d9da;font-size:14px;font-weight:500}.axis{fill:#9fa7b3;font-size:9.5px}</style>",
        f'<rect width="{width}" height="{height}" fill="#111217"/>',
    ]
    for index, (board, title) in enumerate(PANELS):
        panels = json.loads((BOARDS / f"{board}.json").read_text())["panels"]
        panel = next(one for one in panels if one["title"] == title)
        lines = []
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "30s")
            for name in ("$namespace", "$release", "$worker", "$tenant"):
                expression = expression.replace(name, ".*")
            lines += series(given.prometheus, expression, target["legendFormat"], begin, end, step)
        # The phases in the order in which they happen.
        order = ["admit", "decode_queue", "prefill_queue", "prefill", "transfer", "first_token"]
        lines.sort(key=lambda line: (order.index(line[0]) if line[0] in order else 0, line[0]))
        out += draw(panel, GAP + (index % COLUMNS) * (WIDTH + GAP), GAP + index // COLUMNS * (HEIGHT + GAP), lines, begin, end)
    out.append(f'<text x="{GAP + 4}" y="{height - 14}" class="axis">{escape(given.caption)} Legends show means.</text></svg>')
    pathlib.Path(given.out).write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
