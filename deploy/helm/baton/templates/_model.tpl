{{/* Where the model folder is from. */}}
{{- define "baton.modelFolder" -}}
{{- if eq .Values.model.source "image" -}}{{ .Values.model.image.path }}{{- else -}}/models{{ include "baton.suffix" . }}{{- end -}}
{{- end -}}

{{/* The model as processes are told of it: the folder, or a GGUF file in it. */}}
{{- define "baton.modelPath" -}}
{{- include "baton.modelFolder" . -}}{{- with .Values.model.file -}}/{{ . }}{{- end -}}
{{- end -}}

{{/* How a container sees the folder, if it is not in the image. */}}
{{- define "baton.modelMount" -}}
{{- $m := .Values.model -}}
{{- if ne $m.source "image" -}}
- name: model{{ include "baton.suffix" . }}
  mountPath: {{ include "baton.modelFolder" . }}
  readOnly: true
  {{- if and (eq $m.source "pvc") $m.pvc.subPath }}
  subPath: {{ $m.pvc.subPath }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* The routers' models file (router/models_file.h): the models beside the one of --model. */}}
{{- define "baton.modelsFile" -}}
{{- include "baton.setPools" . -}}
{{- $models := list -}}
{{- range $key, $pool := .pools -}}
{{- $own := index $.Values.models $key -}}
{{- $model := dict "name" $pool.Values.model.name "folder" (include "baton.modelPath" $pool) -}}
{{- $_ := set $model "decode" (list (include "baton.poolAddress" (dict "root" $pool "role" "decode"))) -}}
{{- if $pool.Values.prefill.enabled -}}
{{- $_ := set $model "prefill" (list (include "baton.poolAddress" (dict "root" $pool "role" "prefill"))) -}}
{{- end -}}
{{- with $own.classifier -}}{{- $_ := set $model "classifier" . -}}{{- end -}}
{{- with $own.outputFormat -}}{{- $_ := set $model "output_format" . -}}{{- end -}}
{{- with $own.tenants -}}{{- $_ := set $model "tenants" . -}}{{- end -}}
{{- range $value, $field := dict "maxTokens" "max_tokens" "defaultMaxTokens" "default_max_tokens" "requestsPerMinute" "requests_per_minute" "promptTokensPerMinute" "prompt_tokens_per_minute" "outputTokensPerMinute" "output_tokens_per_minute" -}}
{{- with index $own $value -}}{{- $_ := set $model $field (int64 .) -}}{{- end -}}
{{- end -}}
{{- $models = append $models $model -}}
{{- end -}}
{{- $file := dict "models" $models -}}
{{- with .Values.moderation -}}
{{- if or .policy (ne (float64 .timeoutSeconds) 10.0) -}}
{{- $_ := set $file "moderation" (dict "policy" (default "off" .policy) "input" .input "fail_open" .failOpen "timeout_seconds" .timeoutSeconds) -}}
{{- end -}}
{{- end -}}
{{- toPrettyJson $file -}}
{{- end -}}

{{/* What the download script reads: the address, then "sha256  name" lines. */}}
{{- define "baton.manifest" -}}
{{- $m := .Values.model -}}
{{- $files := ternary $m.huggingFace.files $m.s3.files (eq $m.source "huggingFace") -}}
{{- if eq $m.source "huggingFace" }}
{{- printf "%s/%s/resolve/%s" (trimSuffix "/" $m.huggingFace.endpoint) $m.huggingFace.repository $m.huggingFace.revision }}
{{- else }}
{{- trimSuffix "/" $m.s3.url }}
{{- end }}
{{ range $name, $sum := $files -}}
{{ $sum }}  {{ $name }}
{{ end -}}
{{- end -}}

{{/* The ports of the servers that pods pull models from, as a list in YAML. */}}
{{- define "baton.downloadPorts" -}}
{{- include "baton.setPools" . -}}
{{- $all := list . -}}
{{- range $key, $pool := .pools -}}{{- $all = append $all $pool -}}{{- end -}}
{{- range $all -}}
{{- if include "baton.downloads" . -}}
{{- $m := .Values.model -}}
{{- $url := urlParse (ternary $m.huggingFace.endpoint $m.s3.url (eq $m.source "huggingFace")) }}
- {{ regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary 80 443 (eq $url.scheme "http")) }}
{{- range $m.download.proxyPorts }}
- {{ . }}
{{- end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "baton.modelVolumes" -}}
{{- $root := .root -}}
{{- $m := $root.Values.model -}}
{{- $suffix := include "baton.suffix" $root -}}
{{- if eq $m.source "pvc" }}
- name: model{{ $suffix }}
  persistentVolumeClaim:
    claimName: {{ $m.pvc.claimName }}
    readOnly: true
{{- else if eq $m.source "hostPath" }}
- name: model{{ $suffix }}
  hostPath:
    path: {{ $m.hostPath.path }}
    type: Directory
{{- else if include "baton.downloads" $root }}
{{- /* A router needs no weights, but a GGUF file is one piece. */}}
{{- $whole := or (ne .role "router") $m.file }}
{{- if and $m.download.claimName $whole }}
- name: model{{ $suffix }}
  persistentVolumeClaim:
    claimName: {{ $m.download.claimName }}
{{- else }}
- name: model{{ $suffix }}
  emptyDir:
    sizeLimit: {{ ternary $m.download.sizeLimit "1Gi" (not (not $whole)) }}
{{- end }}
- name: manifest{{ $suffix }}
  configMap:
    name: {{ include "baton.fullname" $root }}-model{{ $suffix }}
{{- end }}
{{- end -}}

{{/* An init container that pulls the folder; a router leaves the weights out. dict: root, role, r. */}}
{{- define "baton.downloader" -}}
{{- $m := .root.Values.model -}}
{{- $suffix := include "baton.suffix" .root -}}
- name: model{{ $suffix }}
  image: {{ $m.download.image }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [sh, /etc/baton/model/pull-model.sh]
  env:
    - name: WEIGHTS
      value: {{ ternary "no" "yes" (eq .role "router") | quote }}
    {{- if and (eq $m.source "huggingFace") $m.huggingFace.tokenSecret.name }}
    - name: TOKEN
      valueFrom:
        secretKeyRef:
          name: {{ $m.huggingFace.tokenSecret.name }}
          key: {{ $m.huggingFace.tokenSecret.key }}
    {{- end }}
    {{- if and (eq $m.source "s3") $m.s3.credentialsSecret.name }}
    - name: REGION
      value: {{ $m.s3.region | quote }}
    - name: ACCESS_KEY_ID
      valueFrom:
        secretKeyRef:
          name: {{ $m.s3.credentialsSecret.name }}
          key: accessKeyId
    - name: SECRET_ACCESS_KEY
      valueFrom:
        secretKeyRef:
          name: {{ $m.s3.credentialsSecret.name }}
          key: secretAccessKey
    - name: SESSION_TOKEN
      valueFrom:
        secretKeyRef:
          name: {{ $m.s3.credentialsSecret.name }}
          key: sessionToken
          optional: true
    {{- end }}
    {{- with $m.download.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  resources:
    {{- toYaml $m.download.resources | nindent 4 }}
  securityContext:
    {{- toYaml .r.securityContext | nindent 4 }}
  volumeMounts:
    - name: model{{ $suffix }}
      mountPath: /models
    - name: manifest{{ $suffix }}
      mountPath: /etc/baton/model
      readOnly: true
    - name: tmp
      mountPath: /tmp
    {{- with $m.download.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
