"""What is made of the catalogue: the table of the docs, Prometheus' alert rules, Grafana's dashboard.

`python -m pybroker.metrics.files rules > rules.yml`, likewise `dashboard` (JSON) and `page` (Markdown).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from pybroker.metrics.catalogue import Metric, every_metric

if TYPE_CHECKING:
    from collections.abc import Callable

_PANEL_WIDTH, _PANEL_HEIGHT, _PANELS_IN_A_ROW = 8, 8, 3


def rules() -> str:
    """The alert rules, as Prometheus' rule file. JSON is YAML."""
    alerts = [
        {
            "alert": metric.alert.name,
            "expr": metric.alert.expression,
            "for": metric.alert.wait,
            "labels": {"severity": metric.alert.severity},
            "annotations": {"summary": metric.alert.summary, "description": metric.alert.what_to_do},
        }
        for _, metric, _ in every_metric()
        if metric.alert
    ]
    return _json({"groups": [{"name": "pybroker", "rules": alerts}]})


def dashboard() -> str:
    """A Grafana dashboard with a panel for each metric; it asks for its Prometheus when it is imported."""
    panels: list[dict[str, Any]] = []
    row = ""
    for title, metric, labels in every_metric():
        if title != row:
            row = title
            y = max((each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels), default=0)
            panels.append(
                {"type": "row", "title": title, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []}
            )
            placed = 0
        top = next(each for each in reversed(panels) if each["type"] == "row")["gridPos"]["y"] + 1
        place = {
            "x": placed % _PANELS_IN_A_ROW * _PANEL_WIDTH,
            "y": top + placed // _PANELS_IN_A_ROW * _PANEL_HEIGHT,
            "w": _PANEL_WIDTH,
            "h": _PANEL_HEIGHT,
        }
        placed += 1
        panels.append(_panel(metric, labels, place))
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    return _json(
        {
            "title": "pybroker",
            "uid": "pybroker",
            "schemaVersion": 39,
            "time": {"from": "now-1h", "to": "now"},
            "refresh": "30s",
            "templating": {
                "list": [
                    {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                    {
                        "name": "database", "type": "query", "includeAll": True, "multi": True, "refresh": 2,
                        "datasource": {"type": "prometheus", "uid": "${source}"},
                        "query": "label_values(pybroker_database_up, database)",
                    },
                ]
            },
            "panels": panels,
        }
    )  # fmt: skip


def page() -> str:
    """The tables of docs/metrics.md."""
    lines: list[str] = []
    for title, metric, labels in every_metric():
        if f"### {title}" not in lines:
            lines += ["", f"### {title}", "", "| metric | type | labels | |", "|---|---|---|---|"]
        lines.append(f"| `{metric.full_name}` | {metric.kind} | {', '.join(labels)} | {metric.help} |")
    lines += ["", "### Alerts", "", "| alert | when | severity | what to do |", "|---|---|---|---|"]
    for _, metric, _ in every_metric():
        if alert := metric.alert:
            when = f"`{alert.expression}` for {alert.wait}"
            lines.append(f"| {alert.name} | {when} | {alert.severity} | {alert.what_to_do} |")
    return "\n".join(lines).strip() + "\n"


def _panel(metric: Metric, labels: tuple[str, ...], place: dict[str, int]) -> dict[str, Any]:
    chosen = f'{metric.full_name}{{database=~"$database"}}'
    return {
        "type": "timeseries",
        "title": metric.help.rstrip("."),
        "gridPos": place,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "fieldConfig": {"defaults": {"unit": metric.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": "A",
                "expr": f"rate({chosen}[$__rate_interval])" if metric.kind == "counter" else chosen,
                "legendFormat": " ".join(f"{{{{{label}}}}}" for label in labels),
            }
        ],
    }


def _json(made: object) -> str:
    return msgspec.json.format(msgspec.json.encode(made), indent=2).decode() + "\n"


if __name__ == "__main__":
    made: dict[str, Callable[[], str]] = {"rules": rules, "dashboard": dashboard, "page": page}
    if len(sys.argv) != 2 or sys.argv[1] not in made:  # noqa: PLR2004 - the program and what is wanted
        sys.exit(f"usage: python -m pybroker.metrics.files {'|'.join(made)}")
    sys.stdout.write(made[sys.argv[1]]())
