{{/* Names, labels and images. */}}
{{- define "baton.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "baton.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "baton.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "baton.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "baton.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* Roles without GPUs run this tag of the image, roles with them the one of Dockerfile.cuda, which is marked. */}}
{{- define "baton.tag" -}}
{{- .Values.image.tag | default .Chart.AppVersion -}}
{{- end -}}
{{- define "baton.cudaTag" -}}
{{- printf "%s-cuda" (include "baton.tag" . | trimSuffix "-cuda") -}}
{{- end -}}

{{/* dict: root, image (a role's own keys, which win), gpus (of the role) */}}
{{- define "baton.image" -}}
{{- $common := .root.Values.image -}}
{{- $own := .image -}}
{{- $gpus := gt (int .gpus) 0 -}}
{{- $repository := $own.repository | default $common.repository -}}
{{- $digest := $own.digest | default (ternary "" $common.digest (or $gpus (ne (default "" $own.tag) ""))) -}}
{{- if $digest -}}
{{- printf "%s@%s" $repository $digest -}}
{{- else -}}
{{- printf "%s:%s" $repository ($own.tag | default (include (ternary "baton.cudaTag" "baton.tag" $gpus) .root)) -}}
{{- end -}}
{{- end -}}

{{/* A quantity of memory in bytes, by Kubernetes' suffixes or by those of --kv-memory. */}}
{{- define "baton.bytes" -}}
{{- $units := dict "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- $unit := regexFind "[A-Za-z]*$" (toString .) | trimSuffix "B" -}}
{{- mulf (regexFind "^[0-9.]+" (toString .)) (get $units $unit | default 1.0) -}}
{{- end -}}

{{- define "baton.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "baton.fullname" .)) -}}
{{- end -}}

{{- define "baton.peerName" -}}
{{- .Values.tls.peerName | default (printf "%s.%s.svc" (include "baton.fullname" .) .Release.Namespace) -}}
{{- end -}}

{{- define "baton.downloads" -}}
{{- if has .Values.model.source (list "huggingFace" "s3") -}}true{{- end -}}
{{- end -}}

{{/* Roles of this release, as a list in YAML. A node's pods hold prefill and decode workers alike. */}}
{{- define "baton.roles" -}}
{{- if .Values.node.enabled }}[router, node]{{ else if .Values.prefill.enabled }}[router, prefill, decode]{{ else }}[router, decode]{{ end -}}
{{- end -}}

{{/* The workers of a node's pod, as `baton serve` numbers them: [{name, role, grpc, metrics}]. */}}
{{- define "baton.nodeWorkers" -}}
{{- $n := .Values.node -}}
{{- $at := 0 -}}
{{- range $role := list "prefill" "decode" -}}
{{- range $i := until (int (index $n (printf "%sWorkers" $role))) }}
- {name: {{ $role }}-{{ $i }}, role: {{ $role }}, grpc: {{ add 8480 $at }}, metrics: {{ add 9480 $at }}}
{{- $at = add1 $at -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- define "baton.nodeSize" -}}
{{- add (int .Values.node.prefillWorkers) (int .Values.node.decodeWorkers) -}}
{{- end -}}

{{/* The workers' gRPC ports, as NetworkPolicies name them. */}}
{{- define "baton.grpcPorts" -}}
{{- if .Values.node.enabled -}}
- port: 8480
  endPort: {{ add 8479 (int (include "baton.nodeSize" .)) }}
{{- else -}}
- port: grpc
{{- end -}}
{{- end -}}

{{/* Where routers look for the node's workers of a role. dict: root, role. */}}
{{- define "baton.nodeAddresses" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $addresses := list -}}
{{- range include "baton.nodeWorkers" $root | fromYamlArray -}}
{{- if eq .role $role -}}
{{- $addresses = append $addresses (printf "dns:///%s-node.%s.svc:%d" (include "baton.fullname" $root) $root.Release.Namespace (int .grpc)) -}}
{{- end -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{/* "true" if one pool computes on GPUs and the other one does not. */}}
{{- define "baton.mixed" -}}
{{- $v := .Values -}}
{{- if and (not $v.node.enabled) $v.prefill.enabled (ne (gt (int $v.prefill.gpus) 0) (gt (int $v.decode.gpus) 0)) -}}true{{- end -}}
{{- end -}}

{{/* "true" if any worker computes on GPUs. */}}
{{- define "baton.workersHaveGpus" -}}
{{- $v := .Values -}}
{{- if $v.node.enabled -}}
{{- if gt (int $v.node.gpus) 0 -}}true{{- end -}}
{{- else if or (gt (int $v.prefill.gpus) 0) (gt (int $v.decode.gpus) 0) -}}true{{- end -}}
{{- end -}}
