"""Tests of dashboards, alerts and the runbook, on files and on a real Prometheus that scrapes a real attnd."""
