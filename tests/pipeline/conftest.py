"""One Spark session for all tests of a worker: starting one takes seconds."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pgque_pipeline.session import close_session, open_session
from tests.support.java import java_home
from tests.support.tools import Unavailable

# Plans are interpreted: faster for a few rows.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

# Small tables: one task each, plans made once, nothing compiled that a short life doesn't pay back.
_SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    **INTERPRETED,
    # The fast compiler's cache of code is too small for all these plans.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
    ),
}


@pytest.fixture(scope="session")
def java() -> Iterator[None]:
    """A Java that Spark can run on, in this process's environment."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            home = java_home()
        except Unavailable as error:
            pytest.skip(str(error))
        if home is not None:
            patch.setenv("JAVA_HOME", str(home))
        yield


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark session, tuned for tables of a few rows."""
    warehouse = tmp_path_factory.mktemp("spark")
    settings = {**_SMALL, "spark.sql.warehouse.dir": str(warehouse), "spark.local.dir": str(warehouse)}
    # Tests of the service turn logs on; the bridge to Java would still write to them when they are closed.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    session = open_session(master="local[2]", memory="1g", settings=settings)
    yield session
    close_session(session)
