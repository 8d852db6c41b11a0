"""Recording rules and alerts. An alert's `test` is a pair of scenes for promtool, or of lists of them: series under which it fires, and series under which
it does not; generate.py writes both beside the rules.
"""

BY = "namespace, release"
# Outcomes that the service causes. Overload (RESOURCE_EXHAUSTED) has its own alert; clients cause the rest.
OURS = "INTERNAL|UNKNOWN|UNAVAILABLE|DATA_LOSS|ABORTED|DEADLINE_EXCEEDED|UNIMPLEMENTED"
# The share of answers that should keep the SLO. The SLO's bounds are not here: routers export them (baton_router_slo_seconds) and count
# answers over them (baton_router_over_slo_total), so the rules follow the flags --slo-ttft and --slo-tpot, and through them the chart's slo.*.
OBJECTIVE = 0.99
# Waiting for the link matters from this share of the SLO of TTFT on.
LINK_SHARE = 0.05


def recordings():
    rules = []

    def record(name, expression):
        rules.append({"record": name, "expr": expression})

    record("baton:requests:rate5m", f"sum by ({BY}, outcome) (rate(baton_router_requests_total[5m]))")
    record(
        "baton:errors:ratio_rate5m",
        f'(sum by ({BY}) (rate(baton_router_requests_total{{outcome=~"{OURS}"}}[5m])) or sum by ({BY}) (baton_router_running) * 0)'
        f" / (sum by ({BY}) (rate(baton_router_requests_total[5m])) > 0)",
    )
    for name, metric in (("ttft", "ttft"), ("tpot", "tpot"), ("itl", "itl"), ("e2e", "e2e")):
        for quantile in (50, 95, 99):
            record(
                f"baton:{name}_seconds:p{quantile}_5m",
                f"histogram_quantile({quantile / 100}, sum by ({BY}, le) (rate(baton_router_{metric}_seconds_bucket[5m])))",
            )
    for name in ("ttft", "tpot"):
        for window in ("5m", "30m", "1h", "6h"):
            record(
                f"baton:{name}_slow:ratio_rate{window}",
                # By model: the many quick verdicts of a classifier would hide a slow model.
                f'sum by ({BY}, model) (rate(baton_router_over_slo_total{{slo="{name}"}}[{window}]))'
                f" / (sum by ({BY}, model) (rate(baton_router_{name}_seconds_count[{window}])) > 0)",
            )
    record(
        "baton:ttft_phase_seconds:mean5m",
        f"sum by ({BY}, model, phase) (rate(baton_ttft_phase_seconds_sum[5m]))"
        f" / (sum by ({BY}, model, phase) (rate(baton_ttft_phase_seconds_count[5m])) > 0)",
    )
    record(
        "baton:kv_used:ratio",
        f'sum by ({BY}, component, pod) (baton_kv_blocks{{state="held"}}) / sum by ({BY}, component, pod) (baton_kv_blocks)',
    )
    record(
        "baton:prefix_hit:ratio_rate30m",
        f"sum by ({BY}) (rate(baton_prefix_hit_tokens_total[30m])) / (sum by ({BY}) (rate(baton_prefix_query_tokens_total[30m])) > 0)",
    )
    record(
        "baton:handoff_failures:ratio_rate5m",
        f'sum by ({BY}) (rate(baton_handoffs_total{{outcome!="ok"}}[5m])) / (sum by ({BY}) (rate(baton_handoffs_total[5m])) > 0)',
    )
    return rules


def burn(name, fast):
    """Two windows: the long one shows that it matters, the short one that it continues (Google's SRE workbook, chapter 5)."""
    long, short, factor = ("1h", "5m", 14.4) if fast else ("6h", "30m", 6)
    limit = round(factor * (1 - OBJECTIVE), 4)
    what = {"ttft": "first token", "tpot": "time per token"}[name]
    slo = f'baton_router_slo_seconds{{namespace="%s",release="%s",slo="{name}"}}'
    bound = f"{{{{ range printf `max({slo})` $labels.namespace $labels.release | query }}}}{{{{ . | value | humanizeDuration }}}}{{{{ end }}}}"
    of_model = "{{ with $labels.model }} of {{ . }}{{ end }}"
    over = lambda count: {
        f'baton_router_over_slo_total{{{WHO},slo="{name}"}}': f"0+{count}x60",
        f"baton_router_{name}_seconds_count{{{WHO}}}": "0+100x60",
        f'baton_router_slo_seconds{{{WHO},slo="{name}"}}': "0.75x60",
    }
    return alert(
        f"Baton{name.capitalize()}Burn{'Fast' if fast else 'Slow'}",
        f"baton:{name}_slow:ratio_rate{long} > {limit} and baton:{name}_slow:ratio_rate{short} > {limit}"
        # A share of a few answers says nothing.
        f' and sum by ({BY}, model) (increase(baton_router_over_slo_total{{slo="{name}"}}[{short}])) > 3',
        "2m" if fast else "15m",
        "critical" if fast else "warning",
        f"{name.upper()} spends its error budget {factor:g} times too fast",
        f"{{{{ $value | humanizePercentage }}}} of the answers{of_model} had a {what} over {bound} in the last {long}; "
        f"the objective allows {1 - OBJECTIVE:.0%}.",
        # 80% slow, as against 2% slow: above the budget, below the factor
        fires=[
            over(80),
            # A slow model beside one that answers a hundred times as often.
            {series.replace("{", '{model="m",', 1): values for series, values in over(80).items()}
            | {f'baton_router_over_slo_total{{{WHO},slo="{name}",model="guard"}}': "0x60", f'baton_router_{name}_seconds_count{{{WHO},model="guard"}}': "0+10000x60"},
        ],
        quiet=[
            over(2),
            # One slow answer in a quiet hour.
            {
                f'baton_router_over_slo_total{{{WHO},slo="{name}"}}': "0x57 1x10",
                f"baton_router_{name}_seconds_count{{{WHO}}}": "0x57 1x10",
                f'baton_router_slo_seconds{{{WHO},slo="{name}"}}': "0.75x70",
            },
        ],
        at="1h",
    )


# The labels that a scrape adds.
WHO = 'namespace="n",release="r",component="router",pod="router-0"'
CLIENTS = 'endpoint!~"/health|/ready"'
DOOR = 'namespace="n",release="r",component="gateway",pod="gateway-0"'
WORKER = 'namespace="n",release="r",component="decode",pod="decode-0"'


def alert(name, expression, wait, severity, summary, description, fires, quiet, at="30m"):
    return {
        "alert": name,
        "expr": expression,
        "for": wait,
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "description": description, "runbook_url": f"RUNBOOK_URL#{name.lower()}"},
        "_test": {"fires": fires, "quiet": quiet, "at": at},
    }


def alerts():
    outcome = lambda ok, bad: {
        f'baton_router_requests_total{{{WHO},outcome="OK"}}': f"0+{ok}x200",
        f'baton_router_requests_total{{{WHO},outcome="UNAVAILABLE"}}': f"0+{bad}x200",
        f"baton_router_running{{{WHO}}}": "1x200",
    }
    pool = lambda role, model: f'baton_router_workers{{{WHO},role="{role}",model="{model}"}}'
    refused = lambda reason, bad: {
        f'baton_router_requests_total{{{WHO},outcome="OK"}}': "0+60x200",
        f'baton_router_requests_total{{{WHO},outcome="RESOURCE_EXHAUSTED"}}': f"0+{bad}x200",
        f'baton_router_tenant_refused_total{{{WHO},tenant="default",reason="{reason}"}}': f"0+{bad}x200",
    }
    handoffs = lambda ok, bad: {
        f'baton_handoffs_total{{{WORKER},link="host",outcome="ok"}}': f"0+{ok}x200",
        f'baton_handoffs_total{{{WORKER},link="host",outcome="failed"}}': f"0+{bad}x200",
    }
    blocks = lambda free, held: {
        f'baton_kv_blocks{{{WORKER},state="free"}}': f"{free}x200",
        f'baton_kv_blocks{{{WORKER},state="cached"}}': "0x200",
        f'baton_kv_blocks{{{WORKER},state="held"}}': f"{held}x200",
    }
    phases = lambda prefill, transfer: {
        f'baton_ttft_phase_seconds_sum{{{WHO},phase="prefill"}}': f"0+{60 * prefill:g}x200",
        f'baton_ttft_phase_seconds_count{{{WHO},phase="prefill"}}': "0+60x200",
        f'baton_ttft_phase_seconds_sum{{{WHO},phase="transfer"}}': f"0+{60 * transfer:g}x200",
        f'baton_ttft_phase_seconds_count{{{WHO},phase="transfer"}}': "0+60x200",
        f'baton_router_slo_seconds{{{WHO},slo="ttft"}}': "0.75x200",
    }
    link = lambda measured, floor: {
        f'baton_link_measured_bytes_per_second{{{WORKER},link="nccl",peer="prefill-0:8470"}}': f"{measured:.0f}x200",
        f'baton_link_floor_bytes_per_second{{{WORKER},link="nccl"}}': f"{floor:.0f}x200",
    }
    statuses = lambda ok, bad: {
        f'baton_gateway_requests_total{{{DOOR},endpoint="/v1/chat/completions",status="200"}}': f"0+{ok}x200",
        f'baton_gateway_requests_total{{{DOOR},endpoint="/v1/chat/completions",status="503"}}': f"0+{bad}x200",
    }
    connections = lambda open, refused: {
        f"baton_gateway_connections{{{DOOR}}}": f"{open}x200",
        f"baton_gateway_connections_limit{{{DOOR}}}": "10000x200",
        f"baton_gateway_connections_refused_total{{{DOOR}}}": f"0+{refused}x200",
    }
    rules = [
        alert(
            "BatonTargetDown",
            'up{component=~"router|prefill|decode|gateway"} == 0',
            "2m",
            "warning",
            "{{ $labels.component }} {{ $labels.pod }} can't be scraped",
            "Prometheus has not reached its metrics page for two minutes.",
            fires={f"up{{{WORKER}}}": "0x200"},
            quiet={f"up{{{WORKER}}}": "1x200"},
        ),
        alert(
            "BatonNoRouter",
            # It fires for routers that are gone from Prometheus' list too, for the hour that they are remembered.
            f'(max by ({BY}) (max_over_time(up{{component="router"}}[1h])) > 0) unless (max by ({BY}) (up{{component="router"}}) > 0)',
            "1m",
            "critical",
            "No router of {{ $labels.release }} is up: no request reaches it",
            "Prometheus reaches none of its routers.",
            fires=[{f"up{{{WHO}}}": "1x15 0x100"}, {f"up{{{WHO}}}": "1x15 _x100"}],
            quiet={f"up{{{WHO}}}": "1x15 0x100", f"up{{{WHO.replace('router-0', 'router-1')}}}": "1x200"},
        ),
        alert(
            "BatonNoDecodeWorker",
            # By model: another one's workers, a classifier's for example, are of no help.
            f'max by ({BY}, model) (baton_router_workers{{role="decode"}}) == 0',
            "1m",
            "critical",
            "No decode worker of {{ $labels.model }} is ready: no request for it can be answered",
            "No router of {{ $labels.release }} sees a decode worker of this model that it may use. Requests wait for one, two minutes unless told otherwise.",
            fires={pool("decode", "m"): "0x200", pool("decode", "guard"): "1x200"},
            quiet={pool("decode", "m"): "1x200", pool("decode", "guard"): "1x200"},
        ),
        alert(
            "BatonNoPrefillWorker",
            # A release without a prefill pool never had one.
            f'max by ({BY}, model) (baton_router_workers{{role="prefill"}}) == 0'
            f' and max by ({BY}, model) (max_over_time(baton_router_workers{{role="prefill"}}[6h])) > 0',
            "1m",
            "warning",
            "No prefill worker of {{ $labels.model }} is ready: its decode workers compute all prompts",
            "No router of {{ $labels.release }} sees a prefill worker of this model. Answers continue with a higher TPOT.",
            fires={pool("prefill", "m"): "2x10 0x200", pool("prefill", "other"): "1x200"},
            quiet={pool("prefill", "m"): "0x200", pool("prefill", "other"): "1x200"},
        ),
        alert(
            "BatonErrorRatio",
            "baton:errors:ratio_rate5m > 0.05",
            "5m",
            "critical",
            "{{ $value | humanizePercentage }} of requests fail",
            "Over 5% of requests in {{ $labels.release }} end in an error that neither clients nor overload caused.",
            fires=outcome(60, 6),
            quiet=outcome(600, 6),
        ),
        alert(
            "BatonOverload",
            # A tenant at limits of its own is no overload of the service.
            f'sum by ({BY}) (rate(baton_router_tenant_refused_total{{reason=~"total_queue|displaced|deadline|max_wait"}}[5m]))'
            f" / (sum by ({BY}) (baton:requests:rate5m) > 0) > 0.05",
            "10m",
            "warning",
            "{{ $value | humanizePercentage }} of requests are refused for load",
            "Over 5% of requests in {{ $labels.release }} are refused because the queue is full or they would wait too long.",
            fires=refused("deadline", 30),
            quiet=[refused("deadline", 1), refused("request_rate", 30)],
        ),
        burn("ttft", fast=True),
        burn("ttft", fast=False),
        burn("tpot", fast=True),
        burn("tpot", fast=False),
        alert(
            "BatonKvPoolFull",
            # A full pool preempts, and then is not full for a moment.
            'max_over_time(baton:kv_used:ratio{component="decode"}[5m]) > 0.95',
            "10m",
            "warning",
            "KV blocks of {{ $labels.pod }} are {{ $value | humanizePercentage }} in use, again and again",
            "Running sequences hold nearly all blocks: new requests wait or are refused, and growing sequences are preempted.",
            fires=[blocks(1, 99), {**blocks(0, 0), f'baton_kv_blocks{{{WORKER},state="free"}}': "30 10 0 30 10 0 30 10 0 30 10 0 30 10 0 30 10 0 30 10 0 30 10 0 30 10 0 30 10 0 30 10 0", f'baton_kv_blocks{{{WORKER},state="held"}}': "70 90 100 70 90 100 70 90 100 70 90 100 70 90 100 70 90 100 70 90 100 70 90 100 70 90 100 70 90 100 70 90 100"}],
            quiet=blocks(20, 80),
        ),
        alert(
            "BatonPreemptions",
            f"sum by ({BY}, pod) (rate(baton_preemptions_total[10m])) > 0.1",
            "10m",
            "warning",
            "{{ $labels.pod }} preempts sequences because KV blocks are missing",
            "It preempts {{ $value | humanize }} sequences a second; each is computed again later.",
            fires={f"baton_preemptions_total{{{WORKER}}}": "0+30x200"},
            quiet={f"baton_preemptions_total{{{WORKER}}}": "0+1x200"},
        ),
        alert(
            "BatonHandoffFailures",
            "baton:handoff_failures:ratio_rate5m > 0.02",
            "10m",
            "warning",
            "{{ $value | humanizePercentage }} of hand-offs fail",
            "Requests continue with the next prefill worker or by local prefill, with a higher TTFT.",
            fires=handoffs(60, 6),
            quiet=handoffs(600, 6),
        ),
        alert(
            "BatonLinkSlow",
            f'sum by ({BY}, model) (baton:ttft_phase_seconds:mean5m{{phase="transfer"}}) / sum by ({BY}, model) (baton:ttft_phase_seconds:mean5m) > 0.3'
            # A large share of a TTFT of some milliseconds harms nobody.
            f' and sum by ({BY}, model) (baton:ttft_phase_seconds:mean5m{{phase="transfer"}})'
            f' > on ({BY}) group_left () ({LINK_SHARE} * max by ({BY}) (baton_router_slo_seconds{{slo="ttft"}}))',
            "15m",
            "warning",
            "{{ $value | humanizePercentage }} of TTFT is spent waiting for KV on the link",
            f"Shipping no longer overlaps with computing, and takes more than {LINK_SHARE:.0%} of the SLO: the link between the pools is too slow for this load.",
            fires=phases(0.2, 0.2),
            # Computing takes ten times as long; and both take a millisecond.
            quiet=[phases(2, 0.2), phases(0.001, 0.001)],
            at="45m",
        ),
        alert(
            "BatonLinkBelowFloor",
            f"baton_link_measured_bytes_per_second < on ({BY}, component, pod, link) group_left () baton_link_floor_bytes_per_second",
            "5m",
            "warning",
            "The {{ $labels.link }} link from {{ $labels.peer }} to {{ $labels.pod }} is below its floor",
            "The test at start measured {{ $value | humanize }}B/s. The worker takes no work until a peer passes the test.",
            fires=link(3e9, 10e9),
            quiet=link(40e9, 10e9),
        ),
        alert(
            "BatonDiskFailing",
            f"sum by ({BY}, pod) (increase(baton_disk_failures_total[15m])) > 10",
            "5m",
            "warning",
            "The disk tier of {{ $labels.pod }} fails",
            "{{ $value | humanize }} reads or writes failed within 15 minutes. Requests go on and compute what the disk would have brought.",
            fires={f'baton_disk_failures_total{{{WORKER},kind="read"}}': "0+1x200"},
            quiet={f'baton_disk_failures_total{{{WORKER},kind="read"}}': "0+1x5 5x200"},
        ),
        alert(
            "BatonSharedFailing",
            f"sum by ({BY}) (increase(baton_shared_failures_total[15m])) > 10",
            "5m",
            "warning",
            "The shared folder of KV blocks fails",
            "{{ $value | humanize }} reads or writes of workers failed within 15 minutes. Requests go on and compute what the folder would have brought.",
            fires={f'baton_shared_failures_total{{{WORKER},kind="read"}}': "0+1x200"},
            quiet={f'baton_shared_failures_total{{{WORKER},kind="read"}}': "0+1x5 5x200"},
        ),
        alert(
            "BatonDiskDropping",
            f'sum by ({BY}, pod) (rate(baton_disk_dropped_writes_total{{reason="no_room"}}[15m]))'
            f" > sum by ({BY}, pod) (rate(baton_disk_written_blocks_total[15m]))",
            "15m",
            "warning",
            "{{ $labels.pod }} evicts more blocks unwritten than it writes to disk",
            "The disk is too slow for what is worth keeping: {{ $value | humanize }} blocks a second are evicted unwritten.",
            fires={
                f'baton_disk_dropped_writes_total{{{WORKER},reason="no_room"}}': "0+600x200",
                f"baton_disk_written_blocks_total{{{WORKER}}}": "0+60x200",
            },
            quiet={
                f'baton_disk_dropped_writes_total{{{WORKER},reason="no_room"}}': "0+60x200",
                f"baton_disk_written_blocks_total{{{WORKER}}}": "0+600x200",
            },
        ),
        alert(
            "BatonWatchReconnects",
            f"sum by ({BY}, pod) (increase(baton_router_watch_restarts_total[15m])) > 20",
            "5m",
            "warning",
            "{{ $labels.pod }} keeps losing its watch streams to workers",
            "{{ $value | humanize }} watch streams were restarted within 15 minutes; until then placement uses old state.",
            fires={f'baton_router_watch_restarts_total{{{WHO},reason="down"}}': "0+3x200"},
            quiet={f'baton_router_watch_restarts_total{{{WHO},reason="down"}}': "0+1x200"},
        ),
        alert(
            "BatonFingerprintMismatch",
            f"max by ({BY}, worker, field) (baton_router_worker_left_out) > 0",
            "5m",
            "warning",
            "Worker {{ $labels.worker }} is left out: its {{ $labels.field }} differs",
            "Two workers pair only when model, layout and precision agree. This is expected during a rolling upgrade, and not after it.",
            # The series is born with the worker.
            fires={f'baton_router_worker_left_out{{{WHO},worker="d:1",field="weights"}}': "_x20 1x200"},
            quiet={f'baton_router_worker_left_out{{{WHO},worker="d:1",field="weights"}}': "1x20 0x200"},
        ),
        alert(
            "BatonHitRateCollapse",
            f"baton:prefix_hit:ratio_rate30m < 0.5 * (baton:prefix_hit:ratio_rate30m offset 1d) and (baton:prefix_hit:ratio_rate30m offset 1d) > 0.2",
            "30m",
            "warning",
            "The prefix hit rate is half of yesterday's",
            "{{ $value | humanizePercentage }} of prompt tokens come from caches; prefill workers compute the rest.",
            fires={
                f"baton_prefix_query_tokens_total{{{WORKER}}}": "0+100x1700",
                f"baton_prefix_hit_tokens_total{{{WORKER}}}": "0+60x1400 84000+10x300",
            },
            quiet={
                f"baton_prefix_query_tokens_total{{{WORKER}}}": "0+100x1700",
                f"baton_prefix_hit_tokens_total{{{WORKER}}}": "0+60x1400 84000+50x300",
            },
            at="26h",
        ),
        alert(
            "BatonQueueBacklog",
            # By model: another one's queue may be empty.
            f"min by ({BY}, pod, model) (min_over_time(baton_router_queue_requests[5m])) > 0",
            "5m",
            "warning",
            "Requests for {{ $labels.model }} wait in the queue of {{ $labels.pod }}",
            "At least {{ $value | humanize }} requests have been waiting for a decode worker all the time in the last minutes.",
            fires={f'baton_router_queue_requests{{{WHO},model="m"}}': "7x200", f'baton_router_queue_requests{{{WHO},model="guard"}}': "0x200"},
            quiet={f"baton_router_queue_requests{{{WHO}}}": "7 7 0 7 7 0 7 7 0 7 7 0 7 7 0 7 7 0 7 7 0 7 7 0 7 7 0 7 7 0 7 7"},
        ),
        alert(
            "BatonGatewayErrors",
            # Kubelets ask for /ready and /health all the time.
            f'sum by ({BY}) (rate(baton_gateway_requests_total{{status=~"5..",{CLIENTS}}}[5m]))'
            f" / (sum by ({BY}) (rate(baton_gateway_requests_total{{{CLIENTS}}}[5m])) > 0) > 0.05",
            "5m",
            "critical",
            "{{ $value | humanizePercentage }} of HTTP requests fail",
            "Over 5% of the requests to the gateways of {{ $labels.release }} end in a status of 500 or above.",
            fires=statuses(60, 6),
            quiet=statuses(600, 6),
        ),
        alert(
            "BatonGatewayConnections",
            f"max by ({BY}, pod) (baton_gateway_connections / baton_gateway_connections_limit) > 0.9"
            f" or sum by ({BY}, pod) (rate(baton_gateway_connections_refused_total[5m])) > 1",
            "5m",
            "warning",
            "{{ $labels.pod }} has no room for more clients",
            "Its connections are near their limit, or it closes more than one a second at once: too many, in all or of one address.",
            fires=connections(9500, 0),
            quiet=connections(5000, 6),
        ),
        alert(
            "BatonDrainStuck",
            # A pod lives no longer than its grace period: five minutes or so.
            f"min_over_time(baton_draining[2m]) == 1 unless on ({BY}, component, pod) ("
            "max_over_time(baton_router_running[2m]) > 0 or max_over_time(baton_decode_sequences[2m]) > 0"
            " or max_over_time(baton_prefill_queued[2m]) > 0 or max_over_time(baton_prefill_computing[2m]) > 0)",
            "1m",
            "warning",
            "{{ $labels.component }} {{ $labels.pod }} drains, and nothing runs on it",
            "It should have ended: the last of its work is over for two minutes.",
            fires={f"baton_draining{{{WORKER}}}": "1x200", f'baton_decode_sequences{{{WORKER},state="running"}}': "2x5 0x195"},
            quiet=[
                {f"baton_draining{{{WORKER}}}": "1x200", f'baton_decode_sequences{{{WORKER},state="running"}}': "2x200"},
                {f"baton_draining{{{WORKER}}}": "0x28 1x2 0x100", f'baton_decode_sequences{{{WORKER},state="running"}}': "0x200"},
            ],
        ),
        alert(
            "BatonCertificateExpiry",
            f"min by ({BY}, component, pod) (baton_tls_certificate_expiry_timestamp_seconds) - time() < 7 * 86400",
            "10m",
            "critical",
            "The certificate of {{ $labels.pod }} ends in {{ $value | humanizeDuration }}",
            "Peers will refuse it. Renewal should have happened weeks ago.",
            # promtool's clock begins at 0
            fires={f"baton_tls_certificate_expiry_timestamp_seconds{{{WORKER}}}": "86400x200"},
            quiet={f"baton_tls_certificate_expiry_timestamp_seconds{{{WORKER}}}": "2592000x200"},
        ),
        alert(
            "BatonLedgerFailing",
            f"max by ({BY}, pod) (baton_router_ledger_failing) == 1",
            "5m",
            "critical",
            "{{ $labels.pod }} can't write what requests use",
            "The ledger or the audit log has not been written for five minutes. Requests go on; what they use waits in memory and is lost if the router ends.",
            fires={f"baton_router_ledger_failing{{{WHO}}}": "1x200"},
            quiet={f"baton_router_ledger_failing{{{WHO}}}": "0x200"},
        ),
        alert(
            "BatonStoreAway",
            "max_over_time(baton_router_store_up[2m]) == 0",
            "1m",
            "warning",
            "{{ $labels.pod }} does not reach the store that routers share limits by",
            "It goes on with its part of every tenant's limits, by the number of routers that the store saw last.",
            fires={f"baton_router_store_up{{{WHO}}}": "0x200"},
            quiet={f"baton_router_store_up{{{WHO}}}": "0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 1"},
        ),
        alert(
            "BatonModerationUnavailable",
            f'sum by ({BY}) (rate(baton_router_moderation_verdicts_total{{result="failed"}}[5m]))'
            f" / (sum by ({BY}) (rate(baton_router_moderation_verdicts_total[5m])) > 0) > 0.05",
            "2m",
            "critical",
            "The classifier gives no verdict for {{ $value | humanizePercentage }} of the texts",
            "Answers that are to be moderated end with UNAVAILABLE, or pass unjudged where the operator allows that (fail_open). Look at the classifier's decode workers.",
            fires={
                f'baton_router_moderation_verdicts_total{{{WHO},result="failed"}}': "0+10x200",
                f'baton_router_moderation_verdicts_total{{{WHO},result="harmless"}}': "0+90x200",
            },
            quiet={
                f'baton_router_moderation_verdicts_total{{{WHO},result="failed"}}': "0+1x200",
                f'baton_router_moderation_verdicts_total{{{WHO},result="harmless"}}': "0+99x200",
            },
        ),
    ]
    return rules
