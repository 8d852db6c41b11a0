"""The grammar of our dashboards: a panel is a title, what it means, a unit and its queries. Grafana's JSON is made here and nowhere
else.

In queries, ALL stands for the labels by which every dashboard is filtered, ONE for those and the worker chosen. A unit is Grafana's id, or
`count(...)` of what is counted: no panel shows a bare number.
"""
import colours

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
ALL = 'namespace=~"$namespace",release=~"$release"'
ONE = ALL + ',pod=~"$worker"'
# The least step of queries: how often Prometheus asks, or $__rate_interval may hold one sample and rates are empty. The chart puts its own interval here.
STEP = "15s"
TENANT = ALL + ',tenant=~"$tenant"'


def expand(expression):
    return expression.replace("TENANT", TENANT).replace("ALL", ALL).replace("ONE", ONE)


def steps(*pairs):
    """(None, "green"), (0.05, "red"): colours from values up."""
    return [{"value": value, "color": colour} for value, colour in pairs]


def count(what):
    """Grafana's unit of so many of something: 1.2K tok/s."""
    return f"count:{what}"


def panel(title, description, unit, queries, kind="timeseries", thresholds=None, stack=False, width=8, height=8, low=None, high=None, slo=None):
    """queries: {legend: expression}. slo: "ttft" or "tpot" draws a line at what the routers judge by."""
    if slo:
        queries = queries | {colours.SLO: f'max(baton_router_slo_seconds{{ALL,slo="{slo}"}})'}
    defaults = {"unit": unit, "custom": {}, "color": {"mode": "palette-classic-by-name" if kind == "timeseries" else "thresholds"}}
    if low is not None:
        defaults["min"] = low
    if high is not None:
        defaults["max"] = high
    if kind == "timeseries":
        defaults["custom"] = {
            "lineWidth": 1,
            "fillOpacity": 40 if stack else 8,
            "showPoints": "never",
            "stacking": {"mode": "normal" if stack else "none", "group": "A"},
        }
        if thresholds:
            defaults["custom"]["thresholdsStyle"] = {"mode": "line"}
    # Without thresholds nothing is judged, and nothing is green.
    defaults["thresholds"] = {"mode": "absolute", "steps": thresholds or steps((None, "text"))}
    options = {
        "timeseries": {
            "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["mean", "max"], "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "stat": {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value", "graphMode": "area"},
        "table": {"showHeader": True, "cellHeight": "sm"},
        "heatmap": {"calculate": False, "yAxis": {"unit": unit}, "color": {"mode": "scheme", "scheme": "Oranges"}},
    }[kind]
    targets = []
    for index, (legend, expression) in enumerate(queries.items()):
        target = {
            "refId": chr(ord("A") + index),
            "datasource": DATASOURCE,
            "expr": expand(expression),
            "legendFormat": legend,
            "interval": STEP,
            "editorMode": "code",
            "range": kind in ("timeseries", "heatmap"),
            "instant": kind in ("stat", "table"),
        }
        if kind == "table":
            target["format"] = "table"
        if kind == "heatmap":
            target["format"] = "heatmap"
        targets.append(target)
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": colours.overrides(queries) if kind == "timeseries" else []},
        "options": options,
        "targets": targets,
        "gridPos": {"w": width, "h": height},
    }


def stat(title, description, unit, expression, thresholds=None, **more):
    return panel(title, description, unit, {"value": expression}, kind="stat", thresholds=thresholds, width=3, height=4, **more)


def table(title, description, unit, queries, width=12):
    return panel(title, description, unit, queries, kind="table", width=width)


def row(title):
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": 24, "h": 1}}


def variable(name, label, query, metric_all=".*"):
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": metric_all,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def variables(extra=()):
    scope = 'namespace=~"$namespace",release=~"$release"'
    found = [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
            "current": {"text": "default", "value": "default"},
            "refresh": 1,
        },
        variable("namespace", "Namespace", "label_values(baton_router_running, namespace)"),
        variable("release", "Release", 'label_values(baton_router_running{namespace=~"$namespace"}, release)'),
    ]
    if "worker" in extra:
        found.append(variable("worker", "Worker", "label_values(baton_kv_blocks{%s}, pod)" % scope))
    if "tenant" in extra:
        found.append(variable("tenant", "Tenant", "label_values(baton_router_tenant_admitted_total{%s}, tenant)" % scope))
    return found


def dashboard(uid, title, description, panels, extra=(), last="1h"):
    x = y = tallest = 0
    for number, one in enumerate(panels, 1):
        one["id"] = number
        place = one["gridPos"]
        if x + place["w"] > 24 or one["type"] == "row":
            x, y, tallest = 0, y + tallest, 0
        place["x"], place["y"] = x, y
        x, tallest = x + place["w"], max(tallest, place["h"])
        if one["type"] == "row":
            x, y, tallest = 0, y + 1, 0
    return {
        "uid": "baton-" + uid,
        "title": "Baton / " + title,
        "description": description,
        "tags": ["baton"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-" + last, "to": "now"},
        "timezone": "browser",
        "links": [
            {"type": "dashboards", "title": "Baton", "tags": ["baton"], "asDropdown": True, "includeVars": True, "keepTime": True}
        ],
        "templating": {"list": variables(extra)},
        "annotations": {"list": []},
        "panels": panels,
    }
