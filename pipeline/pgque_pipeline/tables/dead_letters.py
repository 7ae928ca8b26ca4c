"""`dead_letters`: which of them come from the same fault.

Reasons that differ only in what changes from one event to the next are one: numbers, ids, quoted text and
addresses give way to the name of what they are.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import DEAD_LETTERS

_ALONE, _ENDED = r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"

# What gives way to what, in this order: an address has numbers in it, and anything may stand in quotes. A
# quote within a word is an apostrophe; one that isn't closed lasts to the end. Possessive, so that no text
# takes long.
_PLACEHOLDERS = (
    (r"""(?U)(?<!\w)(?:'[^']*+'|"[^"]*+"|`[^`]*+`|“[^”]*+”|«[^»]*+»)(?!\w)""", "<text>"),
    (r"""(?U)(?<!\w)['"`“«][^'"`”»]*+$""", "<text>"),
    (r"\b[A-Za-z][A-Za-z0-9+.-]*+://[^\s,;)\]}>]++", "<url>"),
    (r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)*+", "<address>"),
    (rf"(?i){_ALONE}[0-9a-f]{{8}}-(?:[0-9a-f]{{4}}-){{3}}[0-9a-f]{{12}}{_ENDED}", "<uuid>"),
    (r"(?i)(?<![\w:])(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?!:?\w|::)", "<address>"),
    (
        r"(?i)(?<![\w:])(?=:*[0-9a-f])(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})?::"
        r"(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})?(?!:?\w|::)",
        "<address>",
    ),
    (r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\.?\w)(?::\d{1,5})?", "<address>"),
    (rf"(?i){_ALONE}0x[0-9a-f]++{_ENDED}", "<hex>"),
    (rf"(?i){_ALONE}(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{{8,}}+{_ENDED}", "<hex>"),
    (r"[0-9]++(?:[.,:][0-9]++)*+", "<number>"),
    (r"\s++", " "),
)


# What the databases hand out of each.
LONGEST_REASON = 200


def by_fault(rows: DataFrame) -> DataFrame:
    """Single dead letters, as `dead_letter_source` reads them, counted by fault; failures stay."""
    return (
        rows.withColumn("fault", normalised(sf.col("reason")))
        .groupBy("engine", "database", "queue", "consumer", "event_type", "fault", "failure")
        .agg(
            sf.count("*").alias("dead_letters"),
            sf.min("dead_at").alias("first_at"),
            sf.max("dead_at").alias("last_at"),
            sf.max_by("reason", sf.struct("dead_at", "dead_letter_id")).alias("example"),
        )
        .withColumnRenamed("fault", "reason")
    )


def dead_letters(faults: DataFrame) -> DataFrame:
    """Of what `by_fault` has counted: databases that could be read to their end."""
    failed = faults.where("failure is not null").select("database").distinct()
    return DEAD_LETTERS.shaped(faults.join(failed, "database", "left_anti"))


def normalised(reason: Column) -> Column:
    """A reason with names in place of what changes, and without a word that was cut in two."""
    reason = sf.when(sf.length(reason) >= LONGEST_REASON, sf.regexp_replace(reason, r"\S*+$", "")).otherwise(
        reason
    )
    for pattern, placeholder in _PLACEHOLDERS:
        reason = sf.regexp_replace(reason, sf.lit(pattern), sf.lit(placeholder))
    return sf.trim(reason)
