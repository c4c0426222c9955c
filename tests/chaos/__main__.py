"""Breaks the engine in all known ways, and checks that nothing is lost, repeated or reordered.

python -m tests.chaos                        # each fault once
python -m tests.chaos --rounds 25            # the full proof; takes hours
python -m tests.chaos --fault kill-broker --fault cut-link --seed 7   # in this order
python -m tests.chaos --soak 3600            # random faults for an hour
python -m tests.chaos --hosts                # on several hosts, as root on Linux
python -m tests.chaos --hosts --fast-brokers # brokers miss a dead one after 3 s instead of 9
python -m tests.chaos --broken random-ids    # the engine is sabotaged: 0 if that is seen
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path

from kafka_pipeline.admin.signals import Interrupted, Signals
from tests.chaos.campaign import Campaign
from tests.chaos.catalog import Where, faults
from tests.chaos.growth import growth_table, to_json
from tests.chaos.pipelines import Kind
from tests.chaos.report import Timeline, table
from tests.chaos.rig import FAST_BROKERS
from tests.chaos.sabotage import sabotages
from tests.hosts.network import NoHostsError, require_hosts
from tests.leftovers import Guard


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="of each fault")
    parser.add_argument("--seed", type=int, help="of all that is drawn; random by default")
    parser.add_argument(
        "--fault", action="append", metavar="NAME", help="only these, in this order; see --list"
    )
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="random faults that long")
    parser.add_argument(
        "--broken", choices=sabotages(), metavar="NAME", help="sabotage the engine; see --list"
    )
    parser.add_argument(
        "--kind",
        choices=tuple(Kind),
        type=Kind,
        help="plain: none of the following; sql: the auditor is a Spark SQL query; "
        "slow: one processor sleeps, one is async; "
        "dsl: with windows, a join of streams and a join by a foreign key; "
        "queries: the like in Spark; "
        "tables: with tables in Delta, Parquet, and, if it is installed, PostgreSQL and Iceberg; "
        "by default plain, or what the sabotage needs",
    )
    parser.add_argument(
        "--rate",
        type=int,
        metavar="N",
        help="records per second (from 1); fewer for a slow machine, which must keep up",
    )
    parser.add_argument(
        "--hosts",
        action="store_true",
        help="give each broker and each manager a host of its own; needs Linux, root and iproute2",
    )
    parser.add_argument(
        "--fast-brokers",
        action="store_true",
        help="brokers miss a dead one after 3 s instead of 9, as docs/how-to/tune.md describes",
    )
    parser.add_argument("--list", action="store_true", help="list faults and sabotages, and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--keep", action="store_true", help="keep logs though all went well")
    arguments = parser.parse_args()
    if arguments.rate is not None and arguments.rate < 1:
        parser.error("--rate must be 1 or more")
    unknown = set(arguments.fault or ()) - set(faults())
    if unknown:
        parser.error(f"no such fault: {', '.join(sorted(unknown))} (--list shows them)")
    elsewhere = [f for n in arguments.fault or () if not (f := faults()[n]).is_for(arguments.hosts)]
    if elsewhere:
        parser.error(
            "; ".join(f"{fault.name} is played {fault.where.value}" for fault in elsewhere)
        )
    if arguments.hosts:
        try:
            require_hosts()
        except NoHostsError as error:
            parser.error(f"--hosts: {error}")
    return arguments


def main() -> int:
    """Run what the command line asks for; 0 if all is clean, or a sabotage was seen, else 1."""
    arguments = _arguments()
    if arguments.list:
        for fault in faults().values():
            place = "" if fault.where is Where.ANYWHERE else f" ({fault.where.value})"
            print(f"{fault.name:32} {fault.summary}{place}")
        print()
        for sabotage in sabotages().values():
            print(f"--broken {sabotage.name:23} {sabotage.summary}")
        return 0
    wanted = arguments.fault or (
        sabotages()[arguments.broken].faults if arguments.broken else faults()
    )
    chosen = [fault for name in wanted if (fault := faults()[name]).is_for(arguments.hosts)]
    seed = random.randrange(10**6) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    # This program makes brokers go away on purpose.
    logging.getLogger("librdkafka").setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="chaos_"))
    timeline = Timeline()
    kind = sabotages()[arguments.broken].kind if arguments.broken else Kind.PLAIN
    campaign = Campaign(
        folder,
        seed,
        timeline,
        arguments.broken or "",
        arguments.kind or kind,
        arguments.rate,
        on_hosts=arguments.hosts,
        broker_settings=FAST_BROKERS if arguments.fast_brokers else {},
    )
    guard = Guard(limit_s=0)
    Signals().install()
    try:
        if arguments.soak:
            campaign.soak(chosen, arguments.soak)
        else:
            campaign.rounds(chosen, arguments.rounds)
    except Interrupted:
        print("interrupted", flush=True)
        return 130
    finally:
        guard.release()
        _report(campaign, seed, timeline, arguments.json)
    if campaign.is_clean and not arguments.keep:
        shutil.rmtree(folder)
    else:
        print(f"logs are in {folder}")
    if not arguments.broken:
        return 0 if campaign.is_clean else 1
    # A run may also fail for another reason, such as a timeout; only wrong data is proof.
    is_seen = campaign.found_wrong_data
    seen = "seen" if is_seen else "NOT SEEN"
    print(f"sabotage {arguments.broken}: {seen}; it left {campaign.sabotage_signs} signs")
    return 0 if campaign.sabotage_signs and is_seen else 1


def _report(campaign: Campaign, seed: int, timeline: Timeline, file: Path | None) -> None:
    rows = [row for row in campaign.rows.values() if row.rounds or row.skipped]
    print(f"\n{table(rows)}\n\nseed {seed}; {campaign.results} results compared")
    if campaign.curves:
        print(f"\n{growth_table(campaign.curves)}")
    for row in rows:
        for failure in row.failures:
            print(f"{row.fault}: {failure}")
    for problem in campaign.problems:
        print(problem)
    if file is not None:
        found = {
            "seed": seed,
            "results": campaign.results,
            "faults": [row.to_json() for row in rows],
            "problems": campaign.problems,
            "growth": to_json(campaign.curves),
            "timeline": timeline.lines,
        }
        file.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    sys.exit(main())
