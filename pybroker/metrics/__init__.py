"""What Prometheus reads of a worker, or of an application: numbers of its databases, health, readiness.

`catalogue` defines each number once: its name, its help, where it comes from, and the alert on it.
`collector` reads them, `endpoint` serves them, `files` makes the docs' tables, alert rules and a dashboard.
Needs the extra `telemetry`.
"""
