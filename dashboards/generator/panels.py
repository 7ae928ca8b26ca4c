"""Panels in the project's one style: each with a number that stays, a question, a description and a unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Protocol, TypeVar

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    table,
    text,
    timeseries,
)
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.text import TextMode

from dashboards.generator.queries import LONG

DATASOURCE = common_model.DataSourceRef(type_val="prometheus", uid="${datasource}")

Panel = stat.Panel | timeseries.Panel | table.Panel | text.Panel
Steps = Sequence[tuple[float | None, str]]

# What the numbers of Grafana's thresholds mean, from None (minus infinity) upwards.
PLAIN: Steps = ((None, "blue"),)
GOOD_IS_ZERO: Steps = ((None, "green"), (1, "red"))
CAUTION_ABOVE_ZERO: Steps = ((None, "green"), (1, "orange"))
SHARE_OF_PERIOD: Steps = ((None, "green"), (0.5, "orange"), (1, "red"))
SECONDS_LEFT: Steps = ((None, "red"), (300, "orange"), (3600, "green"))
FALLS_BEHIND: Steps = ((None, "green"), (0.05, "orange"), (0.9, "red"))

GREY = "#6e7687"
STATUS = {0: ("ok", "green"), 1: ("warning", "orange"), 2: ("critical", "red"), -1: ("unknown", "purple")}
YES_NO = {0: ("no", "green"), 1: ("yes", "orange")}


class _Common(Protocol):
    """What the builders of all panels with data have in common."""

    def id(self, id_val: int) -> object: ...
    def title(self, title: str) -> object: ...
    def description(self, description: str) -> object: ...
    def datasource(self, datasource: common_model.DataSourceRef) -> object: ...
    def unit(self, unit: str) -> object: ...
    def no_value(self, no_value: str) -> object: ...


P = TypeVar("P", bound=_Common)


def stat_panel(
    number: int,
    title: str,
    description: str,
    expr: str,
    unit: str = "short",
    *,
    steps: Steps = (),
    mappings: Sequence[model.ValueMapping] = (),
    no_value: str = "unknown",
    decimals: int | None = None,
) -> stat.Panel:
    """One number, as it is now; what its colour judges fills the panel."""
    panel = _common(stat.Panel(), number, title, description, unit, no_value)
    panel.with_target(query("A", expr, "__auto", instant=True))
    panel.thresholds(thresholds(steps or PLAIN)).color_scheme(_by_thresholds())
    panel.mappings([*mappings, _unknown(no_value)])
    mode = common_model.BigValueColorMode
    panel.color_mode(mode.BACKGROUND if steps or mappings else mode.VALUE)
    panel.graph_mode(common_model.BigValueGraphMode.NONE)
    panel.text_mode(common_model.BigValueTextMode.VALUE)
    panel.text(common.VizTextDisplayOptions().value_size(28))
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    if decimals is not None:
        panel.decimals(decimals)
    return panel


def chart(
    number: int,
    title: str,
    description: str,
    queries: Mapping[str, str],
    unit: str = "short",
    *,
    steps: Steps = (),
    stacked: bool = False,
    states: bool = False,
    least: float | None = 0,
    most: float | None = None,
    colours: Mapping[str, str] | None = None,
    narrow: bool = False,
    decimals: int | None = None,
    no_value: str = "",
    min_interval: str = "",
) -> timeseries.Panel:
    """Lines over time: queries by the legend of their series.

    `steps` draws thresholds; `states` draws filled steps, for what is counted; `colours` are by legend
    (a regular expression). A `narrow` chart has its legend below, without figures.
    """
    panel = _common(timeseries.Panel(), number, title, description, unit, no_value)
    for letter, (legend, expr) in zip(ascii_uppercase, queries.items(), strict=False):
        panel.with_target(query(letter, expr, legend))
    panel.legend(_legend(narrow))
    panel.tooltip(
        common.VizTooltipOptions()
        .mode(common_model.TooltipDisplayMode.MULTI)
        .sort(common_model.SortOrder.DESCENDING)
    )
    panel.line_width(1.5).fill_opacity(60 if states else 25 if stacked else 8)
    panel.show_points(common_model.VisibilityMode.NEVER)
    panel.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC))
    if states:
        panel.line_interpolation(common_model.LineInterpolation.STEP_AFTER)
    if stacked or states:
        panel.stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL).group("A"))
    if steps:
        panel.thresholds(thresholds(steps))
        dashed = common_model.GraphThresholdsStyleMode.DASHED
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(dashed))
    if least is not None:
        panel.min(least)
    if most is not None:
        panel.axis_soft_max(most)
    if min_interval:
        panel.interval(min_interval)
    if decimals is not None:
        panel.decimals(decimals)
    for pattern, colour in (colours or {}).items():
        shades = {"mode": "shades", "fixedColor": colour}
        panel.override_by_regexp(f"/{pattern}/", [model.DynamicConfigValue("color", shades)])
    return panel


def banded(
    number: int,
    title: str,
    description: str,
    queries: Mapping[str, str],
    low: str,
    high: str,
    unit: str,
    *,
    no_value: str = "",
) -> timeseries.Panel:
    """Lines over the filled band between two queries that answer with one series each.

    The first of `queries` is the value itself, any others are dashed.
    """
    ends = {"at most": high, "at least": low}
    panel = chart(number, title, description, {**queries, **ends}, unit, narrow=True, no_value=no_value)
    value = model.DynamicConfigValue
    for name in (*queries, *ends):
        style: list[model.DynamicConfigValue] = [value("custom.fillOpacity", 0)]
        if name in ends:
            style = [value("color", {"mode": "fixed", "fixedColor": "blue"}), value("custom.lineWidth", 0)]
            style.append(value("custom.fillOpacity", 18 if name == "at most" else 0))
        elif name == next(iter(queries)):
            style += [value("color", {"mode": "fixed", "fixedColor": "green"}), value("custom.lineWidth", 2)]
        else:
            style += [
                value("color", {"mode": "fixed", "fixedColor": "blue"}),
                value("custom.lineStyle", {"fill": "dash", "dash": [6, 6]}),
            ]
        if name == "at most":
            style.append(value("custom.fillBelowTo", "at least"))
        panel.override_by_name(name, style)
    return panel


@dataclass(frozen=True)
class Column:
    """A column of a table: of a label, or of the value of a query.

    `link` is the uid of the dashboard that a click leads to.
    """

    header: str
    label: str = ""
    expr: str = ""
    unit: str = "locale"
    steps: Steps = ()
    mappings: Sequence[model.ValueMapping] = ()
    link: str = ""
    width: int = 0
    decimals: int | None = None
    bar: float | None = None  # drawn as a bar up to this value
    none: str = "-"  # where a row has no value


def rows(
    number: int,
    title: str,
    description: str,
    columns: Sequence[Column],
    *,
    sort_by: str,
    descending: bool = True,
    no_value: str = "",
) -> table.Panel:
    """A table with a row for each set of the label columns' values."""
    panel = _common(table.Panel(), number, title, description, "short", no_value)
    panel.cell_height(common_model.TableCellHeight.SM)
    panel.sort_by([common.TableSortByFieldState().display_name(sort_by).desc(descending)])
    renamed = {column.label: column.header for column in columns if column.label}
    asked = [column for column in columns if column.expr]
    for letter, column in zip(ascii_uppercase, asked, strict=False):
        panel.with_target(query(letter, column.expr, "", instant=True, as_table=True))
        renamed[f"Value #{letter}"] = column.header
        if len(asked) == 1:
            renamed["Value"] = column.header
    names = {header: name for name, header in renamed.items()}
    order = {names[column.header]: place for place, column in enumerate(columns)}
    shown = {column.label for column in columns}
    hidden = {name: True for name in ("Time", *_LABELS) if name not in shown}
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(
        model.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": hidden, "indexByName": order, "renameByName": renamed},
        )
    )
    for column in columns:
        panel.override_by_name(column.header, _cell(column))
    return panel


# All labels that may come with a row, and what a query's job adds.
_LABELS = ("engine", "database", "queue", "consumer", "check", "instance", "job")


def _cell(column: Column) -> list[model.DynamicConfigValue]:
    values: dict[str, object] = {}
    if column.expr:
        values |= {"unit": column.unit, "noValue": column.none}
    if column.decimals is not None:
        values["decimals"] = column.decimals
    if column.mappings and column.unit == "locale":  # words
        values["custom.align"] = "left"
    if column.label:
        values["noValue"] = "-"
    if column.width:
        values["custom.width"] = column.width
    if column.mappings:
        values["mappings"] = list(column.mappings)
    if column.steps:
        values["thresholds"] = thresholds(column.steps).build()
        values["color"] = {"mode": "thresholds"}
    if column.bar is not None:
        values |= {"min": 0, "max": column.bar}
        values["custom.cellOptions"] = {"type": "gauge", "mode": "basic", "valueDisplayMode": "color"}
    elif column.steps or column.mappings:
        values["custom.cellOptions"] = {"type": "color-text"}
    if column.link:
        values["links"] = [{"title": "Open ${__value.text}", "url": link_to(column)}]
    return [model.DynamicConfigValue(name, value) for name, value in values.items()]


def link_to(column: Column) -> str:
    """The dashboard of a queue or of a consumer, with the variables and the time of this one."""
    narrowed = ("database", "queue") if column.label == "queue" else ("database", "queue", "consumer")
    by_row = [f"var-{name}=${{__data.fields.{name.capitalize()}:percentencode}}" for name in narrowed]
    return f"/d/{column.link}?" + "&".join(["${datasource:queryparam}", *by_row, "${__url_time_range}"])


def _legend(narrow: bool) -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(True)
    if narrow:
        below = common_model.LegendPlacement.BOTTOM
        return legend.placement(below).display_mode(common_model.LegendDisplayMode.LIST).calcs([])
    legend.placement(common_model.LegendPlacement.RIGHT).display_mode(common_model.LegendDisplayMode.TABLE)
    return legend.calcs(["lastNotNull", "max"]).sort_by("Last *").sort_desc(True)


def words(number: int, title: str, description: str, markdown: str) -> text.Panel:
    """Words, in Markdown."""
    panel = text.Panel().id(number).title(title).description(description)
    return panel.mode(TextMode.MARKDOWN).content(markdown)


def query(
    letter: str, expr: str, legend: str, *, instant: bool = False, as_table: bool = False
) -> prometheus.Dataquery:
    """One question to Prometheus: over the time on show, or of its end."""
    builder = prometheus.Dataquery().ref_id(letter).datasource(DATASOURCE).expr(expr)
    builder.format(PromQueryFormat.TABLE if as_table else PromQueryFormat.TIME_SERIES)
    if legend:
        builder.legend_format(legend)
    return builder.instant() if instant else builder.range()


def thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    """Colours from these values upwards."""
    colours = [model.Threshold(value, colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(colours)


def named(values: Mapping[int, tuple[str, str]]) -> list[model.ValueMapping]:
    """Values that are shown as words, in a colour."""
    results = {str(value): _result(words_, colour) for value, (words_, colour) in values.items()}
    return [model.ValueMap(results)]


def _unknown(words_: str) -> model.ValueMapping:
    """What isn't known is neither good nor bad, and must not look like the lowest threshold."""
    options = model.DashboardSpecialValueMapOptions(
        model.SpecialValueMatch.NULL_AND_NAN, _result(words_, GREY)
    )
    return model.SpecialValueMap(options)


def never(words_: str, colour: str, at_zero: tuple[str, str] | None = None) -> list[model.ValueMapping]:
    """How LONG, which stands for never, is shown, and 0 if it has a meaning of its own."""
    mappings: list[model.ValueMapping] = [
        model.RangeMap(model.DashboardRangeMapOptions(LONG, LONG * 10.0, _result(words_, colour)))
    ]
    return [*mappings, *(named({0: at_zero}) if at_zero else ())]


def _result(words_: str, colour: str) -> model.ValueMappingResult:
    return model.ValueMappingResult(text=words_, color=colour)


def _by_thresholds() -> dashboard.FieldColor:
    return dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS)


def _common(panel: P, number: int, title: str, description: str, unit: str, no_value: str) -> P:
    panel.id(number)
    panel.title(title)
    panel.description(description)
    panel.datasource(DATASOURCE)
    panel.unit(unit)
    if no_value:
        panel.no_value(no_value)
    return panel
