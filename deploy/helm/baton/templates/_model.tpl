{{/* Where the model folder is from. */}}
{{- define "baton.modelFolder" -}}
{{- if eq .Values.model.source "image" -}}{{ .Values.model.image.path }}{{- else -}}/models{{- end -}}
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

{{- define "baton.modelVolumes" -}}
{{- $root := .root -}}
{{- $m := $root.Values.model -}}
{{- if eq $m.source "pvc" }}
- name: model
  persistentVolumeClaim:
    claimName: {{ $m.pvc.claimName }}
    readOnly: true
{{- else if eq $m.source "hostPath" }}
- name: model
  hostPath:
    path: {{ $m.hostPath.path }}
    type: Directory
{{- else if include "baton.downloads" $root }}
{{- if and $m.download.claimName (ne .role "router") }}
- name: model
  persistentVolumeClaim:
    claimName: {{ $m.download.claimName }}
{{- else }}
- name: model
  emptyDir:
    sizeLimit: {{ ternary "1Gi" $m.download.sizeLimit (eq .role "router") }}
{{- end }}
- name: manifest
  configMap:
    name: {{ include "baton.fullname" $root }}-model
{{- end }}
{{- end -}}

{{/* An init container that pulls the folder; a router leaves the weights out. dict: root, role, r. */}}
{{- define "baton.downloader" -}}
{{- $m := .root.Values.model -}}
- name: model
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
    {{- end }}
  resources:
    requests:
      cpu: 500m
      memory: 128Mi
  securityContext:
    {{- toYaml .r.securityContext | nindent 4 }}
  volumeMounts:
    - name: model
      mountPath: /models
    - name: manifest
      mountPath: /etc/baton/model
      readOnly: true
    - name: tmp
      mountPath: /tmp
{{- end -}}
