"""The dashboards, in the order in which an on-call engineer opens them."""
from panels import count, dashboard, panel, stat, steps, table

OK_BAD = lambda warn, bad: steps((None, "green"), (warn, "orange"), (bad, "red"))
TOKENS = count("tok/s")


def quantiles(metric, selector="ALL", more=""):
    by = "le" + (", " + more if more else "")
    legend = "{{%s}} " % more if more else ""
    return {
        f"{legend}p{q}": f"histogram_quantile({q / 100}, sum by ({by}) (rate({metric}_bucket{{{selector}}}[$__rate_interval])))"
        for q in (50, 95, 99)
    }


def mean(metric, selector="ALL", by="pod"):
    return (
        f"sum by ({by}) (rate({metric}_sum{{{selector}}}[$__rate_interval]))"
        f" / (sum by ({by}) (rate({metric}_count{{{selector}}}[$__rate_interval])) > 0)"
    )


def rate(metric, selector="ALL", by=None):
    return ("sum by (%s)" % by if by else "sum") + f" (rate({metric}{{{selector}}}[$__rate_interval]))"


def share(part, whole, on=""):
    """part per whole, where there is any of the whole: nothing per nothing is no number."""
    return f"{part} / {on}({whole} > 0)"


def overview():
    return dashboard(
        "overview",
        "Overview",
        "Are clients served well? Requests, outcomes, TTFT, TPOT, goodput, tokens.",
        [
            stat("Requests", "Generation requests ended per second.", "reqps", rate("baton_router_requests_total")),
            stat(
                "Errors",
                "Share of requests that ended in an error of the service. 5% for five minutes is an alert.",
                "percentunit",
                "max(baton:errors:ratio_rate5m{ALL})",
                OK_BAD(0.01, 0.05),
            ),
            stat(
                "Refused",
                "Share of requests that were refused for load, limits or quota. Clients were told when to try again.",
                "percentunit",
                share('(sum(rate(baton_router_requests_total{ALL,outcome="RESOURCE_EXHAUSTED"}[$__rate_interval])) or vector(0))', rate("baton_router_requests_total")),
                OK_BAD(0.01, 0.05),
            ),
            stat(
                "Within the SLO",
                "Share of finished answers that kept the SLO in both TTFT and TPOT. The objective is 99%.",
                "percentunit",
                share(rate("baton_router_answers_total", 'ALL,slo="met"'), rate("baton_router_answers_total")),
                steps((None, "red"), (0.95, "orange"), (0.99, "green")),
            ),
            stat("TTFT p95", "Arrival to first token, 95th percentile of five minutes.", "s", "max(baton:ttft_seconds:p95_5m{ALL})"),
            stat("TPOT p95", "Mean time per token after the first, 95th percentile of five minutes.", "s", "max(baton:tpot_seconds:p95_5m{ALL})"),
            stat(
                "Decode workers",
                "Workers that a router may use; the minimum over routers.",
                count("workers"),
                'min(baton_router_workers{ALL,role="decode"})',
                steps((None, "red"), (1, "green")),
            ),
            stat("Prefill workers", "Workers that a router may use; the minimum over routers. 0 is right for a release without a prefill pool.", count("workers"), 'min(baton_router_workers{ALL,role="prefill"})'),
            panel("Outcomes", "Requests by canonical status code. Clients cause CANCELLED and INVALID_ARGUMENT; RESOURCE_EXHAUSTED is load, limit or quota.", "reqps", {"{{outcome}}": rate("baton_router_requests_total", by="outcome")}, stack=True, low=0),
            panel("TTFT", "Arrival of a request to its first token. The line is the routers' SLO (`--slo-ttft`).", "s", quantiles("baton_router_ttft_seconds"), slo="ttft", low=0),
            panel("TPOT", "Mean time per output token after the first, by request. The line is the routers' SLO (`--slo-tpot`).", "s", quantiles("baton_router_tpot_seconds"), slo="tpot", low=0),
            panel(
                "Refused and failed",
                "Share of requests without an answer, by canonical status code: orange is refused, red is failed, grey is caused by the client.",
                "percentunit",
                {"{{outcome}}": share(rate("baton_router_requests_total", 'ALL,outcome!="OK"', "outcome"), rate("baton_router_requests_total"), "on() group_left() ")},
                stack=True,
                low=0,
            ),
            panel(
                "Goodput",
                "Answers per second that kept the SLO in both TTFT and TPOT (the router's `--slo-ttft` and `--slo-tpot`), out of all that finished.",
                "reqps",
                {"{{slo}}": rate("baton_router_answers_total", by="slo")},
                stack=True,
                low=0,
            ),
            panel(
                "Tokens",
                "Prompt tokens admitted and answer tokens sent.",
                TOKENS,
                {"prompt": rate("baton_router_prompt_tokens_total"), "answer": rate("baton_router_answer_tokens_total")},
                low=0,
            ),
            panel("In the system", "Requests inside routers, and choices waiting for a decode worker.", count("requests"), {"running": "sum(baton_router_running{ALL})", "queued": "sum(baton_router_queue_requests{ALL})"}, low=0),
            panel("Time between tokens", "Between two tokens of an answer as the router receives them.", "s", quantiles("baton_router_itl_seconds"), low=0),
            panel("End to end", "Arrival of a request to the end of its answer; finished answers only.", "s", quantiles("baton_router_e2e_seconds"), low=0),
            panel(
                "Error budget burnt",
                "Share of answers over the SLO's bound within an hour, of the model with most of them. At 14.4% a month's budget (1%) is used up in two days.",
                "percentunit",
                {"TTFT": "max(baton:ttft_slow:ratio_rate1h{ALL})", "TPOT": "max(baton:tpot_slow:ratio_rate1h{ALL})"},
                thresholds=steps((None, "transparent"), (0.144, "red")),
                low=0,
            ),
        ],
    )


def ttft():
    phases = {
        "admit": "Checking, template, tokenization, the queue for admission.",
        "decode_queue": "Waiting for a decode worker with free blocks.",
        "prefill_queue": "Waiting in the prefill worker's queue.",
        "prefill": "Computing the prompt.",
        "transfer": "The part of shipping KV that did not overlap with computing.",
        "first_token": "Drawing and sending the first token.",
    }
    by_phase = mean("baton_ttft_phase_seconds", by="phase")
    return dashboard(
        "ttft",
        "Where TTFT goes",
        "The six phases of TTFT: they are measured and add up. Dashed: the SLO.",
        [
            panel("TTFT by phase", "Mean of each phase, stacked: the height is the mean TTFT.", "s", {"{{phase}}": by_phase}, stack=True, width=16, height=12, low=0, slo="ttft"),
            panel(
                "Measured TTFT",
                "Mean TTFT as the router saw it; compare with the height of the stack. They differ by requests that have begun and not ended.",
                "s",
                {"mean": "sum(rate(baton_router_ttft_seconds_sum{ALL}[$__rate_interval])) / (sum(rate(baton_router_ttft_seconds_count{ALL}[$__rate_interval])) > 0)"},
                height=12,
                low=0,
                slo="ttft",
            ),
        ]
        + [
            panel(f"{name}", text, "s", {
                f"p{q}": f'histogram_quantile({q / 100}, sum by (le) (rate(baton_ttft_phase_seconds_bucket{{ALL,phase="{name}"}}[$__rate_interval])))' for q in (50, 95, 99)
            }, low=0)
            for name, text in phases.items()
        ],
    )


def prefill():
    return dashboard(
        "prefill",
        "Prefill pool",
        "Prompts become KV: queue, compute, caches.",
        [
            panel("Waiting tokens", "Prompt tokens still to compute, by worker: the pool's load, and what it is scaled by.", count("tokens"), {"{{pod}}": "sum by (pod) (baton_prefill_pending_tokens{ONE})"}, low=0),
            panel("Waiting prompts", "Prompts before their first chunk.", count("prompts"), {"{{pod}}": "sum by (pod) (baton_prefill_queued{ONE})"}, low=0),
            panel("Prompts at work", "Prompts being computed or shipped.", count("prompts"), {"{{pod}}": "sum by (pod) (baton_prefill_computing{ONE})"}, low=0),
            panel("Queue wait", "Wait of a prompt before its first chunk.", "s", quantiles("baton_prefill_queue_seconds", "ONE"), low=0),
            panel("Computed tokens", "Prompt tokens computed per second.", TOKENS, {"{{pod}}": rate("baton_prefill_tokens_total", "ONE", "pod")}, low=0),
            panel("Step", "Duration of an engine's step.", "s", quantiles("baton_prefill_step_seconds", "ONE"), low=0),
            panel("Outcomes", "Prefill requests that ended, by outcome.", "reqps", {"{{outcome}}": rate("baton_prefill_requests_total", "ONE", "outcome")}, stack=True, low=0),
            panel("Hit rate", "Share of prompt tokens found in the prefill workers' caches.", "percentunit", {"{{pod}}": share(rate("baton_prefix_hit_tokens_total", 'ONE,component="prefill"', "pod"), rate("baton_prefix_query_tokens_total", 'ONE,component="prefill"', "pod"))}, low=0, high=1),
            panel("KV blocks", "Blocks by state; cached ones can be evicted at any time.", count("blocks"), {"{{state}}": 'sum by (state) (baton_kv_blocks{ONE,component="prefill"})'}, stack=True, low=0),
        ],
        extra=("worker",),
    )


def decode():
    return dashboard(
        "decode",
        "Decode pool",
        "KV arrives, tokens leave: batches, pace, blocks.",
        [
            panel("Sequences", "By state. Preempted sequences lost their blocks and will be computed again.", count("sequences"), {"{{state}}": "sum by (state) (baton_decode_sequences{ONE})"}, stack=True, low=0),
            panel("Batch by worker", "Running sequences on each worker, and up to how many a step is expected to meet --slo-tpot: further requests wait at the router.", count("sequences"), {"{{pod}}": 'sum by (pod) (baton_decode_sequences{ONE,state="running"})', "{{pod}}, in time": "sum by (pod) (baton_decode_answers_in_time{ONE})"}, low=0),
            panel("Tokens", "Tokens generated per second.", TOKENS, {"{{pod}}": rate("baton_output_tokens_total", "ONE", "pod")}, low=0),
            panel("Time between tokens", "Time between two tokens of a sequence, on the worker.", "s", quantiles("baton_decode_itl_seconds", "ONE"), low=0),
            panel("Step", "Duration of an engine's step.", "s", quantiles("baton_decode_step_seconds", "ONE"), low=0),
            panel("Time on the worker", "Arrival at the decode worker to the end.", "s", quantiles("baton_decode_e2e_seconds", "ONE"), low=0),
            panel("KV in use", "Share of blocks that sequences hold. The pool is scaled by it; above 95% it counts as full.", "percentunit", {"{{pod}}": 'baton:kv_used:ratio{ONE,component="decode"}'}, thresholds=steps((None, "transparent"), (0.95, "red")), low=0, high=1),
            panel("Preemptions", "Sequences set aside because no KV block was free.", count("preemptions/s"), {"{{pod}}": rate("baton_preemptions_total", "ONE", "pod")}, low=0),
            panel("Outcomes", "Requests that ended on this pool, by outcome; refused ones went to another worker or back to the queue.", "reqps", {"{{outcome}}": rate("baton_decode_requests_total", "ONE", "outcome")}, stack=True, low=0),
            panel("Local prefill", "Prompt tokens that decode workers computed themselves: short rests, and the rest after failed hand-offs.", TOKENS, {"{{pod}}": rate("baton_local_prefill_tokens_total", "ONE", "pod")}, low=0),
            panel("Hit rate", "Share of prompt tokens found in the decode workers' caches.", "percentunit", {"{{pod}}": share(rate("baton_prefix_hit_tokens_total", 'ONE,component="decode"', "pod"), rate("baton_prefix_query_tokens_total", 'ONE,component="decode"', "pod"))}, low=0, high=1),
            panel("Draining", "Yes: the process takes no new work.", "bool_yes_no", {"{{pod}}": "max by (pod) (baton_draining{ONE})"}, low=0, high=1),
            panel("Drafted and accepted", "Tokens that steps checked as drafts, and those of them that the model drew itself.", TOKENS, {"{{drafter}} drafted": rate("baton_decode_drafted_tokens_total", "ONE", "drafter"), "{{drafter}} accepted": rate("baton_decode_accepted_tokens_total", "ONE", "drafter")}, low=0),
            panel("Acceptance", "Share of drafted tokens that the model drew itself, by drafter. A low share costs nothing by itself: rows are only drafted where they are expected to save time.", "percentunit", {"{{drafter}}": share(rate("baton_decode_accepted_tokens_total", "ONE", "drafter"), rate("baton_decode_drafted_tokens_total", "ONE", "drafter"))}, low=0, high=1),
            panel("Acceptance by kind of request", "Share of drafted tokens that the model drew itself: constrained (a schema, a grammar, enforced tools), tools, thinking (the prompt begins it), text.", "percentunit", {"{{request}}": share(rate("baton_decode_accepted_tokens_total", "ONE", "request"), rate("baton_decode_drafted_tokens_total", "ONE", "request"))}, low=0, high=1),
            panel("Accepted by kind of request", "Drafted tokens that the model drew itself, per second.", TOKENS, {"{{request}}": rate("baton_decode_accepted_tokens_total", "ONE", "request")}, stack=True, low=0),
            panel("Accepted by position", "Accepted tokens by their place in the draft.", TOKENS, {"{{position}}": rate("baton_decode_accepted_tokens_by_position_total", "ONE", "position")}, stack=True, low=0),
            panel("Not worth a row", "Drafted tokens that the controller refused: the batch, or the drafts so far, say that they would cost more than they save.", TOKENS, {"{{drafter}}": rate("baton_decode_draft_rows_refused_total", "ONE", "drafter")}, low=0),
            panel("Saved by drafts", "Seconds of steps saved per second, as predicted from what steps cost; below zero: lost.", "s", {"{{drafter}}": "sum by (drafter) (deriv(baton_decode_draft_saved_seconds{ONE}[$__rate_interval]))"}),
            panel("Drafting", "Share of the time in which a model drafted, or computed what it lacked of prompts (--draft-model, --self-draft).", "percentunit", {"{{pod}}": rate("baton_decode_draft_model_seconds_total", "ONE", "pod")}, low=0),
            panel("KV of the draft model", "Blocks that it has, and those that sequences hold.", count("blocks"), {"{{pod}}": "sum by (pod) (baton_decode_draft_model_blocks{ONE})", "{{pod}} held": "sum by (pod) (baton_decode_draft_model_blocks_held{ONE})"}, low=0),
            panel("Expert hits", "Share of the experts that steps computed with that were in memory, by worker, prefill workers too (`--expert-memory`). Low: a share of the experts that is too small for this load.", "percentunit", {"{{pod}}": share(rate("baton_expert_uses_total", 'ALL,result="hit"', "pod"), rate("baton_expert_uses_total", by="pod"))}, low=0, high=1),
            panel("Experts read", "Bytes of experts that steps lacked, by worker; while reading: per second in which reads were under way, which is what the disk gives.", "Bps", {"{{pod}}": rate("baton_expert_read_bytes_total", by="pod"), "{{pod}} while reading": share(rate("baton_expert_read_bytes_total", by="pod"), rate("baton_expert_read_seconds_total", by="pod"))}, low=0),
            panel("Waiting for experts", "Share of the time in which steps waited for experts and had nothing else to compute, by worker. Placement knows it: it is part of the steps that workers measure.", "percentunit", {"{{pod}}": rate("baton_expert_stall_seconds_total", by="pod")}, low=0),
            panel("Experts in memory", "Memory of experts by worker; `--expert-memory` bounds it.", "bytes", {"{{pod}}": "sum by (pod) (baton_expert_resident_bytes{ALL})"}, low=0),
            panel("Repeated reads", "Reads of experts that failed or gave a wrong checksum and were repeated. The third failure in a row ends the worker.", count("reads/s"), {"{{pod}}": rate("baton_expert_read_retries_total", by="pod")}, low=0),
        ],
        extra=("worker",),
    )


def kv():
    return dashboard(
        "kv",
        "KV and cache affinity",
        "What is cached, where it is, and what it costs to move.",
        [
            panel("Hit rate", "Share of prompt tokens found in caches, by pool.", "percentunit", {"{{component}}": share(rate("baton_prefix_hit_tokens_total", by="component"), rate("baton_prefix_query_tokens_total", by="component"))}, low=0, high=1),
            panel(
                "Predicted and found",
                "Share of placed prompt tokens that the router expected on the chosen worker, and that the worker had, by pool (prefill: beyond the decode worker's). A gap means that the index is behind, or that caches evict expected blocks.",
                "percentunit",
                {
                    "{{pool}} predicted": share(rate("baton_router_predicted_cached_tokens_total", by="pool"), rate("baton_router_placed_tokens_total"), "on() group_left() "),
                    "{{pool}} found": share(rate("baton_router_cached_tokens_total", by="pool"), rate("baton_router_placed_tokens_total"), "on() group_left() "),
                },
                low=0,
            ),
            panel(
                "Predicted and found by worker",
                "The same by worker. A worker that finds less than predicted evicts too early, or was restarted; a worker far above the others with a long queue holds a prefix that many requests share. Fleets of more than 512 workers have only the pools' sums.",
                "percentunit",
                {
                    "{{worker}} predicted": share(rate("baton_router_worker_predicted_tokens_total", by="worker"), rate("baton_router_worker_prompt_tokens_total", by="worker")),
                    "{{worker}} found": share(rate("baton_router_worker_cached_tokens_total", by="worker"), rate("baton_router_worker_prompt_tokens_total", by="worker")),
                },
                low=0,
            ),
            panel(
                "Hot prefixes",
                "Placements a second that begin with each of the most used prefixes, over about the last minute, by rank. Two prefixes may exchange ranks. Neither text nor hashes are shown.",
                count("placements/s"),
                {"rank {{rank}}": "sum by (rank) (baton_router_hot_prefix_placements_per_second{ALL})"},
                stack=True,
                low=0,
            ),
            panel(
                "Holders of hot prefixes",
                "Workers that hold the whole prefix, by rank. A hot prefix on one worker makes one queue; placement spreads it when waiting costs more than computing it again.",
                count("workers"),
                {"rank {{rank}}": "max by (rank) (baton_router_hot_prefix_holders{ALL})"},
                low=0,
            ),
            panel("Length of hot prefixes", "In tokens, by rank: what each further worker would have to compute.", count("tokens"), {"rank {{rank}}": "max by (rank) (baton_router_hot_prefix_tokens{ALL})"}, low=0),
            panel("Why there", "Placements by reason: where the prefix is, spread from a busy worker, cold, local, by load or in turn. Much `spread` means hot prefixes; `no_prefill`, that decode workers compute prompts above their `localPrefillTokens` because no prefill worker is up.", count("placements/s"), {"{{reason}}": rate("baton_router_placements_total", by="reason")}, stack=True, low=0),
            panel("Why no fetch", "Placements without a fetch although a peer holds more of the prompt than the worker that computes it: that worker can't fetch (`cannot`), computing again is predicted to be sooner (`dearer`), or the peer has not said that it holds more, or serves no fetches (`unconfirmed`).", count("placements/s"), {"{{why}}": rate("baton_router_fetches_not_planned_total", by="why")}, stack=True, low=0),
            panel(
                "Hits against load",
                "By worker: the share of prompt tokens found in its cache, and its share of all work. Affinity that ignores load shows as one line far above the others.",
                "percentunit",
                {
                    "{{pod}} hits": share(rate("baton_prefix_hit_tokens_total", by="pod"), rate("baton_prefix_query_tokens_total", by="pod")),
                    "{{pod}} share of work": share(rate("baton_prefix_query_tokens_total", by="pod"), rate("baton_prefix_query_tokens_total"), "on() group_left() "),
                },
                low=0,
                width=16,
            ),
            panel("Blocks", "Of all workers, by state.", count("blocks"), {"{{component}} {{state}}": "sum by (component, state) (baton_kv_blocks{ALL})"}, stack=True, low=0),
            panel("Cached share", "Share of blocks that hold reusable KV.", "percentunit", {"{{pod}}": 'sum by (pod) (baton_kv_blocks{ALL,state="cached"}) / sum by (pod) (baton_kv_blocks{ALL})'}, low=0, high=1),
            panel("Leased blocks", "Cached blocks under a cache mark's lease, by worker. They go last when room is needed.", count("blocks"), {"{{pod}}": "sum by (pod) (baton_kv_leased_blocks{ALL})"}, low=0),
            panel(
                "Leases",
                "Blocks by what became of their lease: granted, renewed by a prompt that used them, ended unused (`expired_unused`), or broken early because the room was needed (`broken`: more KV memory, or fewer marks).",
                count("blocks/s"),
                {"{{ttl}} {{event}}": rate("baton_cache_lease_blocks_total", by="event, ttl")},
                low=0,
            ),
            panel(
                "Why it was not found",
                "Prompt tokens of sessions that were computed again, by what had changed since the session's last prompt: its beginning (`tools`, `system`, `messages`), or where its blocks are (`evicted`, `worker_lost`, `placement`).",
                TOKENS,
                {"{{reason}}": rate("baton_router_cache_miss_tokens_total", by="reason")},
                stack=True,
                low=0,
            ),
            panel("Shipped", "KV bytes sent by prefill workers, by link.", "Bps", {"{{link}} sent": rate("baton_kv_shipped_bytes_total", by="link"), "{{link}} received": rate("baton_kv_received_bytes_total", by="link")}, low=0),
            panel("Transfer", "The part of shipping a prompt's KV that did not overlap with computing.", "s", quantiles("baton_kv_transfer_seconds", more="link"), low=0),
            panel(
                "Link against its floor",
                "What the test at start measured, by link and peer, and the worker's minimum (`--link-floor-gbps`): below it the worker takes no work.",
                "Bps",
                {
                    "{{pod}} {{link}} from {{peer}}": "min by (pod, link, peer) (baton_link_measured_bytes_per_second{ALL})",
                    "{{pod}} {{link}} floor": "max by (pod, link) (baton_link_floor_bytes_per_second{ALL})",
                },
                low=0,
            ),
            panel(
                "Peer fetches",
                "Fetches of blocks from other workers, by how they ended. `missed`: the peer had evicted them meanwhile; `given_up`: computing became faster; `failed`: the peer or the link. The rest of the prompt is computed in every case.",
                count("fetches/s"),
                {"{{outcome}}": rate("baton_peer_fetches_total", by="outcome")},
                stack=True,
                low=0,
            ),
            panel(
                "Served to peers",
                "Fetches that workers served, by outcome. Much `refused` on one worker means that only this worker has a popular prefix.",
                count("fetches/s"),
                {"{{pod}} {{outcome}}": rate("baton_peer_serves_total", by="pod, outcome")},
                stack=True,
                low=0,
            ),
            panel(
                "Fetched and served",
                "KV bytes that workers received from peers and sent to them, by link. A lasting gap means that fetches break off.",
                "Bps",
                {"{{link}} fetched": rate("baton_peer_fetched_bytes_total", by="link"), "{{link}} served": rate("baton_peer_served_bytes_total", by="link")},
                low=0,
            ),
            panel("Fetch time", "From the call to the last block, of fetches that brought blocks.", "s", quantiles("baton_peer_fetch_seconds", more="link"), low=0),
            panel(
                "Blocks on disk",
                "KV blocks that workers keep on disk (`--kv-disk`), by worker, and those that it knows of in the shared folder (`--kv-shared`).",
                count("blocks"),
                {"{{pod}}": "sum by (pod) (baton_disk_blocks{ALL})", "{{pod}}, shared": "sum by (pod) (baton_shared_blocks{ALL})"},
                low=0,
            ),
            panel(
                "Disk space",
                "Of the disk tier's files, by worker, and of all files in the shared folder; `--kv-disk-size` and `--kv-shared-size` bound them.",
                "bytes",
                {"{{pod}}": "sum by (pod) (baton_disk_bytes{ALL})", "shared": "max (baton_shared_bytes{ALL})"},
                low=0,
            ),
            panel(
                "Loaded and written",
                "KV bytes that workers read from their disks and from the shared folder, and wrote there. Much written and nothing read: the disk is worth nothing to this load.",
                "Bps",
                {
                    "loaded": rate("baton_disk_loaded_bytes_total"),
                    "written": rate("baton_disk_written_bytes_total"),
                    "loaded, shared": rate("baton_shared_loaded_bytes_total"),
                    "written, shared": rate("baton_shared_written_bytes_total"),
                },
                low=0,
            ),
            panel(
                "Loads from disk",
                "By how they ended. `partial` and `failed`: a record was gone or no good, and what lies behind it is computed; `given_up`: computing became faster.",
                count("loads/s"),
                {"{{outcome}}": rate("baton_disk_loads_total", by="outcome"), "{{outcome}}, shared": rate("baton_shared_loads_total", by="outcome")},
                stack=True,
                low=0,
            ),
            panel("Load time", "From the start of a load to its last block.", "s", quantiles("baton_disk_load_seconds"), low=0),
            panel(
                "Not written",
                "Cached blocks that did not go to disk: not worth the write by what reuse is likely (`not_worth_it`), no memory free for writes when they were evicted (`no_room`: the disk is too slow), or during the pause after a failed write (`failing`).",
                count("blocks/s"),
                {"{{reason}}": rate("baton_disk_dropped_writes_total", by="reason"), "{{reason}}, shared": rate("baton_shared_dropped_writes_total", by="reason")},
                low=0,
            ),
            panel(
                "Disk failures",
                "Reads and writes that failed, and records whose checksum was wrong. Each is a miss: what it would have brought is computed.",
                count("failures/s"),
                {"{{pod}} {{kind}}": rate("baton_disk_failures_total", by="pod, kind"), "{{pod}} {{kind}}, shared": rate("baton_shared_failures_total", by="pod, kind")},
                low=0,
            ),
            panel("Hand-offs", "By outcome; a failed one continues elsewhere from the committed blocks.", count("hand-offs/s"), {"{{outcome}}": rate("baton_handoffs_total", by="outcome")}, stack=True, low=0),
            panel("Refused writes", "Chunks that no valid ticket covered: late, repeated, or for an earlier incarnation of the worker. They are refused and never written.", count("chunks/s"), {"{{pod}}": rate("baton_late_writes_refused_total", by="pod")}, low=0),
        ],
    )


def router():
    return dashboard(
        "router",
        "Router",
        "What a request costs, what waits, which workers it sees.",
        [
            panel("CPU per request", "CPU seconds of the router's process per request ended.", "s", {"{{pod}}": share(rate("process_cpu_seconds_total", 'ALL,component="router"', "pod"), rate("baton_router_requests_total", by="pod"))}, low=0),
            panel("CPU", "Cores in use by the process.", count("cores"), {"{{pod}}": rate("process_cpu_seconds_total", 'ALL,component="router"', "pod")}, low=0),
            panel("Memory", "Resident memory of the process.", "bytes", {"{{pod}}": 'sum by (pod) (process_resident_memory_bytes{ALL,component="router"})'}, low=0),
            panel("Queue", "Choices that wait for a decode worker.", count("requests"), {"{{pod}}": "sum by (pod) (baton_router_queue_requests{ALL})"}, low=0),
            panel("Queue in bytes", "Bytes of the prompts that wait.", "bytes", {"{{pod}}": "sum by (pod) (baton_router_queue_bytes{ALL})"}, low=0),
            panel("Booked", "Choices booked on decode workers.", count("choices"), {"{{pod}}": "sum by (pod) (baton_router_bookings{ALL})"}, low=0),
            panel("Placements", "Choices placed on workers, by policy.", count("placements/s"), {"{{policy}}": rate("baton_router_placements_total", by="policy")}, low=0),
            panel("Prefix index", "Memory of the index; at its limit (`--index-memory`) it forgets the prefixes that were not used for longest.", "bytes", {"{{pod}}": "sum by (pod) (baton_router_index_bytes{ALL})"}, low=0),
            panel("Blocks known", "(block, worker) pairs in the index, and those that are only expected.", count("blocks"), {"{{pod}}": "sum by (pod) (baton_router_index_pairs{ALL})", "{{pod}} expected": "sum by (pod) (baton_router_index_speculative_pairs{ALL})"}, low=0),
            panel("Refused and lost", "Choices that a decode worker refused because it had no free blocks, and choices whose worker was lost before or after it accepted.", count("choices/s"), {"refused": rate("baton_router_decode_refused_total"), "lost {{when}}": rate("baton_router_decode_lost_total", by="when")}, low=0),
            panel("Watch streams begun again", "By reason; a router keeps one per worker.", count("streams/s"), {"{{reason}}": rate("baton_router_watch_restarts_total", by="reason")}, low=0),
            panel("Workers seen", "Workers that placement may use, by role.", count("workers"), {"{{pod}} {{role}}": "sum by (pod, role) (baton_router_workers{ALL})"}, low=0),
            panel("Verdicts", "What classifiers say of answers and prompts; failed: nothing, so that answers end with UNAVAILABLE, or pass unjudged.", count("verdicts/s"), {"{{result}}": rate("baton_router_moderation_verdicts_total", by="result"), "passed unjudged": rate("baton_router_moderation_fail_open_total"), "blocked {{what}}": rate("baton_router_moderation_blocked_total", by="what")}, low=0),
            panel("Time of a verdict", "From a text to its verdict, and for how long text is held back until it is sent, 95th percentile.", "s", {"verdict": "histogram_quantile(0.95, sum by (le) (rate(baton_router_moderation_verdict_seconds_bucket{ALL}[$__rate_interval])))", "held": "histogram_quantile(0.95, sum by (le) (rate(baton_router_moderation_held_seconds_bucket{ALL}[$__rate_interval])))"}, low=0),
            table("Builds", "Which version runs where. During a rolling upgrade there are two.", count("processes"), {"build": "sum by (component, pod, version) (baton_build_info{ALL})"}, width=16),
        ],
    )


def gateway():
    by_status = rate("baton_gateway_requests_total", by="status")
    return dashboard(
        "gateway",
        "HTTP gateway",
        "What HTTP clients see: requests, refusals, connections, open streams, TTFT.",
        [
            panel("Requests", "Requests that have ended, by endpoint.", "reqps", {"{{endpoint}}": rate("baton_gateway_requests_total", by="endpoint")}, stack=True, low=0),
            panel("Statuses", "Requests by HTTP status. 429 is load, limit or quota, 503 a fleet that is away, 499 a client that left.", "reqps", {"{{status}}": by_status}, stack=True, low=0),
            panel(
                "Failed",
                "Share of requests that ended in a status of 500 or above. 5% for five minutes is an alert.",
                "percentunit",
                {"failed": share('(sum(rate(baton_gateway_requests_total{ALL,endpoint!~"/health|/ready",status=~"5.."}[$__rate_interval])) or vector(0))', rate("baton_gateway_requests_total", 'ALL,endpoint!~"/health|/ready"'))},
                thresholds=steps((None, "transparent"), (0.05, "red")),
                low=0,
            ),
            panel("TTFT", "From a request's last byte to the first part of its answer, streamed or not. The line is the routers' SLO.", "s", quantiles("baton_gateway_ttft_seconds"), slo="ttft", low=0),
            panel("Answers under way", "Calls of the router that have not ended: open streams, and answers in one piece that are waited for.", count("answers"), {"{{pod}}": "sum by (pod) (baton_gateway_answers{ALL})"}, low=0),
            panel("Routers", "Those that say that they take requests, and all that the gateway knows.", count("routers"), {"{{pod}} ready": "sum by (pod) (baton_gateway_routers_ready{ALL})", "{{pod}} known": "sum by (pod) (baton_gateway_routers{ALL})"}, low=0),
            panel("Calls made again", "Calls whose router was lost: asked anew, or resumed behind what the client has.", count("calls/s"), {"{{how}}": rate("baton_gateway_tries_total", by="how")}, low=0),
            panel(
                "Connections",
                "Clients' connections, as a share of those that a gateway holds (`--max-connections`). At 100% new ones are closed at once.",
                "percentunit",
                {"{{pod}}": "sum by (pod) (baton_gateway_connections{ALL}) / sum by (pod) (baton_gateway_connections_limit{ALL})"},
                thresholds=steps((None, "transparent"), (0.9, "red")),
                low=0,
                high=1,
            ),
            panel("Open connections", "Clients' connections, idle or not.", count("connections"), {"{{pod}}": "sum by (pod) (baton_gateway_connections{ALL})"}, low=0),
            panel(
                "Turned away",
                "Connections that were closed at once (too many, in all or of one address), requests that were no HTTP/1.1 or beyond its limits, and TLS handshakes that failed.",
                count("clients/s"),
                {"refused": rate("baton_gateway_connections_refused_total"), "bad": rate("baton_gateway_bad_requests_total"), "failed": rate("baton_gateway_tls_failures_total")},
                low=0,
            ),
            panel("Ignored fields", "Members of requests that are not known here and had no effect; the answer's header names them.", count("fields/s"), {"{{pod}}": rate("baton_gateway_ignored_fields_total", by="pod")}, low=0),
            panel("CPU", "Cores in use by the process. One thread serves all clients: at 1 it is full.", count("cores"), {"{{pod}}": rate("process_cpu_seconds_total", 'ALL,component="gateway"', "pod")}, low=0),
            panel("Memory", "Resident memory of the process.", "bytes", {"{{pod}}": 'sum by (pod) (process_resident_memory_bytes{ALL,component="gateway"})'}, low=0),
        ],
    )


def tenants():
    return dashboard(
        "tenants",
        "Tenants and usage",
        "Who uses the service, and which requests are refused.",
        [
            panel("Prompt tokens", "Prompt tokens of requests that began.", TOKENS, {"{{tenant}}": rate("baton_router_tenant_prompt_tokens_total", "TENANT", "tenant")}, stack=True, low=0),
            panel("Answer tokens", "Answer tokens sent to the tenants.", TOKENS, {"{{tenant}}": rate("baton_router_tenant_output_tokens_total", "TENANT", "tenant")}, stack=True, low=0),
            panel("Admitted", "Requests that admission accepted.", "reqps", {"{{tenant}}": rate("baton_router_tenant_admitted_total", "TENANT", "tenant")}, low=0),
            panel("Refused", "Refused requests, by the limit or quota.", "reqps", {"{{tenant}} {{reason}}": rate("baton_router_tenant_refused_total", "TENANT", "tenant, reason")}, low=0),
            panel("Wait", "Admission to placement, 95th percentile.", "s", {"{{tenant}}": "histogram_quantile(0.95, sum by (le, tenant) (rate(baton_router_tenant_wait_seconds_bucket{TENANT}[$__rate_interval])))"}, low=0),
            panel("Queue", "Choices that wait, by tenant.", count("requests"), {"{{tenant}}": "sum by (tenant) (baton_router_tenant_queue_requests{TENANT})"}, low=0),
            panel("Store", "Seconds until the store by which routers share limits has answered, 95th percentile, by router; none without `--store`, and none while it is away.", "s", {"{{pod}}": "histogram_quantile(0.95, sum by (le, pod) (rate(baton_router_store_seconds_bucket{ALL}[$__rate_interval])))"}, low=0),
            panel("Running", "Choices on workers, by tenant.", count("choices"), {"{{tenant}}": "sum by (tenant) (baton_router_tenant_running{TENANT})"}, low=0),
            table("Usage in the range", "Prompt and answer tokens of the range shown.", count("tokens"), {
                "prompt": "sum by (tenant) (increase(baton_router_tenant_prompt_tokens_total{TENANT}[$__range]))",
                "answer": "sum by (tenant) (increase(baton_router_tenant_output_tokens_total{TENANT}[$__range]))",
            }, width=16),
        ],
        extra=("tenant",),
    )


ALL_DASHBOARDS = (overview, ttft, prefill, decode, kv, router, gateway, tenants)
