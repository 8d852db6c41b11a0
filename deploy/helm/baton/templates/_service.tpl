{{/* The spec of a Service that clients connect to, without its ports. Of a role's `service`. */}}
{{- define "baton.door" -}}
type: {{ .type }}
{{- with .spec }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Service, disruption budget, autoscaler of a role. dict: root, role. */}}
{{- define "baton.service" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $service := (index $root.Values $role).service | default dict -}}
{{- $component := include "baton.component" . }}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "baton.fullname" $root }}{{ if ne $role "router" }}-{{ $component }}{{ end }}
  labels:
    {{- include "baton.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
    {{- with $service.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if eq $role "router" }}
  {{- include "baton.door" $service | nindent 2 }}
  {{- else }}
  # Routers look up this name: every pod is an address, also one that starts or leaves. It says so itself, and routers
  # wait for it, and fetch from it what it holds.
  clusterIP: None
  publishNotReadyAddresses: true
  {{- end }}
  selector:
    {{- include "baton.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
  ports:
    {{- if eq $role "node" }}
    {{- range include "baton.nodeWorkers" $root | fromYamlArray }}
    - name: {{ .name }}
      port: {{ .grpc }}
      targetPort: {{ .name }}
      appProtocol: {{ ternary "https" "kubernetes.io/h2c" $root.Values.tls.enabled }}
    - name: m-{{ .name }}
      port: {{ .metrics }}
      targetPort: m-{{ .name }}
    {{- end }}
    {{- else }}
    - name: grpc
      port: {{ ternary $root.Values.router.service.port 8470 (eq $role "router") }}
      targetPort: grpc
      {{- with $service.nodePort }}
      nodePort: {{ . }}
      {{- end }}
      # For proxies, meshes and gateways: HTTP/2, with TLS or without.
      appProtocol: {{ ternary "https" "kubernetes.io/h2c" $root.Values.tls.enabled }}
    {{- if ne $role "router" }}
    - name: metrics
      port: 9470
      targetPort: metrics
    {{- end }}
    {{- end }}
{{- if eq $role "router" }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ include "baton.fullname" $root }}-router-metrics
  labels:
    {{- include "baton.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  clusterIP: None
  selector:
    {{- include "baton.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
  ports:
    - name: metrics
      port: 9470
      targetPort: metrics
---
# Gateways look up this name, and so may clients (dns:/// with round_robin): every ready router is an address, so that calls spread over all of them.
apiVersion: v1
kind: Service
metadata:
  name: {{ include "baton.fullname" $root }}-router-grpc
  labels:
    {{- include "baton.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  clusterIP: None
  selector:
    {{- include "baton.selector" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
  ports:
    - name: grpc
      port: 8470
      targetPort: grpc
{{- end }}
{{- end -}}

{{- define "baton.pdb" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $component := include "baton.component" . -}}
{{- $r := index $root.Values $role -}}
{{- if $r.pdb.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "baton.fullname" $root }}-{{ $component }}
  labels:
    {{- include "baton.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  {{- if not (kindIs "invalid" $r.pdb.minAvailable) }}
  minAvailable: {{ $r.pdb.minAvailable }}
  {{- else }}
  maxUnavailable: {{ $r.pdb.maxUnavailable }}
  {{- end }}
  # A pod that is not ready serves no requests, so it must not delay a node's drain.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "baton.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ $component }}
{{- end }}
{{- end -}}

{{/* How fast an autoscaler goes, of its values: a pod a minute goes, since its cache is lost, and the operator's own rules stand above that. */}}
{{- define "baton.behavior" -}}
{{- $policies := list (dict "type" "Pods" "value" 1 "periodSeconds" 60) -}}
{{- $down := dict "stabilizationWindowSeconds" (int .scaleDownSeconds) "policies" $policies -}}
{{- toYaml (mergeOverwrite (dict "scaleDown" $down) (deepCopy (.behavior | default dict))) -}}
{{- end -}}

{{/*
Each role on its own signal: routers and gateways by CPU, prefill by waiting tokens and TTFT, decode by KV use and TPOT. TTFT and TPOT are of the
release, so pools of `models` go without them.
*/}}
{{- define "baton.autoscaler" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $r := index $root.Values $role -}}
{{- $a := $r.autoscaling -}}
{{- $component := include "baton.component" . -}}
{{- $name := printf "%s-%s" (include "baton.fullname" $root) $component -}}
{{- $of := printf "namespace=\"%s\",release=\"%s\"" $root.Release.Namespace (include "baton.release" $root) -}}
{{- $pods := $of -}}
{{- if or $root.pool $root.Values.models -}}{{- $pods = printf "%s,pod=~\"%s-[a-z0-9]+-[a-z0-9]+\"" $of $name -}}{{- end -}}
{{- if $a.enabled }}
---
{{- if eq $a.kind "hpa" }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $name }}
  labels:
    {{- include "baton.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ $name }}
  minReplicas: {{ $a.minReplicas }}
  maxReplicas: {{ $a.maxReplicas }}
  behavior:
    {{- include "baton.behavior" $a | nindent 4 }}
  metrics:
    {{- if has $role (list "router" "gateway") }}
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ $a.targetCpuPercent }}
    {{- else if eq $role "prefill" }}
    - type: Pods
      pods:
        metric:
          name: baton_prefill_pending_tokens
        target:
          type: AverageValue
          averageValue: {{ $a.targetPendingTokens | quote }}
    {{- if not $root.pool }}
    - type: External
      external:
        metric:
          name: baton_ttft_p95_seconds
          selector:
            matchLabels:
              release: {{ include "baton.release" $root }}
        target:
          type: Value
          value: {{ ($a.targetTtftSeconds | default $root.Values.slo.ttftSeconds) | quote }}
    {{- end }}
    {{- else }}
    - type: Pods
      pods:
        metric:
          name: baton_kv_used_percent
        target:
          type: AverageValue
          averageValue: {{ $a.targetKvPercent | quote }}
    {{- if not $root.pool }}
    - type: External
      external:
        metric:
          name: baton_tpot_p95_seconds
          selector:
            matchLabels:
              release: {{ include "baton.release" $root }}
        target:
          type: Value
          value: {{ ($a.targetTpotSeconds | default $root.Values.slo.tpotSeconds) | quote }}
    {{- end }}
    {{- end }}
{{- else }}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ $name }}
  labels:
    {{- include "baton.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  scaleTargetRef:
    name: {{ $name }}
  minReplicaCount: {{ $a.minReplicas }}
  maxReplicaCount: {{ $a.maxReplicas }}
  cooldownPeriod: {{ $a.scaleDownSeconds }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior:
        {{- include "baton.behavior" $a | nindent 8 }}
  triggers:
    {{- if has $role (list "router" "gateway") }}
    - type: cpu
      metricType: Utilization
      metadata:
        value: {{ $a.targetCpuPercent | quote }}
    {{- else if eq $role "prefill" }}
    - type: prometheus
      metadata:
        serverAddress: {{ $root.Values.observability.prometheusUrl }}
        {{- with ($root.Values.observability.prometheusAuth | default dict).modes }}
        authModes: {{ . }}
        {{- end }}
        query: {{ printf "sum(baton_prefill_pending_tokens{%s})" $pods | squote }}
        threshold: {{ $a.targetPendingTokens | quote }}
      {{- with ($root.Values.observability.prometheusAuth | default dict).authenticationRef }}
      authenticationRef:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- if not $root.pool }}
    - type: prometheus
      metricType: Value
      metadata:
        serverAddress: {{ $root.Values.observability.prometheusUrl }}
        {{- with ($root.Values.observability.prometheusAuth | default dict).modes }}
        authModes: {{ . }}
        {{- end }}
        query: {{ printf "(max(baton:ttft_seconds:p95_5m{%s}) >= 0) or vector(0)" $of | squote }}
        threshold: {{ ($a.targetTtftSeconds | default $root.Values.slo.ttftSeconds) | quote }}
      {{- with ($root.Values.observability.prometheusAuth | default dict).authenticationRef }}
      authenticationRef:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- else }}
    - type: prometheus
      metricType: Value
      metadata:
        serverAddress: {{ $root.Values.observability.prometheusUrl }}
        {{- with ($root.Values.observability.prometheusAuth | default dict).modes }}
        authModes: {{ . }}
        {{- end }}
        query: {{ printf "100 * avg(baton:kv_used:ratio{%s,component=\"decode\"})" $pods | squote }}
        threshold: {{ $a.targetKvPercent | quote }}
      {{- with ($root.Values.observability.prometheusAuth | default dict).authenticationRef }}
      authenticationRef:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- if not $root.pool }}
    - type: prometheus
      metricType: Value
      metadata:
        serverAddress: {{ $root.Values.observability.prometheusUrl }}
        {{- with ($root.Values.observability.prometheusAuth | default dict).modes }}
        authModes: {{ . }}
        {{- end }}
        query: {{ printf "(max(baton:tpot_seconds:p95_5m{%s}) >= 0) or vector(0)" $of | squote }}
        threshold: {{ ($a.targetTpotSeconds | default $root.Values.slo.tpotSeconds) | quote }}
      {{- with ($root.Values.observability.prometheusAuth | default dict).authenticationRef }}
      authenticationRef:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- end }}
{{- end }}
{{- end }}
{{- end -}}
