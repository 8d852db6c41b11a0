{{- define "baton.testFlags" -}}
{{- if .Values.tls.enabled }}
- --tls-ca=/etc/baton/tls/ca.crt
- --tls-cert=/etc/baton/tls/tls.crt
- --tls-key=/etc/baton/tls/tls.key
{{- end }}
{{- end -}}
{{- define "baton.testMounts" -}}
{{- if .Values.tls.enabled -}}
volumeMounts:
  - name: tls
    mountPath: /etc/baton/tls
    readOnly: true
{{- end -}}
{{- end -}}
