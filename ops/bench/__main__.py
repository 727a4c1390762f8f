"""The command: `./ops/bench/run [--quick] [--json] [--only NAME]…`."""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence

from bench.figures import Figure, as_json, show
from bench.measures import MEASURES
from bench.stage import Stage, redis_server, s3_server
from service.logs import configure


def main() -> None:
    arguments = _arguments()
    configure("warning", "json")
    names = arguments.only or list(MEASURES)
    with redis_server() as (redis, kind), s3_server(arguments.s3) as s3_url:
        stage = Stage(
            redis,
            kind,
            s3_url,
            runs=arguments.runs or (3 if arguments.quick else 5),
            quick=arguments.quick,
            told=_progress,
        )
        machine = _machine(kind, arguments.s3)
        figures = [figure for name in names for figure in _measured(name, stage)]
    if arguments.json:
        print(as_json(figures, machine))
    else:
        show(figures, machine)


def _measured(name: str, stage: Stage) -> Sequence[Figure]:
    began_s = time.perf_counter()
    _progress(name)
    try:
        return MEASURES[name](stage)
    finally:
        _progress(f"{name}: {time.perf_counter() - began_s:.0f} s")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ops/bench/run", description="Coatcheck's speed beside its bounds.")
    parser.add_argument("--quick", action="store_true", help="three runs instead of five, with less work each")
    parser.add_argument("--json", action="store_true", help="figures and all runs, for machines")
    parser.add_argument("--only", action="append", choices=list(MEASURES), metavar="NAME", help=", ".join(MEASURES))
    parser.add_argument("--runs", type=int, help="so many runs of each")
    parser.add_argument("--s3", choices=("moto", "rclone"), default="moto", help="the S3 server (default: moto)")
    return parser.parse_args()


def _machine(redis_kind: str, s3_kind: str) -> dict[str, str]:
    return {
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "Redis": redis_kind,
        "S3": s3_kind,
        "commit": _commit(),
    }


def _commit() -> str:
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _progress(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
