{{/*
One role: Deployment, headless Service, PodDisruptionBudget, autoscaler. dict: root, role.
All three roles are made here, so that they have the same keys.
*/}}
{{- define "baton.role" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $r := index $root.Values $role -}}
{{- $name := printf "%s-%s" (include "baton.fullname" $root) $role -}}
{{- $pod := dict "root" $root "role" $role "r" $r "name" $name -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels:
    {{- include "baton.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $role }}
spec:
  {{- if not $r.autoscaling.enabled }}
  replicas: {{ $r.replicas }}
  {{- end }}
  # A new worker loads its model before it counts.
  progressDeadlineSeconds: {{ add 120 (mul (int $r.probes.startup.periodSeconds) (int $r.probes.startup.failureThreshold)) }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: {{ $r.strategy.maxSurge }}
      maxUnavailable: {{ $r.strategy.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "baton.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ $role }}
  template:
    metadata:
      labels:
        {{- include "baton.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $role }}
        {{- with $r.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ $role }}
        {{- if include "baton.downloads" $root }}
        checksum/model: {{ include "baton.manifest" $root | sha256sum }}
        {{- end }}
        {{- with $r.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "baton.podSpec" $pod | nindent 6 }}
{{- end -}}

{{- define "baton.podSpec" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $r := .r -}}
{{- $v := $root.Values -}}
serviceAccountName: {{ include "baton.serviceAccount" $root }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: {{ if kindIs "invalid" $r.terminationGracePeriodSeconds }}{{ add (int $r.preStopSeconds) (int $v.longestGenerationSeconds) 15 }}{{ else }}{{ $r.terminationGracePeriodSeconds }}{{ end }}
{{- with $v.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $r.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $r.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $r.schedulerName }}
schedulerName: {{ . }}
{{- end }}
securityContext:
  {{- toYaml $r.podSecurityContext | nindent 2 }}
{{- with $r.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $r.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $r.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $r.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  {{- $own := dict "matchLabels" (merge (dict "app.kubernetes.io/component" $role) (include "baton.selector" $root | fromYaml)) }}
  -
    {{- toYaml (merge (deepCopy .) (dict "labelSelector" $own)) | nindent 4 }}
  {{- end }}
{{- end }}
{{- if or (include "baton.downloads" $root) $r.extraInitContainers }}
initContainers:
  {{- if include "baton.downloads" $root }}
  {{- include "baton.downloader" . | nindent 2 }}
  {{- end }}
  {{- with $r.extraInitContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
containers:
  - name: {{ $role }}
    image: {{ include "baton.image" (dict "root" $root "image" $r.image "gpus" $r.gpus) }}
    imagePullPolicy: {{ $r.image.pullPolicy | default $v.image.pullPolicy }}
    command: [/usr/local/bin/baton-{{ $role }}]
    args:
      {{- include "baton.flags" . | nindent 6 }}
      {{- with $r.extraArgs }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    env:
      - name: POD_NAME
        valueFrom:
          fieldRef:
            fieldPath: metadata.name
      {{- with $r.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    ports:
      - name: grpc
        containerPort: 8470
      - name: health
        containerPort: 8471
      - name: metrics
        containerPort: 9470
    # The health port speaks plain gRPC, as the kubelet does; "live" says nothing of peers, "" does.
    startupProbe:
      grpc:
        port: 8471
        service: live
      {{- toYaml $r.probes.startup | nindent 6 }}
    livenessProbe:
      grpc:
        port: 8471
        service: live
      {{- toYaml $r.probes.liveness | nindent 6 }}
    readinessProbe:
      grpc:
        port: 8471
      {{- toYaml $r.probes.readiness | nindent 6 }}
    {{- if gt (int $r.preStopSeconds) 0 }}
    lifecycle:
      preStop:
        sleep:
          seconds: {{ $r.preStopSeconds }}
    {{- end }}
    {{- $resources := deepCopy $r.resources }}
    {{- $devices := dict }}
    {{- if gt (int $r.gpus) 0 }}{{ $_ := set $devices $r.gpuResource (int $r.gpus) }}{{ end }}
    {{- if $r.rdma.enabled }}{{ $_ := set $devices $r.rdma.resource (int $r.rdma.count) }}{{ end }}
    {{- if $devices }}
    {{- $_ := set $resources "limits" (merge $devices ($resources.limits | default dict)) }}
    {{- end }}
    resources:
      {{- toYaml $resources | nindent 6 }}
    {{- $security := deepCopy $r.securityContext }}
    {{- if and $r.rdma.enabled $r.rdma.ipcLock }}
    {{- $capabilities := $security.capabilities | default dict }}
    {{- $_ := set $capabilities "add" (append ($capabilities.add | default list) "IPC_LOCK" | uniq) }}
    {{- $_ := set $security "capabilities" $capabilities }}
    {{- end }}
    securityContext:
      {{- toYaml $security | nindent 6 }}
    volumeMounts:
      - name: tmp
        mountPath: /tmp
      {{- if ne $v.model.source "image" }}
      - name: model
        mountPath: /models
        readOnly: true
        {{- if and (eq $v.model.source "pvc") $v.model.pvc.subPath }}
        subPath: {{ $v.model.pvc.subPath }}
        {{- end }}
      {{- end }}
      {{- if $r.shm.enabled }}
      - name: shm
        mountPath: /dev/shm
      {{- end }}
      {{- if $v.tls.enabled }}
      - name: tls
        mountPath: /etc/baton/tls
        readOnly: true
      {{- end }}
      {{- if $v.auth.fleetKey.existingSecret }}
      - name: fleet-key
        mountPath: /etc/baton/fleet
        readOnly: true
      {{- end }}
      {{- if eq $role "router" }}
      {{- if and $v.tls.enabled $v.tls.clientCaSecret }}
      - name: client-ca
        mountPath: /etc/baton/client-ca
        readOnly: true
      {{- end }}
      {{- if $v.auth.tenants.existingSecret }}
      - name: tenants
        mountPath: /etc/baton/tenants
        readOnly: true
      {{- end }}
      {{- if $v.auth.tenantSalt.existingSecret }}
      - name: salt
        mountPath: /etc/baton/salt
        readOnly: true
      {{- end }}
      {{- end }}
      {{- with $r.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 64Mi
  {{- include "baton.modelVolumes" . | nindent 2 }}
  {{- if $r.shm.enabled }}
  - name: shm
    emptyDir:
      medium: Memory
      sizeLimit: {{ $r.shm.sizeLimit }}
  {{- end }}
  {{- if $v.tls.enabled }}
  - name: tls
    secret:
      secretName: {{ include "baton.tlsSecret" $root }}
      defaultMode: 0440
  {{- end }}
  {{- if $v.auth.fleetKey.existingSecret }}
  - name: fleet-key
    secret:
      secretName: {{ $v.auth.fleetKey.existingSecret }}
      defaultMode: 0440
  {{- end }}
  {{- if eq $role "router" }}
  {{- if and $v.tls.enabled $v.tls.clientCaSecret }}
  - name: client-ca
    secret:
      secretName: {{ $v.tls.clientCaSecret }}
      defaultMode: 0440
  {{- end }}
  {{- if $v.auth.tenants.existingSecret }}
  - name: tenants
    secret:
      secretName: {{ $v.auth.tenants.existingSecret }}
      defaultMode: 0440
  {{- end }}
  {{- if $v.auth.tenantSalt.existingSecret }}
  - name: salt
    secret:
      secretName: {{ $v.auth.tenantSalt.existingSecret }}
      defaultMode: 0440
  {{- end }}
  {{- end }}
  {{- with $r.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
