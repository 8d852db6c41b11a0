{{/* The gateway: HTTP before the routers. It has no model and no GPUs, so its pods are made here and not with the roles of the fleet. */}}
{{- define "baton.gatewayFlags" -}}
{{- $v := .Values -}}
- --router=dns:///{{ include "baton.fullname" . }}-router-grpc.{{ .Release.Namespace }}.svc:8470
- --listen=[::]:8000
- --metrics=[::]:9470
- --max-connections={{ int $v.gateway.maxConnections }}
- --max-connections-per-address={{ int $v.gateway.maxConnectionsPerAddress }}
- --drain-seconds={{ int $v.longestGenerationSeconds }}
- --log-level={{ $v.gateway.logLevel }}
{{- if $v.tls.enabled }}
- --tls-ca=/etc/baton/ca/ca.crt
- --tls-server-name={{ include "baton.peerName" . }}
{{- end }}
{{- if include "baton.gatewayTlsSecret" . }}
- --tls-cert=/etc/baton/tls/tls.crt
- --tls-key=/etc/baton/tls/tls.key
{{- end }}
{{- end -}}

{{- define "baton.gateway" -}}
{{- $v := .Values -}}
{{- $r := $v.gateway -}}
{{- $name := printf "%s-gateway" (include "baton.fullname" .) -}}
{{- $tls := include "baton.gatewayTlsSecret" . -}}
{{- $scheme := ternary "HTTPS" "HTTP" (ne $tls "") -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels:
    {{- include "baton.labels" . | nindent 4 }}
    app.kubernetes.io/component: gateway
spec:
  {{- with include "baton.replicas" (dict "root" . "r" $r "name" $name) }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $r.minReadySeconds }}
  minReadySeconds: {{ . }}
  progressDeadlineSeconds: {{ add 600 (int .) }}
  {{- end }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: {{ $r.strategy.maxSurge }}
      maxUnavailable: {{ $r.strategy.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "baton.selector" . | nindent 6 }}
      app.kubernetes.io/component: gateway
  template:
    metadata:
      labels:
        {{- include "baton.podLabels" . | nindent 8 }}
        app.kubernetes.io/component: gateway
        {{- with $r.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: gateway
        {{- with $r.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "baton.serviceAccount" . }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ if kindIs "invalid" $r.terminationGracePeriodSeconds }}{{ add (int $r.preStopSeconds) (int $v.longestGenerationSeconds) 15 }}{{ else }}{{ $r.terminationGracePeriodSeconds }}{{ end }}
      {{- with include "baton.pullSecrets" . }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with include "baton.scheduling" (dict "root" . "r" $r) }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with $r.podSpec }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      securityContext:
        {{- toYaml $r.podSecurityContext | nindent 8 }}
      {{- with $r.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- range . }}
        {{- $own := dict "matchLabels" (merge (dict "app.kubernetes.io/component" "gateway") (include "baton.selector" $ | fromYaml)) }}
        -
          {{- toYaml (merge (deepCopy .) (dict "labelSelector" $own)) | nindent 10 }}
        {{- end }}
      {{- end }}
      {{- with $r.extraInitContainers }}
      initContainers:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: gateway
          image: {{ include "baton.image" (dict "root" . "image" $r.image "backend" "cpu") }}
          imagePullPolicy: {{ $r.image.pullPolicy | default $v.image.pullPolicy }}
          command: [/usr/local/bin/baton-gateway]
          args:
            {{- include "baton.gatewayFlags" . | nindent 12 }}
            {{- with $r.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with $r.extraEnv }}
          env:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $r.extraEnvFrom }}
          envFrom:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          ports:
            - name: http
              containerPort: 8000
            - name: metrics
              containerPort: 9470
          # /health says nothing of the router, /ready does.
          startupProbe:
            httpGet: {path: /health, port: http, scheme: {{ $scheme }}}
            {{- toYaml $r.probes.startup | nindent 12 }}
          livenessProbe:
            httpGet: {path: /health, port: http, scheme: {{ $scheme }}}
            {{- toYaml $r.probes.liveness | nindent 12 }}
          readinessProbe:
            httpGet: {path: /ready, port: http, scheme: {{ $scheme }}}
            {{- toYaml $r.probes.readiness | nindent 12 }}
          {{- with include "baton.lifecycle" $r }}
          {{- . | nindent 10 }}
          {{- end }}
          resources:
            {{- toYaml $r.resources | nindent 12 }}
          securityContext:
            {{- toYaml $r.securityContext | nindent 12 }}
          {{- if or $v.tls.enabled $tls $r.extraVolumeMounts }}
          volumeMounts:
            {{- if $v.tls.enabled }}
            - name: ca
              mountPath: /etc/baton/ca
              readOnly: true
            {{- end }}
            {{- if $tls }}
            - name: tls
              mountPath: /etc/baton/tls
              readOnly: true
            {{- end }}
            {{- with $r.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- end }}
        {{- with $r.extraContainers }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if or $v.tls.enabled $tls $r.extraVolumes }}
      volumes:
        {{- if $v.tls.enabled }}
        # The fleet's authority, and not its key: a gateway is a client like any other.
        - name: ca
          secret:
            secretName: {{ include "baton.tlsSecret" . }}
            items: [{key: ca.crt, path: ca.crt}]
            defaultMode: 0440
        {{- end }}
        {{- with $tls }}
        - name: tls
          secret:
            secretName: {{ . }}
            defaultMode: 0440
        {{- end }}
        {{- with $r.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
{{- end -}}

{{- define "baton.gatewayServices" -}}
{{- $r := .Values.gateway -}}
{{- $name := printf "%s-gateway" (include "baton.fullname" .) }}
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  labels:
    {{- include "baton.labels" . | nindent 4 }}
    app.kubernetes.io/component: gateway
    {{- with $r.service.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $r.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "baton.door" $r.service | nindent 2 }}
  selector:
    {{- include "baton.selector" . | nindent 4 }}
    app.kubernetes.io/component: gateway
  ports:
    - name: http
      port: {{ $r.service.port }}
      targetPort: http
      {{- with $r.service.nodePort }}
      nodePort: {{ . }}
      {{- end }}
      appProtocol: {{ ternary "https" "http" (ne (include "baton.gatewayTlsSecret" .) "") }}
    # The same door under the port that gRPC clients know.
    - name: grpc
      port: {{ .Values.router.service.port }}
      targetPort: http
      {{- with $r.service.grpcNodePort }}
      nodePort: {{ . }}
      {{- end }}
      {{- if not (include "baton.gatewayTlsSecret" .) }}
      # For proxies: HTTP/2 without TLS.
      appProtocol: kubernetes.io/h2c
      {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}-metrics
  labels:
    {{- include "baton.labels" . | nindent 4 }}
    app.kubernetes.io/component: gateway
spec:
  clusterIP: None
  selector:
    {{- include "baton.selector" . | nindent 4 }}
    app.kubernetes.io/component: gateway
  ports:
    - name: metrics
      port: 9470
      targetPort: metrics
{{- end -}}

{{- define "baton.gatewayRoute" -}}
{{- $route := .Values.gateway.route }}
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: {{ include "baton.fullname" . }}-gateway
  labels:
    {{- include "baton.labels" . | nindent 4 }}
    app.kubernetes.io/component: gateway
  {{- with $route.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  parentRefs:
    {{- toYaml $route.parentRefs | nindent 4 }}
  {{- with $route.hostnames }}
  hostnames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    - backendRefs:
        - name: {{ include "baton.fullname" . }}-gateway
          port: {{ .Values.gateway.service.port }}
      # An answer is one long response: the gateway's own limits end it.
      timeouts:
        request: 0s
{{- end -}}
