{{/* Names, labels, and what several templates ask: seconds of stopping, the balancer's address. */}}

{{- define "attnd.name" -}}
{{- if contains "attnd" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-attnd" (.Release.Name | trunc 34 | trimSuffix "-") }}
{{- end }}
{{- end }}

{{- define "attnd.headless" -}}
{{ include "attnd.name" . }}-headless
{{- end }}

{{/* The domain below which a pod's name is its address. */}}
{{- define "attnd.podDomain" -}}
{{ include "attnd.headless" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- define "attnd.selector" -}}
app.kubernetes.io/name: attnd
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end }}

{{- define "attnd.envoySelector" -}}
app.kubernetes.io/name: attnd
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: balancer
{{- end }}

{{- define "attnd.labels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "attnd.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "attnd.name" .) }}
{{- end }}

{{- define "attnd.image" -}}
{{- $suffix := ternary "-cuda" "" (eq .Values.device "cuda") -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "%s%s" .Chart.AppVersion $suffix) }}
{{- end }}

{{/* Where preStop sends the sessions; empty: nowhere. */}}
{{- define "attnd.balancer" -}}
{{- if .Values.envoy.enabled -}}
{{ include "attnd.name" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:{{ .Values.service.port }}
{{- else -}}
{{ .Values.balancer }}
{{- end }}
{{- end }}

{{/* The longest that a pod takes to stop: preStop, then the two phases of SIGTERM. */}}
{{- define "attnd.stopSeconds" -}}
{{- $move := ternary 0 (int .Values.stopping.moveSeconds) (empty (include "attnd.balancer" .)) -}}
{{ add $move (int .Values.stopping.drainSeconds) (int .Values.stopping.graceSeconds) }}
{{- end }}

{{- define "attnd.terminationSeconds" -}}
{{- $stop := int (include "attnd.stopSeconds" .) -}}
{{- $asked := .Values.stopping.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $asked -}}
{{ add $stop 15 }}
{{- else -}}
{{- if le (int $asked) $stop }}
{{- fail (printf "stopping.terminationGracePeriodSeconds: %d; the pod takes up to %d s to stop (moveSeconds with a balancer, drainSeconds, graceSeconds), so more than that" (int $asked) $stop) }}
{{- end -}}
{{ int $asked }}
{{- end }}
{{- end }}

{{/* A number as attnd reads it: Helm would write 2000000 as 2e+06. */}}
{{- define "attnd.flagValue" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ printf "%.0f" . }}
{{- else }}{{ toString . }}
{{- end }}
{{- end }}

{{- define "attnd.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "attnd.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
