"""Something that runs on a Kafka and in a folder of its own, which are gone afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from kafka_pipeline.admin.broker.local_cluster import LocalCluster
from kafka_pipeline.admin.daemons import command_path
from kafka_pipeline.admin.quickstart.display import Display
from kafka_pipeline.admin.signals import Signals


def run_with_kafka(
    name: str,
    work: Callable[[Path, LocalCluster], bool],
    display: Display,
    signals: Signals,
    *,
    keep: bool = False,
) -> bool:
    """Start Kafka, call `work(folder, broker)` and stop Kafka; return what `work` returns.

    Must be called in the main thread. The folder stays if anything is wrong; with `keep`, the
    folder and Kafka stay in any case.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"kafka-pipeline-{name}-"))
    try:
        with ExitStack() as stack:
            broker = LocalCluster(folder / "broker", is_short_lived=not keep)
            stack.callback(broker.stop)
            stack.callback(signals.ignore)
            display.event("starting Kafka")
            broker.start()
            display.event(f"Kafka runs at {broker.bootstrap_servers}")
            is_right = work(folder, broker)
            if keep:
                stack.pop_all()
    except Exception:
        display.text(f"The files and logs of the run are in {folder}")
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if keep:
        _say_what_stays(display, broker, folder)
    elif is_right:
        shutil.rmtree(folder)
    else:
        display.text(f"The files and logs of the run are in {folder}")
    return is_right


def _say_what_stays(display: Display, broker: LocalCluster, folder: Path) -> None:
    display.text(
        f"\nKafka still runs at {broker.bootstrap_servers}; the files and logs are in {folder}.\n"
        f"Stop it:  {command_path('pipeline')} broker stop --dir {broker.directory} --delete-data"
    )
