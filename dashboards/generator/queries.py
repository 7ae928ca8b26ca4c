"""PromQL that several dashboards ask.

Every answer is by the labels of the contract alone. Replicas of the service, and jobs that scrape it twice,
add labels of their own: `max` takes one of them instead of their sum. What an engine doesn't know is absent,
and so is whatever is worked out from it.
"""

from __future__ import annotations

DATABASE = 'database=~"$database"'
QUEUE = f'{DATABASE},queue=~"$queue"'
CONSUMER = f'{QUEUE},consumer=~"$consumer"'
CHECK = f'{QUEUE},consumer=~"$consumer|"'  # checks of a queue have no consumer

BY_QUEUE = "engine, database, queue"
BY_CONSUMER = f"{BY_QUEUE}, consumer"
BY_CHECK = f"{BY_CONSUMER}, check"

LONG = 7 * 86400  # seconds: who needs longer to catch up isn't catching up
BEHIND = 10  # seconds of lag: less is what waiting for ticks and batches makes


def database(metric: str) -> str:
    """A gauge of the service, one series a database."""
    return f"max by (database) ({metric}{{{DATABASE}}})"


def queue(metric: str) -> str:
    """A gauge, one series a queue."""
    return f"max by ({BY_QUEUE}) ({metric}{{{QUEUE}}})"


def consumer(metric: str) -> str:
    """A gauge, one series a consumer."""
    return f"max by ({BY_CONSUMER}) ({metric}{{{CONSUMER}}})"


def queue_rate(metric: str) -> str:
    """A counter's rate per second, one series a queue."""
    return f"max by ({BY_QUEUE}) (rate({metric}{{{QUEUE}}}[$__rate_interval]))"


def consumer_rate(metric: str) -> str:
    """A counter's rate per second, one series a consumer."""
    return f"max by ({BY_CONSUMER}) (rate({metric}{{{CONSUMER}}}[$__rate_interval]))"


def consumer_increase(metric: str) -> str:
    """By how much a counter grew in the time on show, one series a consumer."""
    return f"max by ({BY_CONSUMER}) (increase({metric}{{{CONSUMER}}}[$__range]))"


def quantile(share: float, metric: str) -> str:
    """A quantile of a histogram, one series a consumer that finished something."""
    rate = f"rate({metric}_bucket{{{CONSUMER}}}[$__rate_interval])"
    return f"histogram_quantile({share}, max by (le, {BY_CONSUMER}) ({rate})) >= 0"  # NaN isn't


def count(series: str, condition: str) -> str:
    """How many of the series fulfil a condition; 0 only where there are any series."""
    return f"sum({series} {condition})"


def troubled(check: str) -> str:
    """How many queues have this check at warning or critical."""
    states = f'{QUEUE},check="{check}",state=~"warning|critical"'
    return f"sum(max by ({BY_QUEUE}) (pgque_queue_health_state{{{states}}}))"


def of_its_queue(per_consumer: str, operator: str, per_queue: str) -> str:
    """A value of each consumer, put together with one of its queue."""
    return f"{per_consumer} {operator} on ({BY_QUEUE}) group_left () {per_queue}"


DEPTH = queue("pgque_queue_depth")
SENT = queue_rate("pgque_message_sent_total")
ACKED = consumer_rate("pgque_message_acked_total")
LAG = consumer("pgque_consumer_lag_seconds")
PENDING = consumer("pgque_consumer_pending_events")
PERIOD = queue("pgque_queue_rotation_period_seconds")

# 0 ok, 1 warning, 2 critical: the worst of a queue and its consumers.
QUEUE_STATUS = f"max by ({BY_QUEUE}) (pgque_queue_health_status{{{CHECK}}})"
# Those of a queue itself have no consumer.
CONSUMER_STATUS = f'max by ({BY_CONSUMER}) (pgque_queue_health_status{{{CONSUMER},consumer!=""}})'

# 1 warning, 2 critical, and -1 where a check couldn't be made; absent while it is ok.
FINDINGS = " or ".join(
    f'max by ({BY_CHECK}) (pgque_queue_health_state{{{CHECK},state="{state}"}} == 1) * {number}'
    for state, number in (("critical", 2), ("warning", 1), ("unknown", -1))
)
# How long ago a check was ok; absent where that was before the time on show.
_OK = f'pgque_queue_health_state{{{CHECK},state="ok"}} == 1'
SINCE_OK = (
    f"(time() - max by ({BY_CHECK}) (max_over_time(timestamp({_OK})[$__range:$__interval])))"
    f" and on ({BY_CHECK}) ({FINDINGS})"
)
TROUBLES = (
    "sum by (database, queue, state) (max by (engine, database, queue, consumer, check, state)"
    f' (pgque_queue_health_state{{{CHECK},state=~"warning|critical"}})) > 0'
)

# Seconds that the lag grows by in a second: 1 stands still, 0 keeps its distance, below it catches up.
VELOCITY = f"max by ({BY_CONSUMER}) (deriv(pgque_consumer_lag_seconds{{{CONSUMER}}}[$__rate_interval]))"
# The same of those who are behind: the lag of the others goes up and down with ticks and batches.
GROWTH = f"{VELOCITY} and on ({BY_CONSUMER}) ({LAG} > {BEHIND})"
# At the present pace of sender and consumer, of those who are behind; LONG stands for never.
CATCHES_UP = (
    f"clamp_max({PENDING} / clamp_min({of_its_queue(ACKED, '-', SENT)}, 1e-9), {LONG})"
    f" and on ({BY_CONSUMER}) ({LAG} > {BEHIND})"
)
# How much of the rotation period a consumer lags behind: above 1 it blocks rotation.
PERIOD_USED = of_its_queue(LAG, "/", PERIOD)
# When a lag that goes on growing as now will have reached the rotation period; LONG stands for never.
_GROWS = f"{VELOCITY} * ({LAG} > bool {BEHIND})"
UNTIL_BLOCKED = f"clamp(-({of_its_queue(LAG, '-', PERIOD)}) / clamp_min({_GROWS}, 1e-9), 0, {LONG})"
FAILING = f"{consumer_rate('pgque_message_nacked_total')} / ({ACKED} > 0)"
