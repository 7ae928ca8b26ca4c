"""The four queues of the demo: a small shop, seen on a day on which not everything goes well."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Payload = Mapping[str, object]


@dataclass(frozen=True)
class Story:
    """One queue: how it is configured, who reads it, what is sent to it, and what it shows.

    `rate` is in events per second; `event` makes the n-th event's type and payload.
    """

    queue: str
    consumers: tuple[str, ...]
    settings: Mapping[str, str]
    rate: float
    event: Callable[[int], tuple[str, Payload]]
    shows: str


# The demo is the same on each run: what failed yesterday fails today.
_dice = random.Random(2718)

LEDGER_STOPS_AFTER = 8.0  # seconds
MAILER_RATE = 4.0  # e-mails per second, half of what is sent
MAILER_CATCHES_UP_AT = 65.0  # seconds of lag: from there on it holds its backlog and never turns critical
RETRY_AFTER = 5.0  # seconds
CLOSED_SHOP = "https://hooks.oldshop.example/orders"  # answers no more


def _order(number: int) -> str:
    return f"A-{10_000 + number}"


def _order_event(number: int) -> tuple[str, Payload]:
    items = _dice.randint(1, 5)
    total = round(items * _dice.uniform(4, 60), 2)
    return "order.created", {"order": _order(number), "items": items, "total": total, "currency": "EUR"}


def _email_event(number: int) -> tuple[str, Payload]:
    template = _dice.choice(("order-confirmation", "order-shipped", "back-in-stock"))
    return "email.requested", {
        "template": template,
        "customer": _dice.randint(1000, 9999),
        "order": _order(number),
    }


def _billing_event(number: int) -> tuple[str, Payload]:
    return "invoice.issued", {
        "invoice": f"R-{50_000 + number}",
        "order": _order(number),
        "amount": round(_dice.uniform(4, 300), 2),
        "currency": "EUR",
    }


def _webhook_event(number: int) -> tuple[str, Payload]:
    url = f"https://{_dice.choice(('crm', 'erp', 'stock'))}.partner.example/hooks/orders"
    if number % 25 == 2:
        url = CLOSED_SHOP
    return "order.shipped", {"order": _order(number), "url": url}


def delivery_problem(payload: Payload) -> str | None:
    """Why the webhook can't be delivered this time; None when it can."""
    if payload["url"] == CLOSED_SHOP:
        return f"POST {CLOSED_SHOP}: 410 Gone"
    if _dice.random() < 0.2:
        return f"POST {payload['url']}: " + _dice.choice(("503 Service Unavailable", "no answer within 3 s"))
    return None


STORIES = (
    Story(
        queue="orders",
        consumers=("fulfilment", "analytics"),
        settings={"ticker_max_lag": "1 second"},
        rate=20.0,
        event=_order_event,
        shows="healthy: two consumers keep up",
    ),
    Story(
        queue="emails",
        consumers=("mailer",),
        settings={"ticker_max_lag": "1 second", "rotation_period": "90 seconds"},
        rate=8.0,
        event=_email_event,
        shows="the mailer is too slow: lag grows, a warning after some 90 s",
    ),
    Story(
        queue="billing",
        consumers=("ledger",),
        settings={"ticker_max_lag": "1 second", "rotation_period": "20 seconds"},
        rate=5.0,
        event=_billing_event,
        shows="the ledger hangs after 8 s: critical after some 30 s, rotation blocked",
    ),
    Story(
        queue="webhooks",
        consumers=("deliver",),
        settings={"ticker_max_lag": "1 second", "max_retries": "2"},
        rate=4.0,
        event=_webhook_event,
        shows="deliveries fail: two retries each, then a dead letter",
    ),
)
