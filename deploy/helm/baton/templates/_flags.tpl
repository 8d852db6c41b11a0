{{/* The command lines. dict: root, role, r. */}}
{{- define "baton.flags" -}}
{{- $root := .root -}}
{{- $v := $root.Values -}}
{{- $role := .role -}}
{{- $r := .r -}}
{{- $full := include "baton.fullname" $root -}}
- --model={{ include "baton.modelFolder" $root }}
- --model-name={{ $v.model.name }}
- --listen=0.0.0.0:8470
- --health=0.0.0.0:8471
- --metrics=0.0.0.0:9470
- --log-level={{ $r.logLevel }}
{{- if eq $role "router" }}
- --decode=dns:///{{ $full }}-decode.{{ $root.Release.Namespace }}.svc:8470
{{- if $v.prefill.enabled }}
- --prefill=dns:///{{ $full }}-prefill.{{ $root.Release.Namespace }}.svc:8470
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
- --drain-seconds={{ int $v.longestGenerationSeconds }}
{{- if $v.auth.tenants.existingSecret }}
- --tenants=/etc/baton/tenants/{{ $v.auth.tenants.key }}
{{- end }}
{{- if $v.auth.tenantSalt.existingSecret }}
- --tenant-salt-file=/etc/baton/salt/{{ $v.auth.tenantSalt.key }}
{{- end }}
{{- if and $v.tls.enabled $v.tls.clientCaSecret }}
- --tls-client-ca=/etc/baton/client-ca/ca.crt
{{- end }}
{{- else }}
- --worker-id=$(POD_NAME)
- --backend={{ ternary "cuda" "cpu" (gt (int $r.gpus) 0) }}
{{- if gt (int $r.tensorParallel) 1 }}
- --tp={{ int $r.tensorParallel }}
{{- end }}
- --threads={{ int $r.threads }}
- --kv-memory={{ $r.kvMemory }}
{{- $gpus := or (gt (int $v.prefill.gpus) 0) (gt (int $v.decode.gpus) 0) }}
{{- with $v.kv.keyDtype | default (ternary "bf16" "" $gpus) }}
- --key-dtype={{ . }}
{{- end }}
{{- with $v.kv.valueDtype | default (ternary "bf16" "" $gpus) }}
- --value-dtype={{ . }}
{{- end }}
- --link={{ $v.link.name }}
{{- if ne $v.link.name "host" }}
- --link-timeout={{ $v.link.timeoutSeconds }}
{{- end }}
- --drain-grace={{ int $v.longestGenerationSeconds }}
{{- with $r.chunkTokens }}
- --chunk-tokens={{ int . }}
{{- end }}
{{- with $r.tokenBudget }}
- --token-budget={{ int . }}
{{- end }}
{{- if eq $role "prefill" }}
- --slo-ttft={{ $v.slo.ttftSeconds }}
- --tail-share={{ $v.slo.tailShare }}
{{- end }}
{{- if eq $role "decode" }}
- --slo-tpot={{ $v.slo.tpotSeconds }}
{{- if gt (float64 $v.link.floorGbps) 0.0 }}
- --link-peers=dns:///{{ $full }}-prefill.{{ $root.Release.Namespace }}.svc:8470
- --link-floor-gbps={{ $v.link.floorGbps }}
{{- end }}
{{- with $r.maxRunning }}
- --max-running={{ int . }}
{{- end }}
{{- if not (kindIs "invalid" $r.localPrefillTokens) }}
- --local-prefill-tokens={{ int $r.localPrefillTokens }}
{{- end }}
{{- end }}
{{- end }}
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
