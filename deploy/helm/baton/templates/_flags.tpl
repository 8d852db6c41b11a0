{{/* The command lines. dict: root, role, r. */}}
{{- define "baton.flags" -}}
{{- $root := .root -}}
{{- $v := $root.Values -}}
{{- $role := .role -}}
{{- $r := .r -}}
{{- if eq $role "node" -}}
{{- include "baton.nodeFlags" . -}}
{{- else -}}
- --model={{ include "baton.modelPath" $root }}
- --model-name={{ $v.model.name }}
- --listen=[::]:8470
- --health=[::]:8471
- --metrics=[::]:9470
- --log-level={{ $r.logLevel }}
{{- if eq $role "router" }}
{{- if $v.node.enabled }}
- --decode={{ include "baton.nodeAddresses" (dict "root" $root "role" "decode") }}
{{- with include "baton.nodeAddresses" (dict "root" $root "role" "prefill") }}
- --prefill={{ . }}
{{- end }}
{{- else }}
- --decode={{ include "baton.poolAddress" (dict "root" $root "role" "decode") }}
{{- if $v.prefill.enabled }}
- --prefill={{ include "baton.poolAddress" (dict "root" $root "role" "prefill") }}
{{- end }}
{{- end }}
{{- if $v.models }}
- --models=/etc/baton/models/models.json
{{- end }}
{{- with $r.policy }}
- --policy={{ . }}
{{- end }}
- --slo-ttft={{ $v.slo.ttftSeconds }}
- --slo-tpot={{ $v.slo.tpotSeconds }}
- --tail-share={{ $v.slo.tailShare }}
- --queue-requests={{ int $r.queueRequests }}
- --queue-seconds={{ $r.queueSeconds }}
- --worker-concurrency={{ int $r.workerConcurrency }}
- --tokenizer-threads={{ int $r.tokenizerThreads }}
- --max-connection-age={{ $r.maxConnectionAgeSeconds }}
- --drain-seconds={{ int $v.longestGenerationSeconds }}
{{- if $v.auth.tenants.existingSecret }}
- --tenants=/etc/baton/tenants/{{ $v.auth.tenants.key }}
{{- end }}
{{- if $v.auth.tenantSalt.existingSecret }}
- --tenant-salt-file=/etc/baton/salt/{{ $v.auth.tenantSalt.key }}
{{- end }}
{{- if $v.billing.prices.existingConfigMap }}
- --prices=/etc/baton/prices/{{ $v.billing.prices.key }}
{{- end }}
{{- with $v.store.url }}
- --store={{ . }}
{{- end }}
{{- if $v.store.password.existingSecret }}
- --store-password-file=/etc/baton/store/{{ $v.store.password.key }}
{{- end }}
{{- if $v.billing.ledger.volume }}
- --ledger=/var/lib/baton/ledger/$(POD_NAME).db
{{- else if $v.billing.ledger.inStore }}
- --ledger=store
{{- end }}
{{- if $v.billing.auditLog }}
- --audit-log=-
{{- end }}
{{- if $v.tracing.otlp }}
- --trace-sample={{ $v.tracing.sample }}
{{- end }}
{{- if and $v.tls.enabled $v.tls.clientCaSecret }}
- --tls-client-ca=/etc/baton/client-ca/ca.crt
{{- end }}
{{- else }}
- --worker-id=$(POD_NAME)
- --backend={{ include "baton.backend" $r }}
{{- if gt (int $r.tensorParallel) 1 }}
- --tp={{ int $r.tensorParallel }}
{{- end }}
- --threads={{ int $r.threads }}
- --kv-memory={{ $r.kvMemory }}
{{- with $r.kvDisk.size }}
- --kv-disk=/var/lib/baton/kv/{{ $role }}
- --kv-disk-size={{ . }}
{{- end }}
{{- if $v.kvShared.claimName }}
- --kv-shared=/var/lib/baton/shared/{{ $v.kvShared.folder }}
- --kv-shared-size={{ required "kvShared.size: say how many bytes the workers' files in the claim may take together, for example 2TiB" $v.kvShared.size }}
{{- end }}
{{- if and (or $r.kvDisk.size $v.kvShared.claimName) $r.kvDisk.key.existingSecret }}
- --kv-disk-key=/etc/baton/kv-disk/{{ $r.kvDisk.key.key }}
{{- end }}
{{- include "baton.linkFlags" $root | nindent 0 }}
- --drain-seconds={{ int $v.longestGenerationSeconds }}
{{- with $r.chunkTokens }}
- --chunk-tokens={{ int . }}
{{- end }}
{{- with $r.tokenBudget }}
- --token-budget={{ int . }}
{{- end }}
{{- if eq $role "decode" }}
{{- if include "baton.linkTest" $root }}
- --link-peers={{ include "baton.poolAddress" (dict "root" $root "role" "prefill") }}
- --link-floor-gbps={{ $v.link.floorGbps }}
{{- if ne $v.link.transport "any" }}
- --link-transport={{ $v.link.transport }}
{{- end }}
{{- end }}
{{- with $r.maxRunning }}
- --max-running={{ int . }}
{{- end }}
{{- if not (kindIs "invalid" $r.localPrefillTokens) }}
- --local-prefill-tokens={{ int $r.localPrefillTokens }}
{{- end }}
{{- with $r.speculation }}
- --speculation={{ . }}
{{- end }}
{{- with $r.draftModel }}
- --draft-model={{ . }}
{{- end }}
{{- if $r.selfDraft }}
- --self-draft
{{- end }}
{{- end }}
{{- end }}
{{- with $v.tracing.otlp }}
- --otlp={{ . }}
{{- end }}
{{- include "baton.securityFlags" $root }}
{{- end -}}
{{- end -}}

{{/* What all workers are told alike: KV's precision and the link. */}}
{{- define "baton.linkFlags" -}}
{{- $v := .Values -}}
{{- $usual := ternary "bf16" "" (eq (include "baton.mixed" .) "true") -}}
- --link={{ $v.link.name }}
{{- with $v.kv.keyDtype | default $usual }}
- --key-dtype={{ . }}
{{- end }}
{{- with $v.kv.valueDtype | default $usual }}
- --value-dtype={{ . }}
{{- end }}
- --cache-lease-share={{ $v.kv.leaseShare }}
{{- with $v.kv.chunkReuse }}
- --chunk-reuse={{ . }}
{{- end }}
{{- if $v.link.domain }}
- --link-domain=$(LINK_DOMAIN)
{{- end }}
{{- if ne $v.link.name "host" }}
- --link-timeout={{ $v.link.timeoutSeconds }}
{{- end }}
{{- if and $v.link.pairs (eq $v.link.name "nccl") }}
- --link-pairs={{ int $v.link.pairs }}
{{- end }}
{{- end -}}

{{/* `baton serve` in a node's pod: all its workers, and no router. dict: root, r. */}}
{{- define "baton.nodeFlags" -}}
{{- $root := .root -}}
{{- $v := $root.Values -}}
{{- $r := .r -}}
{{- $tp := int $r.tensorParallel -}}
{{- $prefill := int $r.prefillWorkers -}}
{{- $decode := int $r.decodeWorkers -}}
- serve
- --no-router
- --model={{ include "baton.modelPath" $root }}
- --model-name={{ $v.model.name }}
- --worker-listen=[::]:8480
- --worker-metrics=[::]:9480
- --worker-prefix=$(POD_NAME)
- --health=[::]:8471
- --log-level={{ $r.logLevel }}
- --backend={{ include "baton.backend" $r }}
- --prefill={{ $prefill }}
- --decode={{ $decode }}
{{- if eq (include "baton.backend" $r) "cuda" }}
{{- if gt $prefill 0 }}
- --prefill-devices=0-{{ sub (mul $prefill $tp) 1 }}
{{- end }}
- --decode-devices={{ mul $prefill $tp }}-{{ sub (mul (add $prefill $decode) $tp) 1 }}
{{- end }}
{{- if gt $tp 1 }}
- --tp={{ $tp }}
{{- end }}
{{- if gt (int $r.threads) 0 }}
- --threads={{ int $r.threads }}
{{- end }}
- --kv-memory={{ $r.kvMemory }}
{{- with $r.kvDisk.size }}
- --kv-disk=/var/lib/baton/kv/node
- --kv-disk-size={{ . }}
{{- end }}
{{- if $v.kvShared.claimName }}
- --kv-shared=/var/lib/baton/shared/{{ $v.kvShared.folder }}
- --kv-shared-size={{ required "kvShared.size: say how many bytes the workers' files in the claim may take together, for example 2TiB" $v.kvShared.size }}
{{- end }}
{{- if and (or $r.kvDisk.size $v.kvShared.claimName) $r.kvDisk.key.existingSecret }}
- --kv-disk-key=/etc/baton/kv-disk/{{ $r.kvDisk.key.key }}
{{- end }}
{{- include "baton.linkFlags" $root | nindent 0 }}
- --drain-seconds={{ int $v.longestGenerationSeconds }}
- --start-timeout={{ mul (int $r.probes.startup.periodSeconds) (int $r.probes.startup.failureThreshold) }}s
{{- with $r.chunkTokens }}
- --prefill-flag=--chunk-tokens={{ int . }}
{{- end }}
{{- with $r.tokenBudget }}
- --prefill-flag=--token-budget={{ int . }}
{{- end }}
{{- if include "baton.linkTest" $root }}
{{- $peers := list }}
{{- range include "baton.nodeWorkers" $root | fromYamlArray }}
{{- if eq .role "prefill" }}{{ $peers = append $peers (printf "127.0.0.1:%d" (int .grpc)) }}{{ end }}
{{- end }}
- --decode-flag=--link-peers={{ join "," $peers }}
- --decode-flag=--link-floor-gbps={{ $v.link.floorGbps }}
{{- if ne $v.link.transport "any" }}
- --decode-flag=--link-transport={{ $v.link.transport }}
{{- end }}
{{- end }}
{{- with $r.maxRunning }}
- --max-running={{ int . }}
{{- end }}
{{- if not (kindIs "invalid" $r.localPrefillTokens) }}
- --local-prefill-tokens={{ int $r.localPrefillTokens }}
{{- end }}
{{- with $r.speculation }}
- --speculation={{ . }}
{{- end }}
{{- with $r.draftModel }}
- --draft-model={{ . }}
{{- end }}
{{- if $r.selfDraft }}
- --self-draft
{{- end }}
{{- with $v.tracing.otlp }}
- --otlp={{ . }}
{{- end }}
{{- include "baton.securityFlags" $root }}
{{- end -}}

{{/* "true" if decode workers test their link before they take work. */}}
{{- define "baton.linkTest" -}}
{{- if or (gt (float64 .Values.link.floorGbps) 0.0) (ne .Values.link.transport "any") -}}true{{- end -}}
{{- end -}}

{{- define "baton.securityFlags" -}}
{{- $root := . -}}
{{- $v := .Values }}
{{- if $v.tls.enabled }}
- --tls-cert=/etc/baton/tls/tls.crt
- --tls-key=/etc/baton/tls/tls.key
- --tls-ca=/etc/baton/tls/ca.crt
# Workers are dialed by address; this name is in every party's certificate.
- --tls-peer-name={{ include "baton.peerName" $root }}
{{- end }}
{{- if $v.auth.fleetKey.existingSecret }}
- --fleet-key-file=/etc/baton/fleet/{{ $v.auth.fleetKey.key }}
{{- end }}
{{- end -}}
