{{/* Names, labels and images. */}}
{{/*
The prefix of objects' names: at most 46 characters, so that the longest of them, -gateway-metrics and a StatefulSet's
pods, are within 63. Releases may have dots, and names of Services may not.
*/}}
{{- define "baton.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride | lower | replace "_" "-" -}}
{{- $release := .Release.Name | replace "." "-" -}}
{{- ternary $release (printf "%s-%s" $release $name) (contains $name $release) | trunc 46 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The label by which metrics are told apart: the release's name, and where a parent chart has this one under several names (alias), the objects' prefix. */}}
{{- define "baton.release" -}}
{{- ternary .Release.Name (include "baton.fullname" .) (eq .Chart.Name "baton") -}}
{{- end -}}

{{/* The name of what Prometheus picks up. In a namespace for such objects it has the release's, since releases of other namespaces have theirs there, too. */}}
{{- define "baton.observedName" -}}
{{- $namespace := .Values.observability.namespace -}}
name: {{ include "baton.fullname" . }}{{ if $namespace }}-{{ .Release.Namespace }}{{ end }}
{{- with $namespace }}
namespace: {{ . }}
{{- end }}
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

{{/* Of pods: nothing that changes with the chart alone, which would restart them all. */}}
{{- define "baton.podLabels" -}}
{{ include "baton.selector" . }}
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

{{/*
"cuda" or "cpu": where a role computes. GPUs that come by claims are not counted, so it has to be said of them. A router computes nothing, and its GPUs choose
its image alone. Of a role's values.
*/}}
{{- define "baton.backend" -}}
{{- $backend := .backend | default "auto" -}}
{{- if eq $backend "auto" -}}{{- ternary "cuda" "cpu" (gt (int .gpus) 0) -}}{{- else -}}{{- $backend -}}{{- end -}}
{{- end -}}

{{/* dict: root, image (a role's own keys, which win), backend (of the role) */}}
{{- define "baton.image" -}}
{{- $common := .root.Values.image -}}
{{- $own := .image -}}
{{- $gpus := eq .backend "cuda" -}}
{{- $repository := $own.repository | default $common.repository -}}
{{- with (.root.Values.global | default dict).imageRegistry -}}{{- $repository = printf "%s/%s" (trimSuffix "/" .) $repository -}}{{- end -}}
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

{{/* A duration of Prometheus in one unit, as in 15s, 2m or 500ms. */}}
{{- define "baton.milliseconds" -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- mul (trimSuffix $unit .) (get (dict "ms" 1 "s" 1000 "m" 60000) $unit) -}}
{{- end -}}

{{/* imagePullSecrets of pods: the chart's and a parent chart's (global), each a name or {name: ...}. */}}
{{- define "baton.pullSecrets" -}}
{{- with concat (.Values.imagePullSecrets | default list) ((.Values.global | default dict).imagePullSecrets | default list) -}}
imagePullSecrets:
{{- range . }}
  - name: {{ kindIs "map" . | ternary (get (kindIs "map" . | ternary . dict) "name") . }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "baton.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "baton.fullname" .)) -}}
{{- end -}}

{{/* The Secret with the certificate that clients of the gateway see; empty: it speaks without TLS. */}}
{{- define "baton.gatewayTlsSecret" -}}
{{- if .Values.gateway.tls.existingSecret -}}
{{- .Values.gateway.tls.existingSecret -}}
{{- else if and .Values.tls.enabled .Values.tls.certManager.enabled -}}
{{- printf "%s-gateway-tls" (include "baton.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "baton.peerName" -}}
{{- .Values.tls.peerName | default (printf "%s.%s.svc" (include "baton.fullname" .) .Release.Namespace) -}}
{{- end -}}

{{- define "baton.downloads" -}}
{{- if has .Values.model.source (list "huggingFace" "s3") -}}true{{- end -}}
{{- end -}}

{{/*
Sets .pools to the roots of `models`, by key: each is as the release's root, with the model's own values and .pool, its key. What says where
a folder is from is not inherited, so that no model is made of another one's files. Nor is nccl by pools on CPUs, whose image has none, nor a
link's test by a pool without prefill workers to test with.
*/}}
{{- define "baton.setPools" -}}
{{- if not (hasKey . "pools") -}}
{{- $pools := dict -}}
{{- range $key, $one := .Values.models -}}
{{- $values := deepCopy $.Values -}}
{{- range $from, $none := dict "image" (dict "path" "") "pvc" (dict "claimName" "" "subPath" "") "hostPath" (dict "path" "") "huggingFace" (dict "repository" "" "revision" "" "files" dict) "s3" (dict "url" "" "files" dict) "download" (dict "claimName" "") -}}
{{- range $field, $empty := $none -}}
{{- $_ := set (index $values.model $from) $field $empty -}}
{{- end -}}
{{- end -}}
{{- $_ := set $values.model "file" "" -}}
{{- $_ := set $values.node "enabled" false -}}
{{- $_ := set $values "models" dict -}}
{{- $_ := mergeOverwrite $values (deepCopy (pick $one "model" "prefill" "decode")) -}}
{{- $prefills := $values.prefill.enabled -}}
{{- $cpu := and (eq (include "baton.backend" $values.decode) "cpu") (or (not $prefills) (eq (include "baton.backend" $values.prefill) "cpu")) -}}
{{- $host := and $cpu (eq $values.link.name "nccl") -}}
{{- if or $host (not $prefills) -}}{{- $_ := mergeOverwrite $values.link (dict "floorGbps" 0 "transport" "any") -}}{{- end -}}
{{- if $host -}}{{- $_ := set $values.link "name" "host" -}}{{- end -}}
{{- $_ := set $pools $key (dict "Values" $values "Release" $.Release "Chart" $.Chart "Files" $.Files "pool" $key "pools" dict) -}}
{{- end -}}
{{- $_ := set . "pools" $pools -}}
{{- end -}}
{{- end -}}

{{/* "-KEY" in the names of what belongs to one of `models`. */}}
{{- define "baton.suffix" -}}
{{- with .pool }}-{{ . }}{{ end -}}
{{- end -}}

{{/* The component of a role's pods. dict: root, role. */}}
{{- define "baton.component" -}}
{{- .role }}{{ include "baton.suffix" .root -}}
{{- end -}}

{{/* Components of all workers, as a list in YAML. */}}
{{- define "baton.workerComponents" -}}
{{- include "baton.setPools" . -}}
{{- $all := ternary (list "node") (list "prefill" "decode") .Values.node.enabled -}}
{{- range $key, $pool := .pools -}}
{{- if $pool.Values.prefill.enabled -}}{{- $all = append $all (printf "prefill-%s" $key) -}}{{- end -}}
{{- $all = append $all (printf "decode-%s" $key) -}}
{{- end -}}
[{{ join ", " $all }}]
{{- end -}}

{{/* "true" if a pod pulls any model. */}}
{{- define "baton.anyDownloads" -}}
{{- include "baton.setPools" . -}}
{{- $any := include "baton.downloads" . -}}
{{- range .pools -}}{{- $any = $any | default (include "baton.downloads" .) -}}{{- end -}}
{{- $any -}}
{{- end -}}

{{/* Where routers look for a pool's workers. dict: root, role. */}}
{{- define "baton.poolAddress" -}}
dns:///{{ include "baton.fullname" .root }}-{{ include "baton.component" . }}.{{ .root.Release.Namespace }}.svc:8470
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
{{- if .Values.models }}
- port: grpc
{{- end -}}
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
{{- if and (not $v.node.enabled) $v.prefill.enabled (ne (include "baton.backend" $v.prefill) (include "baton.backend" $v.decode)) -}}true{{- end -}}
{{- end -}}
