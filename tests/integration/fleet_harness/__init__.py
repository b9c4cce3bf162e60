"""Real servers behind a real balancer; see tests/integration/fleet."""
