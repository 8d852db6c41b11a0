"""What a colour means, on every panel of every dashboard and in the README's picture:

    green    well: answered, kept the SLO          red     failed; a dashed red line is the SLO
    orange   refused, or late                      grey    the client's own doing, or idle
    blue     prefill, prompts                      purple  decode, answers
    teal     KV: cached, or on its way             yellow  the router, and waiting

Series whose names are not known beforehand (workers, tenants) take a colour by their name, the same on every panel.
"""

GREEN, ORANGE, RED, GREY = "#73BF69", "#FF9830", "#F2495C", "#8E9196"
BLUE, PURPLE, TEAL, YELLOW = "#5794F2", "#B877D9", "#37B7C3", "#E5C000"
LIGHT_BLUE, LIGHT_PURPLE, LIGHT_TEAL, DARK_RED, DARK_GREY = "#A8C9FF", "#DDB8F0", "#A5E3E8", "#A31D2E", "#575B63"

SLO = "SLO"
_MEANING = {
    GREEN: ["OK", "ok", "met", "complete", "well", "harmless"],
    ORANGE: ["RESOURCE_EXHAUSTED", "refused", "missed", "given_up", "preempted", "flagged"],
    RED: ["INTERNAL", "UNAVAILABLE", "failed", "lost running", SLO],
    DARK_RED: ["UNKNOWN", "DATA_LOSS", "ABORTED", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "lost before_accepted", "passed unjudged"],
    GREY: ["CANCELLED", "cancelled", "bad"],
    DARK_GREY: ["INVALID_ARGUMENT", "NOT_FOUND", "UNAUTHENTICATED", "PERMISSION_DENIED", "free"],
    BLUE: ["prefill", "prompt", "prefilling", "prefill found", "loaded"],
    LIGHT_BLUE: ["prefill_queue", "prefill predicted", "loaded, shared"],
    PURPLE: ["decode", "answer", "first_token", "running", "decode found", "held", "written"],
    LIGHT_PURPLE: ["decode_queue", "decode predicted", "written, shared"],
    TEAL: ["transfer", "cached", "handoff", "shared"],
    YELLOW: ["router", "admit", "queued", "verdict"],
    # Quantiles: the further out, the stronger.
    "#F2F2F2": ["p50", "mean"],
    LIGHT_TEAL: ["p95", "TTFT"],
    "#FFB3BC": ["p99", "TPOT"],
}
OF = {name: colour for colour, names in _MEANING.items() for name in names}
# The values of labels that legends consist of.
LABELS = {
    "outcome": ["OK", "RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE", "UNKNOWN", "DATA_LOSS", "ABORTED", "DEADLINE_EXCEEDED", "UNIMPLEMENTED",
                "CANCELLED", "INVALID_ARGUMENT", "NOT_FOUND", "UNAUTHENTICATED", "PERMISSION_DENIED", "ok", "cancelled", "failed", "refused",
                "complete", "missed", "given_up"],  # fmt: skip
    "phase": ["admit", "decode_queue", "prefill_queue", "prefill", "transfer", "first_token"],
    "state": ["free", "held", "cached", "handoff", "prefilling", "running", "preempted"],
    "slo": ["met", "missed"],
    "result": ["harmless", "flagged", "failed"],
    "component": ["router", "prefill", "decode", "gateway"],
    "pool": ["prefill", "decode"],
    "when": ["running", "before_accepted"],
}


def named(legend):
    """The names that a legend can become, as far as they are known: "{{pool}} found" becomes "prefill found" and "decode found"."""
    for label, values in LABELS.items():
        if "{{%s}}" % label in legend:
            return [name for value in values for name in named(legend.replace("{{%s}}" % label, value))]
    return [] if "{{" in legend else [legend]


def overrides(legends):
    """Grafana's field overrides for a panel with these legends."""
    made = []
    for name in dict.fromkeys(name for legend in legends for name in named(legend) if name in OF):
        properties = [{"id": "color", "value": {"mode": "fixed", "fixedColor": OF[name]}}]
        if name == SLO:
            properties += [
                {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
                {"id": "custom.lineWidth", "value": 2},
                {"id": "custom.fillOpacity", "value": 0},
                {"id": "custom.stacking", "value": {"mode": "none", "group": "A"}},
            ]
        made.append({"matcher": {"id": "byName", "options": name}, "properties": properties})
    return made
