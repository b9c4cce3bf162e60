"""The sets of values that the chart is rendered with: what a user turns on, alone and together."""

CASES = {
    "defaults": {},
    "one server, plain": {
        "replicas": 1,
        "networkPolicy": {"enabled": False},
        "disruptionBudget": {"enabled": False},
        "serviceAccount": {"name": "there-already"},
    },
    "models on a claim": {
        "model": {"name": "/models/model.yaml", "weights": "/models/model.safetensors", "claim": "weights"},
        "flags": {"cache_dtype": "bf16", "kv_cache_bytes": "8GiB", "max_sessions": 2000000, "idle_ttl": "30m"},
        "image": {"repository": "registry.example:5000/attnd", "tag": "0.1.0", "pullSecrets": ["registry"]},
    },
    "a balancer elsewhere": {
        "balancer": "haproxy.balancing:8470",
        "startup": {"seconds": 3600},
        "stopping": {"moveSeconds": 300, "drainSeconds": 3.5, "graceSeconds": 20},
        "networkPolicy": {
            "clients": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "balancing"}}}],
            "operators": [{"podSelector": {"matchLabels": {"role": "operator"}}}],
            "scrapers": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        },
    },
    "Envoy": {"envoy": {"enabled": True}},
    "Envoy, scaled, monitored": {
        "envoy": {"enabled": True, "replicas": 3},
        "autoscaling": {"enabled": True, "minReplicas": 2, "maxReplicas": 6},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "scaled and monitored": {
        "autoscaling": {"enabled": True, "usageRatio": "0.65"},
        "serviceMonitor": {"enabled": True},
        "podAnnotations": {"example.com/owner": "team"},
    },
    "TLS and tokens": {
        "tls": {"secret": "attnd-tls"},
        "tokens": {"secret": "attnd-tokens", "drainKey": "drain-token"},
        "envoy": {"enabled": True},
    },
    "mutual TLS": {
        "tls": {"secret": "attnd-tls", "clientCa": True},
        "envoy": {"enabled": True, "clientSecret": "envoy-tls"},
        "clusterDomain": "example.internal",
    },
    "cuda": {
        "device": "cuda",
        "gpu": {"runtimeClassName": "nvidia"},
        "nodeSelector": {"pool": "cards"},
        "tolerations": [{"key": "reserved", "operator": "Exists"}],
        "resources": {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"cpu": "8", "memory": "64Gi"}},
        "flags": {"cache_dtype": "fp8_e4m3"},
    },
}
