"""What every dashboard of the project has: variables, links, annotations, and rows of panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from dashboards.generator.panels import DATASOURCE, Panel, query

TAG = "pgque"
WIDTH = 24  # columns of Grafana's grid
VARIABLES = {
    "database": ("pgque_up", ""),
    "queue": ("pgque_queue_health_status", '{database=~"$database"}'),
    "consumer": ("pgque_consumer_lag_seconds", '{database=~"$database",queue=~"$queue"}'),
}


@dataclass(frozen=True)
class Row:
    """Panels side by side, each of its share of the width."""

    height: int
    panels: Sequence[Panel]
    widths: Sequence[int] = ()  # by default all the same

    def __post_init__(self) -> None:
        if sum(self.shares) != WIDTH:
            raise ValueError(f"a row is {sum(self.shares)} wide, not {WIDTH}")

    @property
    def shares(self) -> Sequence[int]:
        """The width of each panel."""
        return self.widths or [WIDTH // len(self.panels)] * len(self.panels)


def page(
    uid: str,
    title: str,
    description: str,
    rows: Sequence[Row],
    *,
    variables: Sequence[str] = tuple(VARIABLES),
) -> dashboard.Dashboard:
    """A dashboard.

    Those of `variables` can be chosen; the others are there as well, hidden, so that links from one
    dashboard to the next keep them.
    """
    built = (
        dashboard.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .link(_others())
        .annotation(_alerts())
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for name in VARIABLES:
        built.with_variable(_variable(name, hidden=name not in variables))
    top = 0
    for row in rows:
        left = 0
        for panel, width in zip(row.panels, row.shares, strict=True):
            built.with_panel(panel.grid_pos(model.GridPos(h=row.height, w=width, x=left, y=top)))
            left += width
        top += row.height
    return built


def _others() -> dashboard.DashboardLink:
    """Links to the other dashboards, found by their tag."""
    link = dashboard.DashboardLink("PgQue dashboards").type(model.DashboardLinkType.DASHBOARDS)
    return link.tags([TAG]).include_vars(True).keep_time(True)


def _variable(name: str, *, hidden: bool) -> dashboard.QueryVariable:
    metric, selector = VARIABLES[name]
    definition = f"label_values({metric}{selector}, {name})"
    variable = (
        dashboard.QueryVariable(name)
        .label(name.capitalize())
        .datasource(DATASOURCE)
        .query({"query": definition, "refId": name})
        .definition(definition)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )
    return variable.hide(model.VariableHide.HIDE_VARIABLE) if hidden else variable


def _alerts() -> dashboard.AnnotationQuery:
    """Firing alerts of what is on show, as marks in every chart."""
    # The watchdog fires all the time. An alert on a whole database or service has no queue.
    names = 'alertstate="firing",alertname=~"PgQue.*",alertname!="PgQueWatchdog"'
    expr = f'ALERTS{{{names},database=~"$database|",queue=~"$queue|"}}'
    return (
        dashboard.AnnotationQuery()
        .name("Alerts")
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color("red")
        .expr(expr)
        .step("60s")
        .title_format("{{alertname}}")
        .text_format("{{queue}} {{consumer}}")
        .tag_keys("severity,database")
        .target(query("Anno", expr, ""))
    )
