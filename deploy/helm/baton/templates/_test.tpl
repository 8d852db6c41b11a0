{{- define "baton.testFlags" -}}
{{- if .Values.tls.enabled }}
- --tls-ca=/etc/baton/tls/ca.crt
- --tls-cert=/etc/baton/tls/tls.crt
- --tls-key=/etc/baton/tls/tls.key
- --tls-server-name={{ include "baton.peerName" . }}
{{- end }}
{{- if .Values.auth.testKey.existingSecret }}
- --api-key-file=/etc/baton/key/{{ .Values.auth.testKey.key }}
{{- end }}
{{- end -}}
{{- define "baton.testMounts" -}}
{{- if or .Values.tls.enabled .Values.auth.testKey.existingSecret -}}
volumeMounts:
  {{- if .Values.tls.enabled }}
  - name: tls
    mountPath: /etc/baton/tls
    readOnly: true
  {{- end }}
  {{- if .Values.auth.testKey.existingSecret }}
  - name: key
    mountPath: /etc/baton/key
    readOnly: true
  {{- end }}
{{- end -}}
{{- end -}}
