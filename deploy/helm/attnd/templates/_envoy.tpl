{{/*
Envoy's two files: those of deploy/envoy, which files/ links to, with this release's servers and TLS put in. Helm reads them
as data, so what deploy/envoy says of windows, time limits and health checks holds here too.
*/}}

{{- define "attnd.envoyConfig" -}}
{{- $config := .Files.Get "files/envoy.yaml" | fromYaml }}
{{- if .Values.tls.secret }}
  {{- $chain := index (index $config.static_resources.listeners 0).filter_chains 0 }}
  {{- $context := include "attnd.envoyTls" (dict "certificate" "server" "check" .Values.tls.clientCa) | fromYaml }}
  {{- $type := "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext" }}
  {{- $tls := dict "@type" $type "common_tls_context" $context "require_client_certificate" .Values.tls.clientCa }}
  {{- $_ := set $chain "transport_socket" (dict "name" "envoy.transport_sockets.tls" "typed_config" $tls) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/*
A server's place on the ring is its name and does not depend on how many others there are: the ring is made for all that there
may be, 1,024 points each. A name that has no pod yet would be left out of that sum; the second endpoint of each, a
port that nothing listens on, keeps its share of the ring empty instead.
*/}}
{{- define "attnd.envoyCluster" -}}
{{- $file := .Files.Get "files/cluster.yaml" | fromYaml }}
{{- $cluster := index $file.resources 0 }}
{{- $servers := int (ternary .Values.autoscaling.maxReplicas .Values.replicas .Values.autoscaling.enabled) }}
{{- $endpoints := list }}
{{- range $i := until $servers }}
  {{- $pod := printf "%s-%d" (include "attnd.name" $) $i }}
  {{- $host := printf "%s.%s" $pod (include "attnd.podDomain" $) }}
  {{- $real := include "attnd.envoyEndpoint" (dict "name" $host "address" $host "port" 8470) | fromYaml }}
  {{- $absent := include "attnd.envoyEndpoint" (dict "name" (printf "absent-%d.invalid" $i) "address" "127.0.0.1" "port" (add 1 $i)) | fromYaml }}
  {{- $locality := dict "locality" (dict "sub_zone" $pod) "load_balancing_weight" 1 "lb_endpoints" (list $real $absent) }}
  {{- $endpoints = append $endpoints $locality }}
{{- end }}
{{- $_ := set $cluster.load_assignment "endpoints" $endpoints }}
{{- $ring := (index $cluster.load_balancing_policy.policies 0).typed_extension_config.typed_config }}
{{- $_ := set $ring "minimum_ring_size" (mul 1024 $servers) }}
{{- if .Values.tls.secret }}
  {{- $certificate := ternary "client" "" .Values.tls.clientCa }}
  {{- $context := include "attnd.envoyTls" (dict "certificate" $certificate "check" true) | fromYaml }}
  {{- $type := "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext" }}
  {{- $tls := dict "@type" $type "common_tls_context" $context "auto_host_sni" true "auto_sni_san_validation" true }}
  {{- $_ := set $cluster "transport_socket" (dict "name" "envoy.transport_sockets.tls" "typed_config" $tls) }}
{{- end }}
{{- toYaml $file }}
{{- end }}

{{- define "attnd.envoyEndpoint" -}}
endpoint:
  hostname: {{ .name }}
  address: {socket_address: {address: {{ .address }}, port_value: {{ .port }}}}
{{- end }}

{{/* certificate: what Envoy shows, of the mounts server and client; check: the other side's, against ca.crt. */}}
{{- define "attnd.envoyTls" -}}
alpn_protocols: [h2]
{{- with .certificate }}
tls_certificates:
  - certificate_chain: {filename: /etc/envoy-tls/{{ . }}/tls.crt}
    private_key: {filename: /etc/envoy-tls/{{ . }}/tls.key}
{{- end }}
{{- if .check }}
validation_context: {trusted_ca: {filename: /etc/envoy-tls/server/ca.crt}}
{{- end }}
{{- end }}
