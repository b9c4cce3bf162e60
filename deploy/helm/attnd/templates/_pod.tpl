{{/* Parts of the server's pod: probes, preStop, resources, where it may run. */}}

{{/*
Startup and readiness ask grpc.health.v1, which says no while weights load and while the server drains. Liveness asks
/healthz: a server that drains is alive, and attnctl drain must not get it restarted. The kubelet's gRPC probe knows no TLS:
with TLS all three go over HTTP.
*/}}
{{- define "attnd.probes" -}}
startupProbe:
  {{- include "attnd.readyCheck" . | nindent 2 }}
  periodSeconds: 5
  failureThreshold: {{ max 1 (div (int .Values.startup.seconds) 5) }}
readinessProbe:
  {{- include "attnd.readyCheck" . | nindent 2 }}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "attnd.readyCheck" -}}
{{- if .Values.tls.secret -}}
httpGet: {path: /readyz, port: http}
{{- else -}}
grpc: {port: 8470, service: attnd.v1.AttentionService}
{{- end }}
{{- end }}

{{/*
With a balancer the sessions move away first. A hook that fails or runs out of time is an event; SIGTERM follows. Without a
balancer SIGTERM does it all: the server says that it drains, serves on for drainSeconds, refuses, and ends.
*/}}
{{- define "attnd.preStop" -}}
{{- $via := ternary "" (include "attnd.balancer" .) (eq (int .Values.stopping.moveSeconds) 0) }}
{{- with $via }}
{{- if and $.Values.tokens.secret (not $.Values.tokens.drainKey) }}
  {{- fail "tokens.drainKey: with tokens.secret and a balancer preStop needs a token to move sessions; stopping.moveSeconds: 0 moves none" }}
{{- end }}
{{- $target := "127.0.0.1:8470" }}
{{- $flags := "" }}
{{- if $.Values.tls.secret }}
  {{- $target = printf "$POD_NAME.%s:8470" (include "attnd.podDomain" $) }}
  {{- $flags = " --tls_ca /etc/attnd/tls/ca.crt" }}
  {{- if $.Values.tls.clientCa }}
    {{- $flags = printf "%s --tls_cert /etc/attnd/tls/tls.crt --tls_key /etc/attnd/tls/tls.key" $flags }}
  {{- end }}
{{- end }}
{{- if $.Values.tokens.drainKey }}
  {{- $flags = printf "%s --auth_token_file /etc/attnd/tokens/%s" $flags $.Values.tokens.drainKey }}
{{- end }}
lifecycle:
  preStop:
    exec:
      command:
        - /bin/sh
        - -c
        - exec timeout {{ $.Values.stopping.moveSeconds }} attnctl drain {{ $target }} --via {{ . }}{{ $flags }}
{{- end }}
{{- end }}

{{- define "attnd.resources" -}}
{{- $resources := deepCopy .Values.resources }}
{{- if eq .Values.device "cuda" }}
  {{- $gpus := dict "limits" (dict "nvidia.com/gpu" .Values.gpu.count) }}
  {{- $resources = mergeOverwrite $resources $gpus }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{/* One server a node where there are enough, spread over zones; both are wishes, a server is better there than nowhere. */}}
{{- define "attnd.placement" -}}
{{- $selector := .Values.nodeSelector }}
{{- $tolerations := .Values.tolerations }}
{{- if eq .Values.device "cuda" }}
  {{- $selector = merge (deepCopy $selector) .Values.gpu.nodeSelector }}
  {{- $tolerations = concat $tolerations .Values.gpu.tolerations }}
  {{- with .Values.gpu.runtimeClassName }}
runtimeClassName: {{ . }}
  {{- end }}
{{- end }}
{{- with $selector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "attnd.selector" . | nindent 8 }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "attnd.selector" . | nindent 14 }}
{{- end }}
