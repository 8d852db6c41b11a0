{{/*
One role's Deployment, or for nodes their StatefulSet. dict: root, role.
All roles are made here, so that they have the same keys.
*/}}
{{- define "baton.role" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $r := index $root.Values $role -}}
{{- include "baton.setPools" $root -}}
{{- $component := include "baton.component" (dict "root" $root "role" $role) -}}
{{- $name := printf "%s-%s" (include "baton.fullname" $root) $component -}}
{{- $pod := dict "root" $root "role" $role "r" $r "name" $name -}}
{{- $node := eq $role "node" -}}
apiVersion: apps/v1
kind: {{ ternary "StatefulSet" "Deployment" $node }}
metadata:
  name: {{ $name }}
  labels:
    {{- include "baton.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
spec:
  {{- with $r.minReadySeconds }}
  minReadySeconds: {{ . }}
  {{- end }}
  {{- if $node }}
  replicas: {{ $r.replicas }}
  serviceName: {{ $name }}
  podManagementPolicy: Parallel
  updateStrategy:
    type: RollingUpdate
  {{- else }}
  {{- with include "baton.replicas" $pod }}
  {{- . | nindent 2 }}
  {{- end }}
  # A new worker loads its model before it counts.
  progressDeadlineSeconds: {{ add 120 (int $r.minReadySeconds) (mul (int $r.probes.startup.periodSeconds) (int $r.probes.startup.failureThreshold)) }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      {{- include "baton.rolling" $r | nindent 6 }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "baton.selector" $root | nindent 6 }}
      app.kubernetes.io/component: {{ $component }}
  template:
    metadata:
      labels:
        {{- include "baton.podLabels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $component }}
        {{- with $r.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ $role }}
        {{- if include "baton.downloads" $root }}
        checksum/model: {{ include "baton.manifest" $root | sha256sum }}
        {{- end }}
        {{- if and $root.Values.models (eq $role "router") }}
        checksum/models: {{ include "baton.modelsFile" $root | sha256sum }}
        {{- end }}
        {{- with $r.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "baton.podSpec" $pod | nindent 6 }}
{{- end -}}

{{/*
The replicas of a Deployment. An autoscaler's number is said again as it stands: a number that was in the release before and is missing now would be taken back,
and the API puts 1 in its place. Without a cluster (helm template) or a Deployment there is nothing to say. dict: root, r, name.
*/}}
{{- define "baton.replicas" -}}
{{- if not .r.autoscaling.enabled -}}
replicas: {{ .r.replicas }}
{{- else -}}
{{- with lookup "apps/v1" "Deployment" .root.Release.Namespace .name -}}
replicas: {{ .spec.replicas }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Hooks of a role's own container, of its values: the chart's is the wait before SIGTERM. */}}
{{- define "baton.lifecycle" -}}
{{- $hooks := deepCopy (.lifecycle | default dict) -}}
{{- with int .preStopSeconds -}}{{- $_ := set $hooks "preStop" (dict "sleep" (dict "seconds" .)) -}}{{- end -}}
{{- with $hooks -}}
lifecycle:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/*
maxSurge and maxUnavailable of one role's values, with what is left open chosen: a pod that takes something of
which there is seldom one more can't come before another has gone.
*/}}
{{- define "baton.rolling" -}}
{{- $scarce := or (gt (int .gpus) 0) .resourceClaims .hostNetwork (dig "hostPath" "" (.kvDisk | default dict)) -}}
{{- $surge := .strategy.maxSurge -}}
{{- $unavailable := .strategy.maxUnavailable -}}
{{- if kindIs "invalid" $surge -}}
{{- $surge = ternary 0 1 (not (not $scarce)) -}}
{{- if not (kindIs "invalid" $unavailable) -}}{{- if eq (toString $unavailable | trimSuffix "%") "0" -}}{{- $surge = 1 -}}{{- end -}}{{- end -}}
{{- end -}}
{{- if kindIs "invalid" $unavailable -}}{{- $unavailable = ternary 1 0 (eq (toString $surge | trimSuffix "%") "0") -}}{{- end -}}
maxSurge: {{ $surge }}
maxUnavailable: {{ $unavailable }}
{{- end -}}

{{/* Where a pod runs: by its role's own keys and by those of all pods. Labels of nodes and tolerations add up, and for the rest the role's own wins. dict: root, r. */}}
{{- define "baton.scheduling" -}}
{{- $v := .root.Values -}}
{{- $keys := dict -}}
{{- range $key := list "priorityClassName" "runtimeClassName" "schedulerName" "affinity" -}}
{{- with index $.r $key | default (index $v $key) -}}{{- $_ := set $keys $key . -}}{{- end -}}
{{- end -}}
{{- with merge (deepCopy (.r.nodeSelector | default dict)) ($v.nodeSelector | default dict) -}}{{- $_ := set $keys "nodeSelector" . -}}{{- end -}}
{{- with concat ($v.tolerations | default list) (.r.tolerations | default list) -}}{{- $_ := set $keys "tolerations" . -}}{{- end -}}
{{- with $keys -}}{{- toYaml . -}}{{- end -}}
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
{{- with include "baton.pullSecrets" $root }}
{{- . | nindent 0 }}
{{- end }}
{{- with include "baton.scheduling" (dict "root" $root "r" $r) }}
{{- . | nindent 0 }}
{{- end }}
{{- if $r.hostNetwork }}
hostNetwork: true
{{- if not (hasKey ($r.podSpec | default dict) "dnsPolicy") }}
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- end }}
{{- with $r.podSpec }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- $worker := ne $role "router" }}
{{- $nccl := and $worker (eq $v.link.name "nccl") }}
{{- $podSecurity := deepCopy $r.podSecurityContext }}
{{- if $r.rdma.runAsRoot }}
{{- $_ := set $podSecurity "runAsNonRoot" false }}
{{- $_ := set $podSecurity "runAsUser" 0 }}
{{- end }}
{{- if and $nccl $v.link.portRange }}
{{- $range := dict "name" "net.ipv4.ip_local_port_range" "value" (replace "-" " " $v.link.portRange) }}
{{- $_ := set $podSecurity "sysctls" (append ($podSecurity.sysctls | default list) $range) }}
{{- end }}
securityContext:
  {{- toYaml $podSecurity | nindent 2 }}
{{- with $r.resourceClaims }}
resourceClaims:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $r.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  {{- $own := dict "matchLabels" (merge (dict "app.kubernetes.io/component" (include "baton.component" (dict "root" $root "role" $role))) (include "baton.selector" $root | fromYaml)) }}
  -
    {{- toYaml (merge (deepCopy .) (dict "labelSelector" $own)) | nindent 4 }}
  {{- end }}
{{- end }}
{{- $plugin := and $nccl $v.link.plugin.image }}
{{- /* Whose folders the pod has: the model's, and in a router those of all models. */}}
{{- $served := list $root }}
{{- if not $worker }}
{{- range keys $root.pools | sortAlpha }}{{ $served = append $served (index $root.pools .) }}{{ end }}
{{- end }}
{{- if or (ternary (include "baton.downloads" $root) (include "baton.anyDownloads" $root) $worker) $plugin $r.extraInitContainers }}
initContainers:
  {{- range $served }}
  {{- if include "baton.downloads" . }}
  {{- include "baton.downloader" (dict "root" . "role" $role "r" $r) | nindent 2 }}
  {{- end }}
  {{- end }}
  {{- if $plugin }}
  - name: nccl-plugin
    image: {{ $v.link.plugin.image }}
    imagePullPolicy: {{ $v.image.pullPolicy }}
    command: [sh, -c, {{ printf "cp -rL %s/. /mnt/nccl-plugin/" $v.link.plugin.folder | quote }}]
    resources:
      {{- toYaml $v.link.plugin.resources | nindent 6 }}
    securityContext:
      {{- toYaml $r.securityContext | nindent 6 }}
    volumeMounts:
      - name: nccl-plugin
        mountPath: /mnt/nccl-plugin
  {{- end }}
  {{- with $r.extraInitContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
containers:
  - name: {{ $role }}
    image: {{ include "baton.image" (dict "root" $root "image" $r.image "backend" (include "baton.backend" $r)) }}
    imagePullPolicy: {{ $r.image.pullPolicy | default $v.image.pullPolicy }}
    command: [/usr/local/bin/baton{{ if ne $role "node" }}-{{ $role }}{{ end }}]
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
      {{- if and $worker $v.link.domain }}
      - name: LINK_DOMAIN
        valueFrom:
          fieldRef:
            fieldPath: {{ $v.link.domain }}
      {{- end }}
      {{- if $nccl }}
      {{- range $name, $value := merge (deepCopy $v.link.env) (dict "NCCL_RAS_ENABLE" "0") }}
      - name: {{ $name }}
        value: {{ $value | quote }}
      {{- end }}
      {{- end }}
      {{- with $r.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with $r.extraEnvFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      {{- if eq $role "node" }}
      {{- range include "baton.nodeWorkers" $root | fromYamlArray }}
      - name: {{ .name }}
        containerPort: {{ .grpc }}
      - name: m-{{ .name }}
        containerPort: {{ .metrics }}
      {{- end }}
      {{- else }}
      - name: grpc
        containerPort: 8470
      - name: metrics
        containerPort: 9470
      {{- end }}
      - name: health
        containerPort: 8471
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
    {{- with include "baton.lifecycle" $r }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- $resources := deepCopy $r.resources }}
    {{- $devices := dict }}
    {{- if gt (int $r.gpus) 0 }}{{ $_ := set $devices $r.gpuResource (int $r.gpus) }}{{ end }}
    {{- if $r.rdma.enabled }}{{ $_ := set $devices $r.rdma.resource (int $r.rdma.count) }}{{ end }}
    {{- with $r.hugepages2Mi }}{{ $_ := set $devices "hugepages-2Mi" . }}{{ end }}
    {{- with $r.resourceClaims }}
    {{- $claims := list }}
    {{- range . }}{{ $claims = append $claims (dict "name" .name) }}{{ end }}
    {{- $_ := set $resources "claims" $claims }}
    {{- end }}
    {{- if $devices }}
    {{- $_ := set $resources "limits" (merge $devices ($resources.limits | default dict)) }}
    {{- end }}
    resources:
      {{- toYaml $resources | nindent 6 }}
    {{- $security := deepCopy $r.securityContext }}
    {{- if $r.rdma.runAsRoot }}
    {{- $capabilities := $security.capabilities | default dict }}
    {{- $_ := set $capabilities "add" (append ($capabilities.add | default list) "IPC_LOCK" | uniq) }}
    {{- $_ := set $security "capabilities" $capabilities }}
    {{- end }}
    securityContext:
      {{- toYaml $security | nindent 6 }}
    volumeMounts:
      - name: tmp
        mountPath: /tmp
      {{- range $served }}
      {{- with include "baton.modelMount" . }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- end }}
      {{- if $r.shm.enabled }}
      - name: shm
        mountPath: /dev/shm
      {{- end }}
      {{- if and $worker $r.kvDisk.size }}
      - name: kv-disk
        mountPath: /var/lib/baton/kv
      {{- end }}
      {{- if and $worker $v.kvShared.claimName }}
      - name: kv-shared
        mountPath: /var/lib/baton/shared
      {{- end }}
      {{- if and $worker (or $r.kvDisk.size $v.kvShared.claimName) $r.kvDisk.key.existingSecret }}
      - name: kv-disk-key
        mountPath: /etc/baton/kv-disk
        readOnly: true
      {{- end }}
      {{- if $plugin }}
      - name: nccl-plugin
        mountPath: /opt/nccl-plugin/lib
        readOnly: true
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
      {{- if $v.models }}
      - name: models
        mountPath: /etc/baton/models
        readOnly: true
      {{- end }}
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
      {{- if $v.store.password.existingSecret }}
      - name: store
        mountPath: /etc/baton/store
        readOnly: true
      {{- end }}
      {{- if $v.billing.prices.existingConfigMap }}
      - name: prices
        mountPath: /etc/baton/prices
        readOnly: true
      {{- end }}
      {{- if $v.billing.ledger.volume }}
      - name: ledger
        mountPath: /var/lib/baton/ledger
      {{- end }}
      {{- end }}
      {{- with $r.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- with $r.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 64Mi
  {{- range $served }}
  {{- with include "baton.modelVolumes" (dict "root" . "role" $role) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- end }}
  {{- if $r.shm.enabled }}
  - name: shm
    emptyDir:
      medium: Memory
      sizeLimit: {{ $r.shm.sizeLimit }}
  {{- end }}
  {{- if and $worker $r.kvDisk.size }}
  - name: kv-disk
    {{- if $r.kvDisk.hostPath }}
    hostPath:
      path: {{ $r.kvDisk.hostPath }}
      type: Directory
    {{- else }}
    emptyDir: {}
    {{- end }}
  {{- end }}
  {{- if and $worker $v.kvShared.claimName }}
  - name: kv-shared
    persistentVolumeClaim:
      claimName: {{ $v.kvShared.claimName }}
  {{- end }}
  {{- if and $worker (or $r.kvDisk.size $v.kvShared.claimName) $r.kvDisk.key.existingSecret }}
  - name: kv-disk-key
    secret:
      secretName: {{ $r.kvDisk.key.existingSecret }}
      defaultMode: 0440
  {{- end }}
  {{- if and (ne $role "router") (eq $v.link.name "nccl") $v.link.plugin.image }}
  - name: nccl-plugin
    emptyDir:
      sizeLimit: 1Gi
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
  {{- if $v.models }}
  - name: models
    configMap:
      name: {{ include "baton.fullname" $root }}-models
  {{- end }}
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
  {{- if $v.store.password.existingSecret }}
  - name: store
    secret:
      secretName: {{ $v.store.password.existingSecret }}
      defaultMode: 0440
  {{- end }}
  {{- if $v.billing.prices.existingConfigMap }}
  - name: prices
    configMap:
      name: {{ $v.billing.prices.existingConfigMap }}
  {{- end }}
  {{- with $v.billing.ledger.volume }}
  - name: ledger
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with $r.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
