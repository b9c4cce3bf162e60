#!/bin/sh
# A tour of a running server from the shell: what it serves, a demo, what it holds, its metrics.
#
#   tour.sh [host:port of gRPC] [host:port of HTTP]
#
# Needs attnctl (build/bin, or on the PATH) and curl.
set -eu
target=${1:-127.0.0.1:8470}
http=${2:-127.0.0.1:9470}
bin=$(cd "$(dirname "$0")/../../.." && pwd)/build/bin
PATH=$bin:$PATH

say() { printf '\n== %s\n' "$1"; }

say "health (exit status 0 when serving)"
attnctl health --target "$target"
curl -fsS "http://$http/healthz"
curl -fsS "http://$http/readyz"

say "the model, as JSON for scripts"
attnctl info --json --target "$target"

say "a session prefilled and decoded, with latencies and cache bytes"
attnctl demo --target "$target"

say "the sessions that are there now"
attnctl sessions --target "$target"

say "cache and tokens, from the metrics"
curl -fsS "http://$http/metrics" | grep -E '^attnd_(kv_cache|sessions|tokens_total)'
