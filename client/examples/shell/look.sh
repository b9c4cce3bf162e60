#!/bin/sh
# Looks at a running server from a shell. Usage: look.sh [GRPC_TARGET [HTTP_ADDRESS]]
set -eu
target=${1:-127.0.0.1:8470}
http=${2:-127.0.0.1:9470}
attnctl=${ATTNCTL:-$(dirname "$0")/../../../build/bin/attnctl}

"$attnctl" health --target "$target"
"$attnctl" info --target "$target"
"$attnctl" stats --target "$target" --json
curl -fsS "http://$http/metrics" | grep '^attnd_kv_cache_usage_ratio'
