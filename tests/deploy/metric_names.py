"""Which metrics the code exports, and which ones a query asks for. For tests."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Not of the code: Prometheus' own, and the recording rules (with a colon).
FOREIGN = {"up"}


def exported():
    """Every metric name that stands in a probe of the source."""
    names = set()
    for folder in ("common", "text", "engine", "transfer", "worker", "router", "prefill_service", "decode_service", "gateway"):
        for path in (ROOT / folder).rglob("*.cc"):
            names.update(re.findall(r'"((?:baton|process)_[a-z0-9_]+)"', path.read_text()))
            names.update(re.findall(r'"(baton_[a-z0-9_]+)"', path.with_suffix(".h").read_text()) if path.with_suffix(".h").exists() else [])
    return names


def asked(expression):
    """Metric names in a PromQL expression: words that are no function, label, keyword or string."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    bare = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    bare = re.sub(r"\{[^}]*\}", " ", bare)
    bare = re.sub(r"\[[^\]]*\]", " ", bare)
    bare = re.sub(r"\boffset\s+\w+", " ", bare)
    words = set(re.findall(r"[A-Za-z_:][A-Za-z0-9_:]*(?!\s*\()\b", re.sub(r"[A-Za-z_:][A-Za-z0-9_:]*\s*\(", "(", bare)))
    return {word for word in words if word.startswith(("baton", "process_")) or word in FOREIGN}


def family(name):
    """Of a histogram's series."""
    return re.sub(r"_(bucket|sum|count)$", "", name)
